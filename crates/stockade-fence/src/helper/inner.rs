//! PID 1 of a place that bubblewrap made: compares what it finds with what was checked, takes the last privileges away,
//! and serves.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::StatVfsMountFlags;
use rustix::io::Errno;
use rustix::process::PidfdFlags;

use crate::error::{FenceError, FenceErrorKind, Step};
use crate::frames::Frames;
use crate::helper::bubblewrap::{self, Bound, InnerOrder};
use crate::helper::listing::ProcIs;
use crate::helper::phases::Phases;
use crate::helper::place::{self, Place};
use crate::helper::serve;
use crate::message::Report;
use crate::spec::BindAccess;
use crate::sys::files::{self, Seen};
use crate::sys::{mounts, process};

/// Serves on standard input. The argument names the descriptor of the order.
pub(super) fn run(order: &str) -> ! {
    let (mut frames, order) = match begin(order) {
        Ok(begun) => begun,
        // Nobody can be told but whoever reads bubblewrap's complaints.
        Err(error) => complain(&error),
    };
    let built = introduce(&frames).and_then(|()| settle(&order));
    match built {
        Ok(place) => serve::run(&mut frames, place),
        Err(error) => super::fail(&frames, error),
    }
}

fn complain(error: &FenceError) -> ! {
    let _unheard = rustix::io::write(rustix::stdio::stderr(), format!("bwrap: inside: {error}").as_bytes());
    process::exit_now(super::FAILED)
}

/// Leaves nothing of bubblewrap's descriptors behind but the control socket.
fn begin(order: &str) -> Result<(Frames, InnerOrder), FenceError> {
    let order = bubblewrap::read_order(order)?;
    process::close_from(3)?;
    let control = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3).step("fcntl(DUPFD)")?;
    super::prepare()?;
    Ok((Frames::new(control), order))
}

/// Sends the runner a descriptor of this process: the kernel's own, so that its end is seen as that of a child would be.
fn introduce(frames: &Frames) -> Result<(), FenceError> {
    let me = rustix::process::getpid();
    let pidfd = rustix::process::pidfd_open(me, PidfdFlags::empty()).step("pidfd_open(self)")?;
    frames.send(&Report::Born { pid: me.as_raw_pid(), phases: Vec::new() }, &[pidfd.as_fd()])
}

fn settle(order: &InnerOrder) -> Result<Place, FenceError> {
    let mut clock = Phases::new();
    for bound in &order.bound {
        compare(bound)?;
    }
    let root = files::open_strict(Path::new("/"))?;
    mounts::is_root(&root)
        .map_err(|errno| FenceError::new(FenceErrorKind::Refused, "leave the old root", errno))?;
    read_only(Path::new("/"))?;
    read_only(Path::new("/proc"))?;
    clock.mark("compare");
    let listeners = place::listeners(order.spec.network)?;
    clock.mark("network");
    let filter = place::renounce(order.spec.rung)?;
    quiet()?;
    clock.mark("privileges");
    let phases = clock.finish();
    Ok(Place { listeners, max_processes: None, filter, ruleset: None, processes: ProcIs::Own, phases })
}

/// Whoever made the path lead elsewhere in between is found here, before anybody works in the place.
fn compare(bound: &Bound) -> Result<(), FenceError> {
    let fd = files::open_strict(&bound.target)?;
    if !bound.seen.is_same(&Seen::of(&fd)?) {
        let changed = FenceError::new(FenceErrorKind::Changed, "compare with the check", Errno::STALE);
        return Err(changed.on(&bound.target));
    }
    let flags = flags_of(&fd, &bound.target)?;
    let shut = bound.access == BindAccess::ReadWrite || flags.contains(StatVfsMountFlags::RDONLY);
    if shut && flags.contains(StatVfsMountFlags::NOSUID) {
        return Ok(());
    }
    Err(FenceError::new(FenceErrorKind::Refused, "statvfs(bound)", Errno::PERM).on(&bound.target))
}

fn read_only(path: &Path) -> Result<(), FenceError> {
    if flags_of(&files::open_strict(path)?, path)?.contains(StatVfsMountFlags::RDONLY) {
        return Ok(());
    }
    Err(FenceError::new(FenceErrorKind::Refused, "statvfs(read-only)", Errno::PERM).on(path))
}

fn flags_of(fd: &OwnedFd, path: &Path) -> Result<StatVfsMountFlags, FenceError> {
    Ok(rustix::fs::fstatvfs(fd).step_on("fstatvfs", path)?.f_flag)
}

/// What is said from here on goes over the control socket.
fn quiet() -> Result<(), FenceError> {
    let null = File::options().write(true).open("/dev/null").step_on("open", "/dev/null")?;
    process::duplicate_to(null.as_fd(), 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_what_was_checked_or_can_be_written_is_refused() {
        let folder = std::env::temp_dir().join(format!("stockade-inner-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("other")).unwrap();
        let seen = |path: &Path| Seen::of(files::open_strict(path).unwrap()).unwrap();
        let bound = |seen, access| Bound { target: folder.clone(), access, seen };
        let swapped = compare(&bound(seen(&folder.join("other")), BindAccess::ReadWrite)).unwrap_err();
        assert_eq!((swapped.kind(), swapped.errno()), (FenceErrorKind::Changed, libc::ESTALE));
        assert_eq!(swapped.path(), Some(folder.as_path()));
        // The same folder, on a mount that can be written.
        let open = compare(&bound(seen(&folder), BindAccess::ReadOnly)).unwrap_err();
        assert_eq!((open.kind(), open.step()), (FenceErrorKind::Refused, "statvfs(bound)"));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
