//! What the kernel calls itself.

use std::ffi::{CStr, c_char};

/// Release and machine as `uname` tells them; empty where it tells nothing.
pub(crate) fn release_and_machine() -> (String, String) {
    // SAFETY: the structure is plain bytes, for which all zeroes is a value.
    let mut name: libc::utsname = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is valid for writing the whole structure.
    let answer = unsafe { libc::uname(&raw mut name) };
    if answer != 0 {
        return (String::new(), String::new());
    }
    (text(&name.release), text(&name.machine))
}

fn text(field: &[c_char]) -> String {
    let bytes: Vec<u8> = field.iter().map(|c| c.cast_unsigned()).collect();
    CStr::from_bytes_until_nul(&bytes).map(|text| text.to_string_lossy().into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_what_proc_says() {
        let (release, machine) = release_and_machine();
        assert_eq!(release, std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap().trim());
        assert_eq!(machine, std::env::consts::ARCH);
    }
}
