//! Processes: clone, fork, wait, signals, and the small things a process does to itself.

use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::Pid;

use crate::error::{FenceError, Step};

/// Turns the answer of a raw system call into a result.
pub(crate) fn answer(raw: i64) -> Result<i64, Errno> {
    if raw < 0 { Err(last()) } else { Ok(raw) }
}

fn last() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Which side of a fork this is.
#[derive(Debug)]
pub(crate) enum Side<T> {
    /// The new process.
    Child,
    /// The process that forked.
    Parent(T),
}

/// Forks.
///
/// # Safety
/// The child must end by [`exit_now`] or by exec, and may take no lock that another thread of this process can hold.
pub(crate) unsafe fn fork() -> Result<Side<Pid>, FenceError> {
    // SAFETY: the caller keeps the promise above.
    let raw = unsafe { libc::fork() };
    let raw = answer(i64::from(raw)).step("fork")?;
    Ok(i32::try_from(raw).ok().and_then(Pid::from_raw).map_or(Side::Child, Side::Parent))
}

/// Makes a process in new namespaces that is a sibling of this one (its parent is our parent), with a pidfd for it.
///
/// clone(2) and not clone3(2): filters of containers answer clone3 with ENOSYS, which would hide the real cause.
///
/// # Safety
/// As [`fork`], and this process must have one thread only: the C library does not learn of the clone.
pub(crate) unsafe fn clone_sibling(namespaces: libc::c_int) -> Result<Side<(Pid, OwnedFd)>, Errno> {
    let flags = namespaces | libc::CLONE_PARENT | libc::CLONE_PIDFD;
    // SAFETY: the caller keeps the promise above.
    unsafe { clone(flags | libc::SIGCHLD) }
}

/// As [`clone_sibling`], born in a version 2 control group. By clone3(2), the only call that can; filters of containers
/// answer it with ENOSYS.
///
/// # Safety
/// As [`clone_sibling`].
pub(crate) unsafe fn clone_sibling_into(
    namespaces: libc::c_int,
    group: BorrowedFd<'_>,
) -> Result<Side<(Pid, OwnedFd)>, Errno> {
    /// `CLONE_INTO_CGROUP` of linux/sched.h; the C library's own constant does not fit the type of its other flags.
    const INTO_CGROUP: u64 = 0x2_0000_0000;
    let mut pidfd: libc::c_int = -1;
    let mut own_id: libc::c_int = 0;
    let flags = namespaces | libc::CLONE_PARENT | libc::CLONE_PIDFD | libc::CLONE_CHILD_SETTID;
    let arguments = CloneArguments {
        flags: u64::from(flags.cast_unsigned()) | INTO_CGROUP,
        pidfd: std::ptr::from_mut(&mut pidfd).addr() as u64,
        child_tid: std::ptr::from_mut(&mut own_id).addr() as u64,
        cgroup: u64::try_from(group.as_raw_fd()).map_err(|_| Errno::BADF)?,
        ..CloneArguments::default()
    };
    // SAFETY: no stack means that the child goes on with a copy of ours; `pidfd` and `own_id` are writable for the kernel,
    // and the structure has the size that is passed.
    let raw = unsafe {
        libc::syscall(libc::SYS_clone3, std::ptr::from_ref(&arguments), size_of::<CloneArguments>())
    };
    let Some(pid) = parents_side(raw, &raw const own_id)? else { return Ok(Side::Child) };
    Ok(Side::Parent((pid, told(pidfd)?)))
}

/// `struct clone_args` of linux/sched.h, in the size that has `cgroup` (Linux 5.7). With `CLONE_PARENT` the signal at its
/// end is the parent's and must not be given.
#[repr(C)]
#[derive(Default)]
struct CloneArguments {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// Makes a process in new namespaces that is a child of this one.
///
/// # Safety
/// As [`clone_sibling`].
pub(crate) unsafe fn clone_child(namespaces: libc::c_int) -> Result<Side<(Pid, OwnedFd)>, Errno> {
    // SAFETY: the caller keeps the promise above.
    unsafe { clone(namespaces | libc::CLONE_PIDFD | libc::SIGCHLD) }
}

/// clone(2) without a new stack, which behaves as fork.
///
/// # Safety
/// As [`clone_sibling`]; `flags` must hold CLONE_PIDFD and neither CLONE_VM nor CLONE_THREAD.
unsafe fn clone(flags: libc::c_int) -> Result<Side<(Pid, OwnedFd)>, Errno> {
    let mut pidfd: libc::c_int = -1;
    let mut own_id: libc::c_int = 0;
    // SAFETY: a null stack means the child goes on with a copy of ours, and both numbers are writable for the kernel.
    let raw = unsafe {
        libc::syscall(
            libc::SYS_clone,
            i64::from(flags | libc::CLONE_CHILD_SETTID),
            0_usize,
            std::ptr::from_mut(&mut pidfd),
            std::ptr::from_mut(&mut own_id),
            0_usize,
        )
    };
    let Some(pid) = parents_side(raw, &raw const own_id)? else { return Ok(Side::Child) };
    Ok(Side::Parent((pid, told(pidfd)?)))
}

/// The child's id after a clone with `CLONE_CHILD_SETTID`; `None`: this is the child, which the kernel has told its own id.
/// Somebody who only says "0" (a filter in place of the kernel) has made no child, and the parent would go on as one.
pub(crate) fn parents_side(raw: i64, own_id: *const libc::c_int) -> Result<Option<Pid>, Errno> {
    let pid = i32::try_from(answer(raw)?).map_err(|_| Errno::PROTO)?;
    if let Some(pid) = Pid::from_raw(pid) {
        return Ok(Some(pid));
    }
    // SAFETY: the callers pass a pointer to a number of their own, which the kernel may have written behind the compiler's
    // back.
    let told = unsafe { own_id.read_volatile() };
    if told == 0 { Err(Errno::PROTO) } else { Ok(None) }
}

/// The descriptor that a clone has written.
fn told(pidfd: libc::c_int) -> Result<OwnedFd, Errno> {
    if pidfd < 0 {
        return Err(Errno::PROTO);
    }
    // SAFETY: the kernel has just written a descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(pidfd) })
}

/// Ends this process without running destructors or handlers of the parent's copy.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: `_exit` has no preconditions.
    unsafe { libc::_exit(code) }
}

/// Replaces this process. Returns only the error.
pub(crate) fn exec(path: &CStr, argv: &[CString], env: &[CString]) -> Errno {
    let argv = null_terminated(argv);
    let env = null_terminated(env);
    // SAFETY: the path is NUL-terminated, both arrays end with a null pointer and their strings outlive the call.
    unsafe { libc::execve(path.as_ptr(), argv.as_ptr(), env.as_ptr()) };
    last()
}

fn null_terminated(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect()
}

/// How a child ended and what it used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) pid: Pid,
    /// The exit code, where it exited.
    pub(crate) code: Option<i32>,
    /// The signal, where one ended it.
    pub(crate) signal: Option<i32>,
    /// User and system time, with that of descendants it waited for.
    pub(crate) cpu: Duration,
    /// The largest resident set, in KiB.
    pub(crate) max_rss_kib: u64,
}

/// Whether to wait for a child that has not ended yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Until one ends.
    Block,
    /// Only for those that have.
    Poll,
}

/// Reaps a child (`None`: any). `Ok(None)`: none has ended. `ECHILD`: there is none.
pub(crate) fn reap(pid: Option<Pid>, wait: Wait) -> Result<Option<Ended>, Errno> {
    let wanted = pid.map_or(-1, Pid::as_raw_pid);
    let flags = if wait == Wait::Poll { libc::WNOHANG } else { 0 };
    let mut status: libc::c_int = 0;
    // SAFETY: `rusage` is plain numbers, for which all zeroes is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both out-pointers are valid for writing for the length of the call.
        let raw = unsafe { libc::wait4(wanted, &raw mut status, flags, &raw mut usage) };
        match answer(i64::from(raw)) {
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
            Ok(_) => return Ok(Pid::from_raw(raw).map(|pid| ended(pid, status, &usage))),
        }
    }
}

fn ended(pid: Pid, status: libc::c_int, usage: &libc::rusage) -> Ended {
    Ended {
        pid,
        code: libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)),
        signal: libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status)),
        cpu: duration(usage.ru_utime) + duration(usage.ru_stime),
        max_rss_kib: u64::try_from(usage.ru_maxrss).unwrap_or(0),
    }
}

fn duration(time: libc::timeval) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let micros = u64::try_from(time.tv_usec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_micros(micros)
}

/// Sends a signal to one process.
pub(crate) fn signal(pid: Pid, signal: i32) -> Result<(), Errno> {
    // SAFETY: kill takes numbers only; a bad one is answered with an error.
    let raw = unsafe { libc::kill(pid.as_raw_pid(), signal) };
    answer(i64::from(raw)).map(|_| ())
}

/// Sends a signal to everything this process may signal, save itself. From PID 1: the whole namespace.
pub(crate) fn signal_all(signal: i32) -> Result<(), Errno> {
    // SAFETY: kill takes numbers only; -1 means every process of the namespace but the caller and its PID 1.
    let raw = unsafe { libc::kill(-1, signal) };
    answer(i64::from(raw)).map(|_| ())
}

/// Closes every descriptor from `first` on.
pub(crate) fn close_from(first: u32) -> Result<(), FenceError> {
    close_range(first, u32::MAX, 0).step("close_range")
}

/// Marks every descriptor from `first` on to be closed by exec.
pub(crate) fn close_on_exec_from(first: u32) -> Result<(), FenceError> {
    close_range(first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC).step("close_range(CLOEXEC)")
}

fn close_range(first: u32, last: u32, flags: libc::c_uint) -> Result<(), Errno> {
    // SAFETY: callers are about to exec or have just been exec'd and own nothing in the range that is used again.
    let raw = unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
    answer(raw).map(|_| ())
}

/// Puts a copy of `from` at the number `to`, without close-on-exec.
pub(crate) fn duplicate_to(from: BorrowedFd<'_>, to: i32) -> Result<(), FenceError> {
    // SAFETY: `from` is borrowed and so open; the caller owns the number `to` (0, 1 or 2 in a fresh child).
    let raw = unsafe { libc::dup2(from.as_raw_fd(), to) };
    answer(i64::from(raw)).step("dup2")?;
    Ok(())
}

/// Blocks SIGCHLD and returns a descriptor that becomes readable when a child ends.
pub(crate) fn child_signals() -> Result<OwnedFd, FenceError> {
    let set = signal_set(&[libc::SIGCHLD])?;
    set_mask(&set)?;
    // SAFETY: -1 asks for a new descriptor and the set is initialised.
    let raw = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
    answer(i64::from(raw)).step("signalfd")?;
    // SAFETY: the kernel has just made this descriptor and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// Blocks no signal any more.
pub(crate) fn unblock_signals() -> Result<(), FenceError> {
    set_mask(&signal_set(&[])?)
}

fn signal_set(signals: &[i32]) -> Result<libc::sigset_t, FenceError> {
    let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the pointer is valid for writing a whole set.
    let raw = unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    answer(i64::from(raw)).step("sigemptyset")?;
    // SAFETY: sigemptyset has initialised it.
    let mut set = unsafe { set.assume_init() };
    for signal in signals {
        // SAFETY: the set is initialised; a bad number is answered with an error.
        let raw = unsafe { libc::sigaddset(&raw mut set, *signal) };
        answer(i64::from(raw)).step("sigaddset")?;
    }
    Ok(set)
}

fn set_mask(set: &libc::sigset_t) -> Result<(), FenceError> {
    // SAFETY: the set is initialised and the old mask is not asked for.
    let raw = unsafe { libc::sigprocmask(libc::SIG_SETMASK, std::ptr::from_ref(set), std::ptr::null_mut()) };
    answer(i64::from(raw)).step("sigprocmask")?;
    Ok(())
}

/// Gives every signal its default action: an ignored one would be inherited by the payload.
///
/// By the raw call, because the C library keeps two signals to itself, which its own posix_spawn leaves ignored.
pub(crate) fn default_signals() {
    const LAST: i64 = 64;
    // `struct sigaction` of the kernel: SIG_DFL, no flags, no restorer, an empty mask.
    let default = [0_u64; 4];
    for signal in 1..=LAST {
        // SAFETY: the action is complete and the old one is not asked for; KILL and STOP are answered with EINVAL, which
        // changes nothing.
        unsafe {
            libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), 0_usize, size_of::<u64>());
        }
    }
}

/// Joins a new, empty session keyring, so that no key of the caller can be read or used.
pub(crate) fn own_keyring() -> Result<(), Errno> {
    const JOIN_SESSION_KEYRING: libc::c_int = 1;
    // SAFETY: a null name asks for an anonymous keyring.
    let raw =
        unsafe { libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, 0_usize, 0_usize, 0_usize, 0_usize) };
    answer(raw).map(|_| ())
}
