//! User namespaces: id maps, and namespaces that exist only for their map.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::pipe::PipeFlags;
use rustix::process::Pid;
use rustix::thread::UnshareFlags;

use crate::error::{FenceError, Step};
use crate::sys::process::{self, Side, Wait};

/// Every namespace of a fence, save the network where the host's is asked for.
pub(crate) const NAMESPACES: libc::c_int = libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP;

/// A pair of ids, user and group.
pub(crate) type Ids = (u32, u32);

/// Whether the groups of a process in the new namespace may still be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setgroups {
    /// Required of callers without privileges.
    Deny,
    /// Left to the process inside (root hosts drop all groups there).
    Allow,
}

/// Writes the maps of a process that waits in its new user namespace: `inside` there is `outside` here.
pub(crate) fn write_maps(
    pid: Pid,
    inside: Ids,
    outside: Ids,
    setgroups: Setgroups,
) -> Result<(), FenceError> {
    if setgroups == Setgroups::Deny {
        write(pid, "setgroups", "deny")?;
    }
    write(pid, "uid_map", &format!("{} {} 1", inside.0, outside.0))?;
    write(pid, "gid_map", &format!("{} {} 1", inside.1, outside.1))
}

fn write(pid: Pid, file: &'static str, text: &str) -> Result<(), FenceError> {
    let path = PathBuf::from(format!("/proc/{}/{file}", pid.as_raw_pid()));
    let fd = rustix::fs::open(&path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
        .step(format!("open({file})"))?;
    rustix::io::write(fd, text.as_bytes()).step(format!("write({file})"))?;
    Ok(())
}

/// A user namespace in which `on_disk` ids are `kernel` ids: mounted with it, files of the one look owned by the other.
pub(crate) fn for_owner_map(on_disk: Ids, kernel: Ids) -> Result<OwnedFd, FenceError> {
    let (ready, tell) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).step("pipe2")?;
    // SAFETY: the child makes system calls only and ends by `exit_now`.
    let child = match unsafe { process::fork() }? {
        Side::Child => hold_namespace(tell),
        Side::Parent(pid) => pid,
    };
    drop(tell);
    let result = open_mapped(child, ready, on_disk, kernel);
    // Gone already is as good as killed.
    let _gone = process::signal(child, libc::SIGKILL);
    process::reap(Some(child), Wait::Block).step("wait4")?;
    result
}

fn hold_namespace(tell: OwnedFd) -> ! {
    // SAFETY: only a new user namespace is entered; descriptors stay shared with nobody.
    let made = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER) };
    let number = made.err().map_or(0, rustix::io::Errno::raw_os_error);
    // Unheard means that the parent is gone, and then nobody waits.
    let _unheard = rustix::io::write(&tell, &number.to_ne_bytes());
    drop(tell);
    loop {
        rustix::event::pause();
    }
}

fn open_mapped(child: Pid, ready: OwnedFd, on_disk: Ids, kernel: Ids) -> Result<OwnedFd, FenceError> {
    let mut number = [0; 4];
    let n = rustix::io::read(ready, &mut number).step("read")?;
    match (n, i32::from_ne_bytes(number)) {
        (4, 0) => {}
        (4, e) => return Err(rustix::io::Errno::from_raw_os_error(e)).step("unshare(NEWUSER)"),
        _ => return Err(rustix::io::Errno::SRCH).step("unshare(NEWUSER)"),
    }
    write_maps(child, on_disk, kernel, Setgroups::Allow)?;
    let path = format!("/proc/{}/ns/user", child.as_raw_pid());
    rustix::fs::openat(CWD, &path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).step("open(ns/user)")
}
