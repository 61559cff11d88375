//! Stage A: opens the sources, makes the namespaces with PID 1 in them, writes the id maps, and ends.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::Pid;
use stockade_core::survey::Rung;

use crate::error::{FenceError, FenceErrorKind, Step};
use crate::frames::{Frames, Received};
use crate::group;
use crate::helper::phases::Phases;
use crate::helper::{bubblewrap, place, serve, sources};
use crate::message::{Report, Request};
use crate::spec::{FenceNetwork, FenceSpec, INNER_ID, Identity};
use crate::sys::process::{self, Side, Wait};
use crate::sys::userns::{self, Ids, NAMESPACES, OwnerMap, Setgroups};

/// How long the runner may take to send its order: it verifies the provider and walks the workspace meanwhile, which takes
/// milliseconds, and minutes on a slow disk. The end of a runner is noticed at once.
const ORDER_TIMEOUT: Duration = Duration::from_secs(600);

pub(super) fn run(frames: &mut Frames) -> Result<(), FenceError> {
    let mut clock = Phases::new();
    let spec = order(frames)?;
    clock.mark("order");
    let gathered = sources::gather(&spec)?;
    clock.mark("gather");
    let born_in = spec.group.as_ref().map(group::enter).transpose()?.flatten();
    clock.mark("control groups");
    if spec.rung == Rung::Bs {
        born_in.map(|folder| group::join_whole(folder.as_fd())).transpose()?;
        return bubblewrap::take_over(frames, &spec, gathered, clock).map(|never| match never {});
    }
    let (wait, go) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).step("pipe2")?;
    let namespaces = NAMESPACES | if spec.network == FenceNetwork::Host { 0 } else { libc::CLONE_NEWNET };
    match make_pid_1(namespaces, born_in)? {
        Ok(Side::Child) => {
            drop(go);
            pid_1(frames, &spec, gathered, wait)
        }
        Ok(Side::Parent((pid, pidfd))) => {
            let (outside, setgroups) = outside_ids(spec.identity);
            clock.mark("clone");
            userns::write_maps(pid, (INNER_ID, INNER_ID), outside, setgroups)?;
            clock.mark("map ids");
            let born = Report::Born { pid: pid.as_raw_pid(), phases: clock.finish() };
            frames.send(&born, &[pidfd.as_fd()])?;
            rustix::io::write(go, b"g").step("write(go)")?;
            gathered.owner_maps.into_iter().for_each(OwnerMap::finish);
            Ok(())
        }
        Err(errno) => Err(errno).step(refused_flag(namespaces)),
    }
}

type Made = Result<Side<(Pid, OwnedFd)>, Errno>;

/// Makes PID 1, in the control group where there is one. Where it cannot be born there, this process goes first.
fn make_pid_1(namespaces: libc::c_int, born_in: Option<OwnedFd>) -> Result<Made, FenceError> {
    if let Some(folder) = born_in {
        // SAFETY: this process has one thread, and the child ends by `exit_now` in `pid_1`.
        if let Ok(made) = unsafe { process::clone_sibling_into(namespaces, folder.as_fd()) } {
            return Ok(Ok(made));
        }
        group::join_whole(folder.as_fd())?;
    }
    // SAFETY: this process has one thread, and the child ends by `exit_now` in `pid_1`.
    Ok(unsafe { process::clone_sibling(namespaces) })
}

fn order(frames: &mut Frames) -> Result<FenceSpec, FenceError> {
    match frames.wait::<Request>(Instant::now() + ORDER_TIMEOUT)? {
        Received::Message(Request::Build(spec), _) => {
            spec.check()?;
            Ok(*spec)
        }
        Received::Message(..) | Received::Nothing | Received::End => {
            Err(FenceError::new(FenceErrorKind::Helper, "wait for the order", Errno::PROTO))
        }
    }
}

fn outside_ids(identity: Identity) -> (Ids, Setgroups) {
    match identity {
        Identity::Caller => {
            let ids = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
            (ids, Setgroups::Deny)
        }
        Identity::Kernel { uid, gid } => ((uid, gid), Setgroups::Allow),
        Identity::KernelRoot => ((0, 0), Setgroups::Allow),
    }
}

/// PID 1 begins here: it waits until its ids are mapped, builds the place and serves.
fn pid_1(frames: &mut Frames, spec: &FenceSpec, gathered: sources::Gathered, wait: OwnedFd) -> ! {
    let mut mapped = [0];
    if rustix::io::read(wait, &mut mapped) != Ok(1) {
        // Stage A has failed and has said so.
        process::exit_now(super::FAILED);
    }
    match place::build(spec, gathered) {
        Ok(place) => serve::run(frames, place),
        Err(error) => super::fail(frames, error),
    }
}

/// The clone asks for every namespace at once. Finds out, by asking for each alone, which of them was refused.
fn refused_flag(namespaces: libc::c_int) -> &'static str {
    const OTHERS: [(libc::c_int, &str); 6] = [
        (libc::CLONE_NEWNS, "clone(NEWNS)"),
        (libc::CLONE_NEWPID, "clone(NEWPID)"),
        (libc::CLONE_NEWNET, "clone(NEWNET)"),
        (libc::CLONE_NEWIPC, "clone(NEWIPC)"),
        (libc::CLONE_NEWUTS, "clone(NEWUTS)"),
        (libc::CLONE_NEWCGROUP, "clone(NEWCGROUP)"),
    ];
    if !can_clone(libc::CLONE_NEWUSER) {
        return "clone(NEWUSER)";
    }
    let wanted = OTHERS.iter().filter(|(flag, _)| namespaces & flag != 0);
    wanted
        .filter(|(flag, _)| !can_clone(libc::CLONE_NEWUSER | flag))
        .map(|(_, name)| *name)
        .next()
        .unwrap_or("clone(NEWUSER)")
}

fn can_clone(flags: libc::c_int) -> bool {
    // SAFETY: this process has one thread, and the child ends at once.
    match unsafe { process::clone_child(flags) } {
        Ok(Side::Child) => process::exit_now(0),
        Ok(Side::Parent((pid, _))) => {
            // Its end says nothing more.
            let _ended = process::reap(Some(pid), Wait::Block);
            true
        }
        Err(_) => false,
    }
}
