//! The walk through namespaces and mounts that every direct rung needs, taken once in a child.
//!
//! Same calls in the same order as the fence: clone(2) with every namespace, mappings written from outside,
//! private mounts, a fresh proc while the old one is visible, a new root, loopback, then the locks.

use std::ffi::CStr;
use std::os::fd::OwnedFd;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, UnmountFlags};
use rustix::process::Pid;
use rustix::thread::{Gid, Uid};
use stockade_core::survey::{CallerFacts, Refused};

use crate::sys::{mounts, net, userns};

use super::refused;
use super::steps::Step;
use super::trial::{self, Fault, Released, Reporter, Waiting};
use super::{landlock, seccomp};

/// The user and group inside the fence.
const INSIDE_ID: u32 = 1000;

/// The kernel's user that the payload of a root host becomes in the trial: any but 0 (`nobody`).
const TRIAL_KERNEL_ID: u32 = 65_534;

/// Each namespace with its name in reports.
const NAMESPACES: [(libc::c_int, &str); 7] = [
    (libc::CLONE_NEWUSER, "NEWUSER"),
    (libc::CLONE_NEWNS, "NEWNS"),
    (libc::CLONE_NEWPID, "NEWPID"),
    (libc::CLONE_NEWNET, "NEWNET"),
    (libc::CLONE_NEWIPC, "NEWIPC"),
    (libc::CLONE_NEWUTS, "NEWUTS"),
    (libc::CLONE_NEWCGROUP, "NEWCGROUP"),
];

/// The locks that are put on after the namespaces.
pub(super) enum Locks {
    /// seccomp only.
    Seccomp,
    /// Landlock of this ABI, then seccomp.
    LandlockAndSeccomp(i32),
}

/// A walk that a child is taking.
#[derive(Debug)]
pub(super) struct Walking {
    child: Released,
    /// The child's user namespace, on root hosts: with it the owners of files can be mapped.
    owners: Option<OwnedFd>,
}

impl Walking {
    /// A user namespace that maps one id; `None` where the caller may not use one.
    pub(super) fn owners(&self) -> Option<&OwnedFd> {
        self.owners.as_ref()
    }

    /// Waits for the end of the walk. `None`: it stands.
    pub(super) fn finish(self) -> Option<Refused> {
        self.child.finish().ending.refusal()
    }

    /// Leaves the walk to end by itself.
    pub(super) fn abandon(self) {
        self.child.abandon();
    }
}

/// Takes the walk. `None`: it stands.
pub(super) fn walk(caller: &CallerFacts, locks: &Locks) -> Option<Refused> {
    begin(caller, locks).map_or_else(Some, Walking::finish)
}

/// Begins the walk and does not wait for its end.
pub(super) fn begin(caller: &CallerFacts, locks: &Locks) -> Result<Walking, Refused> {
    let filter = seccomp::trial_filter();
    let root_host = caller.is_root_host();
    let all = NAMESPACES.iter().fold(0, |flags, (flag, _)| flags | flag);
    let child = trial::prepare(all, |reporter| {
        isolate(reporter, root_host)?;
        let witness = build_root(reporter)?;
        if let Locks::LandlockAndSeccomp(abi) = locks {
            // The new process namespace has nobody outside the domain to signal: a canary of the fence tries that.
            landlock::bite_files(reporter, *abi, witness)?;
        }
        seccomp::install_and_see(reporter, &filter)
    });
    match child {
        Ok(child) => map_ids(child, caller),
        Err(error) => Err(clone_refused(Fault::from(error).0)),
    }
}

/// Writes the mappings from outside and releases the child.
fn map_ids(child: Waiting, caller: &CallerFacts) -> Result<Walking, Refused> {
    let (uid, gid) =
        if caller.is_root_host() { (TRIAL_KERNEL_ID, TRIAL_KERNEL_ID) } else { (caller.uid, caller.gid) };
    let mut files = vec![
        (Step::UidMap, "uid_map", format!("{INSIDE_ID} {uid} 1")),
        (Step::GidMap, "gid_map", format!("{INSIDE_ID} {gid} 1")),
    ];
    if !caller.is_root_host() {
        // Without CAP_SETGID the kernel takes a group mapping only once setgroups is denied.
        files.insert(0, (Step::DenySetgroups, "setgroups", "deny".to_owned()));
    }
    for (step, file, text) in files {
        if let Err(errno) = write_of(child.pid(), file, &text) {
            return Err(child.give_up(step, errno.raw_os_error()));
        }
    }
    let owners = if caller.is_root_host() { userns::namespace_of(child.pid()).ok() } else { None };
    Ok(Walking { child: child.release(), owners })
}

fn write_of(pid: Pid, file: &str, text: &str) -> Result<(), Errno> {
    let path = format!("/proc/{}/{file}", pid.as_raw_nonzero());
    let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    // These files take one write or nothing.
    rustix::io::write(file, text.as_bytes()).map(|_| ())
}

/// Nothing propagates out any more, and on a root host the process is not kernel root any more.
fn isolate(reporter: &Reporter, root_host: bool) -> Result<(), Fault> {
    reporter.step(Step::MakePrivate, mounts::make_all_private)?;
    if root_host {
        let (uid, gid) = (Uid::from_raw(INSIDE_ID), Gid::from_raw(INSIDE_ID));
        reporter.step(Step::Setgroups, || rustix::thread::set_thread_groups(&[]))?;
        reporter.step(Step::Setresgid, || rustix::thread::set_thread_res_gid(gid, gid, gid))?;
        reporter.step(Step::Setresuid, || rustix::thread::set_thread_res_uid(uid, uid, uid))?;
    }
    Ok(())
}

/// A tmpfs as root with a fresh proc, loopback up. Returns a file that can be written.
fn build_root(reporter: &Reporter) -> Result<&'static CStr, Fault> {
    // The kernel compares a new proc with a visible one, so it comes before the old root goes.
    let proc = reporter.step(Step::MountProc, || mount_of(c"proc"))?;
    let tmpfs = reporter.step(Step::MountTmpfs, || mount_of(c"tmpfs"))?;
    let attach = |mount, at: &CStr| {
        rustix::mount::move_mount(mount, c"", CWD, at, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
    };
    reporter.step(Step::AttachTmpfs, || attach(&tmpfs, c"/tmp"))?;
    reporter.step(Step::PivotRoot, || {
        rustix::process::chdir(c"/tmp")?;
        rustix::process::pivot_root(c".", c".")
    })?;
    reporter.step(Step::DetachOldRoot, || {
        rustix::mount::unmount(c".", UnmountFlags::DETACH)?;
        rustix::process::chdir(c"/")
    })?;
    reporter.step(Step::AttachProc, || {
        rustix::fs::mkdir(c"/proc", Mode::RWXU)?;
        attach(&proc, c"/proc")
    })?;
    reporter.step(Step::LoopbackUp, net::loopback_up)?;
    reporter.step(Step::WitnessFile, || {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        rustix::fs::open(c"/witness", flags, Mode::RUSR | Mode::WUSR)
    })?;
    Ok(c"/witness")
}

fn mount_of(kind: &CStr) -> Result<OwnedFd, Errno> {
    let context = rustix::mount::fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// Finds out which namespace the kernel refused, because one call asks for all of them.
fn clone_refused(errno: i32) -> Refused {
    let user = NAMESPACES.first().map_or(0, |(flag, _)| *flag);
    for (flag, name) in NAMESPACES {
        if let Err(error) = trial::prepare(user | flag, |_| Ok(())).map(Waiting::finish) {
            return refused(format!("clone({name})"), Fault::from(error).0);
        }
    }
    refused("clone(all namespaces)", errno)
}
