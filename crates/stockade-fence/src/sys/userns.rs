//! User namespaces: id maps, and namespaces that exist only for their map.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::process::Pid;

use crate::error::{FenceError, Step};
use crate::sys::process::{self, Side, Wait};
use crate::sys::slow_ends;

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
#[derive(Debug)]
pub(crate) struct OwnerMap {
    namespace: OwnedFd,
    /// The process the namespace was made with. Killed already, but not reaped: its end takes longer than its work.
    holder: Option<Pid>,
}

impl OwnerMap {
    /// Makes one.
    pub(crate) fn new(on_disk: Ids, kernel: Ids) -> Result<Self, FenceError> {
        // SAFETY: the child makes one system call, over and over, until it is killed; it shares no memory with us.
        let holder = match unsafe { process::clone_child(libc::CLONE_NEWUSER) }.step("clone(NEWUSER)")? {
            Side::Child => loop {
                rustix::event::pause();
            },
            Side::Parent((pid, _)) => pid,
        };
        let namespace = open_mapped(holder, on_disk, kernel);
        // Gone already is as good as killed.
        let _gone = process::signal(holder, libc::SIGKILL);
        match namespace {
            Ok(namespace) => Ok(Self { namespace, holder: Some(holder) }),
            Err(error) => {
                reap(holder);
                Err(error)
            }
        }
    }

    /// The namespace.
    pub(crate) fn namespace(&self) -> &OwnedFd {
        &self.namespace
    }

    /// Leaves the holder to be reaped with what else ends slowly. To be called by the process that made it, and only there.
    pub(crate) fn leave(mut self) {
        if let Some(holder) = self.holder.take() {
            slow_ends::leave(holder);
        }
    }

    /// Leaves no zombie. To be called by the process that made it, and only there.
    pub(crate) fn finish(mut self) {
        if let Some(holder) = self.holder.take() {
            reap(holder);
        }
    }
}

fn reap(holder: Pid) {
    // ECHILD: somebody else in this process has reaped it.
    let _reaped = process::reap(Some(holder), Wait::Block);
}

fn open_mapped(holder: Pid, on_disk: Ids, kernel: Ids) -> Result<OwnedFd, FenceError> {
    write_maps(holder, on_disk, kernel, Setgroups::Allow)?;
    namespace_of(holder)
}

/// The user namespace of a process.
pub(crate) fn namespace_of(pid: Pid) -> Result<OwnedFd, FenceError> {
    let path = format!("/proc/{}/ns/user", pid.as_raw_pid());
    rustix::fs::openat(CWD, &path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).step("open(ns/user)")
}
