//! /proc of the place: a fresh one, or the host's where the kernel gives none; read-only, without what tells about the
//! host, and with a limit of processes where there is one.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use stockade_core::survey::Rung;

use crate::error::{FenceError, Step};
use crate::sys::mounts::{self, Attributes, Reach};
use crate::sys::{files, machine};

/// Covered with /dev/null, where present: keys of the same user, memory, timers and scheduler of the host.
pub(super) const COVERED: [&str; 7] =
    ["keys", "key-users", "kcore", "timer_list", "timer_stats", "sched_debug", "latency_stats"];
/// The first kernel with a limit per PID namespace. Before, the same file is the limit of the whole host.
const LIMIT_PER_NAMESPACE: (u32, u32) = (6, 14);

/// Nothing in it is executed with more rights or is a device.
const PLAIN: Attributes = Attributes::NO_SETUID.with(Attributes::NO_DEVICES).with(Attributes::NO_EXEC);

/// The proc file system of a rung, not attached yet. The kernel gives a fresh one only while it sees a full one.
pub(super) fn of_rung(rung: Rung) -> Result<OwnedFd, FenceError> {
    if rung != Rung::NsHostproc {
        return mounts::new_file_system("proc", &[], PLAIN);
    }
    let proc = files::open_strict(Path::new("/proc"))?;
    // With everything that covers parts of it: the kernel does not let go of those.
    let tree = mounts::clone_tree(&proc, Reach::Tree).map_err(|e| e.on("/proc"))?;
    mounts::set_attributes_private(&tree, Reach::Tree, PLAIN.with(Attributes::READ_ONLY))?;
    Ok(tree)
}

/// Sets the limit of processes, covers, and makes all of it read-only, as far as the rung lets it. Returns the limit that
/// is enforced.
pub(super) fn harden(
    proc: &OwnedFd,
    rung: Rung,
    max_processes: Option<u32>,
) -> Result<Option<u32>, FenceError> {
    match rung {
        Rung::Nsl | Rung::Ns => {
            let enforced = max_processes.filter(|max| limit_processes(proc, *max));
            cover(proc)?;
            mounts::set_attributes(proc, Reach::Mount, Attributes::READ_ONLY)?;
            Ok(enforced)
        }
        // A sandbox inside writes its own id maps there, and the kernel gives it no proc of its own where parts of this
        // one are covered. What it could change belongs to a kernel user that is nobody's in here.
        Rung::NsNest => Ok(max_processes.filter(|max| limit_processes(proc, *max))),
        // Read-only already. The limit that is seen there may be the host's.
        Rung::NsHostproc | Rung::Bs => cover(proc).map(|()| None),
    }
}

fn cover(proc: &OwnedFd) -> Result<(), FenceError> {
    let null = files::open_strict(Path::new("/dev/null"))?;
    for name in COVERED {
        if rustix::fs::statat(proc, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            let cover = mounts::clone_tree(null.as_fd(), Reach::Mount)?;
            mounts::set_attributes(&cover, Reach::Mount, Attributes::READ_ONLY)?;
            mounts::attach(&cover, &Path::new("/proc").join(name))?;
        }
    }
    Ok(())
}

fn limit_processes(proc: &OwnedFd, max: u32) -> bool {
    kernel_version() >= LIMIT_PER_NAMESPACE && write_limit(proc, max).is_ok()
}

fn write_limit(proc: &OwnedFd, max: u32) -> Result<(), FenceError> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(proc, "sys/kernel/pid_max", flags, Mode::empty()).step("open(pid_max)")?;
    let text = max.to_string();
    match rustix::io::write(file, text.as_bytes()) {
        Ok(n) if n == text.len() => Ok(()),
        Ok(_) => Err(Errno::IO).step("write(pid_max)"),
        Err(e) => Err(e).step("write(pid_max)"),
    }
}

/// Major and minor version of the running kernel; 0.0 where it cannot be told.
fn kernel_version() -> (u32, u32) {
    parse_version(&machine::release_and_machine().0)
}

fn parse_version(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor),
        _ => (0, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::parse_version;

    #[test]
    fn versions_of_kernels() {
        assert_eq!(parse_version("6.18.44-fc-v595"), (6, 18));
        assert_eq!(parse_version("6.6.87.2-microsoft-standard-WSL2"), (6, 6));
        assert_eq!(parse_version("odd"), (0, 0));
    }
}
