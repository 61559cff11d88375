//! System calls that neither the standard library nor rustix offers, by their number.

use std::ffi::CString;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::acts::Denial;
use crate::sys::process;

/// Makes a system call.
///
/// # Safety
/// Every argument that the call takes as a pointer must be valid for what the kernel does with it.
pub(super) unsafe fn call<const N: usize>(
    number: libc::c_long,
    arguments: [usize; N],
) -> Result<libc::c_long, Denial> {
    let mut padded = [0_usize; 6];
    for (to, from) in padded.iter_mut().zip(arguments) {
        *to = from;
    }
    let [first, second, third, fourth, fifth, sixth] = padded;
    // SAFETY: the caller vouches for the arguments; those that the call does not take are ignored.
    let answer = unsafe { libc::syscall(number, first, second, third, fourth, fifth, sixth) };
    Ok(process::answer(answer)?)
}

/// Owns the descriptor that a call returned.
///
/// # Safety
/// The number must be that of a descriptor which the kernel has just made and which nobody else owns.
pub(super) unsafe fn own(descriptor: libc::c_long) -> Result<OwnedFd, Denial> {
    let number = i32::try_from(descriptor).map_err(|_| Denial::new(libc::EBADF))?;
    // SAFETY: the caller vouches for it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// A path for the kernel.
pub(super) fn path(path: impl AsRef<Path>) -> Result<CString, Denial> {
    CString::new(path.as_ref().as_os_str().as_bytes()).map_err(|_| Denial::new(libc::EINVAL))
}

/// A signed number as an argument.
pub(super) const fn signed(number: i32) -> usize {
    (number as isize).cast_unsigned()
}

/// The address of a value as an argument.
pub(super) fn address<T: ?Sized>(value: &T) -> usize {
    std::ptr::from_ref(value).cast::<u8>().expose_provenance()
}

/// The address of a value that the kernel writes, as an argument.
pub(super) fn address_mut<T: ?Sized>(value: &mut T) -> usize {
    std::ptr::from_mut(value).cast::<u8>().expose_provenance()
}
