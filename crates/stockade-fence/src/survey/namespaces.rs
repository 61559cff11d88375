//! The walk through namespaces and mounts that every direct rung needs, taken once in a child.
//!
//! Same calls in the same order as the fence: clone(2) with every namespace, mappings written from outside,
//! private mounts, a fresh proc while the old one is visible, a new root, loopback, then the locks.

use std::ffi::CStr;
use std::os::fd::OwnedFd;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags,
};
use rustix::process::{DumpableBehavior, Pid};
use rustix::thread::{Gid, Uid, UnshareFlags};
use stockade_core::survey::{CallerFacts, Refused};

use crate::confine::privileges::{self, Bounding};
use crate::sys::mounts::{Attributes, Reach};
use crate::sys::{mounts, net, userns};

use super::refused;
use super::steps::Step;
use super::trial::{self, Fault, Released, Reporter, Waiting, expect_error};
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

/// What is tried beside namespaces and a root of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Walk {
    /// Landlock of this ABI, then seccomp.
    LandlockAndSeccomp(i32),
    /// seccomp only.
    Seccomp,
    /// seccomp, then namespaces and a mount by somebody without privileges inside.
    Nesting,
    /// The host's proc in place of a fresh one, and seccomp.
    HostsProc,
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
pub(super) fn walk(caller: &CallerFacts, walk: Walk) -> Option<Refused> {
    begin(caller, walk).map_or_else(Some, Walking::finish)
}

/// Begins the walk and does not wait for its end.
pub(super) fn begin(caller: &CallerFacts, walk: Walk) -> Result<Walking, Refused> {
    let filter = seccomp::trial_filter();
    let root_host = caller.is_root_host();
    let all = NAMESPACES.iter().fold(0, |flags, (flag, _)| flags | flag);
    let child = trial::prepare(all, |reporter| {
        isolate(reporter, root_host)?;
        let witness = build_root(reporter, walk)?;
        match walk {
            // The new process namespace has nobody outside the domain to signal: a canary of the fence tries that.
            Walk::LandlockAndSeccomp(abi) => landlock::bite_files(reporter, abi, witness)?,
            Walk::Nesting => renounce(reporter)?,
            Walk::Seccomp | Walk::HostsProc => {}
        }
        seccomp::install_and_see(reporter, &filter)?;
        if walk == Walk::Nesting { nest(reporter) } else { Ok(()) }
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

/// A tmpfs as root with a proc, loopback up. Returns a file that can be written.
fn build_root(reporter: &Reporter, walk: Walk) -> Result<&'static CStr, Fault> {
    // The kernel compares a new proc with a visible one, so it comes before the old root goes.
    let proc = match walk {
        Walk::HostsProc => hosts_proc(reporter)?,
        Walk::LandlockAndSeccomp(_) | Walk::Seccomp | Walk::Nesting => {
            reporter.step(Step::MountProc, || mount_of(c"proc"))?
        }
    };
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
        rustix::process::chdir(c"/")?;
        mounts::is_root(&tmpfs)
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

/// The host's proc with everything that covers parts of it, read-only.
fn hosts_proc(reporter: &Reporter) -> Result<OwnedFd, Fault> {
    let clone =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    let proc = reporter.step(Step::CloneProc, || rustix::mount::open_tree(CWD, c"/proc", clone))?;
    reporter.step(Step::ShutProc, || {
        mounts::set_attributes_private(&proc, Reach::Tree, Attributes::READ_ONLY.with(Attributes::NO_SETUID))
    })?;
    Ok(proc)
}

/// Becomes what a role of the place is: without privileges, and no user to whom the kernel's settings belong.
fn renounce(reporter: &Reporter) -> Result<(), Fault> {
    reporter.step(Step::DropPrivileges, || privileges::drop_all(Bounding::Emptied))?;
    reporter.step(Step::KernelSettings, || {
        match landlock::open_for_writing(c"/proc/sys/kernel/core_pattern") {
            // A kernel without core dumps.
            Err(Errno::NOENT) => Ok(()),
            other => expect_error(&other, Errno::ACCESS),
        }
    })
}

/// What a sandbox does that starts here: namespaces, id maps, a mount.
fn nest(reporter: &Reporter) -> Result<(), Fault> {
    let write = |step: Step, file: &CStr, text: &[u8]| {
        reporter.step(step, || {
            let fd = rustix::fs::open(file, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
            rustix::io::write(fd, text).map(|_| ())
        })
    };
    reporter.step(Step::InnerUnshare, || {
        // The id maps belong to whoever may dump the process, which a change of ids has left off. An exec puts it on again.
        rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)?;
        // SAFETY: new namespaces share nothing with the rest of this process, which has one thread.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNS) }
    })?;
    write(Step::InnerSetgroups, c"/proc/self/setgroups", b"deny")?;
    write(Step::InnerUidMap, c"/proc/self/uid_map", b"1000 1000 1")?;
    write(Step::InnerGidMap, c"/proc/self/gid_map", b"1000 1000 1")?;
    reporter.step(Step::InnerMakePrivate, mounts::make_all_private)?;
    reporter.step(Step::InnerMount, || {
        rustix::mount::mount(c"none", c"/", c"tmpfs", MountFlags::empty(), None::<&CStr>)
    })
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
