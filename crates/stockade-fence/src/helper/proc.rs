//! /proc of the place: read-only, without what tells about the host, and with a limit of processes where there is one.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::error::{FenceError, Step};
use crate::sys::files;
use crate::sys::mounts::{self, Attributes, Reach};

/// Covered with /dev/null, where present: keys of the same user, memory, timers and scheduler of the host.
const COVERED: [&str; 7] =
    ["keys", "key-users", "kcore", "timer_list", "timer_stats", "sched_debug", "latency_stats"];
/// The first kernel with a limit per PID namespace. Before, the same file is the limit of the whole host.
const LIMIT_PER_NAMESPACE: (u32, u32) = (6, 14);

/// Sets the limit of processes, covers, and makes all of it read-only. Returns the limit that is enforced.
pub(super) fn harden(proc: &OwnedFd, max_processes: Option<u32>) -> Result<Option<u32>, FenceError> {
    let enforced = max_processes.filter(|max| limit_processes(proc, *max));
    let null = files::open_strict(Path::new("/dev/null"))?;
    for name in COVERED {
        if rustix::fs::statat(proc, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            let cover = mounts::clone_tree(null.as_fd(), Reach::Mount)?;
            mounts::set_attributes(&cover, Reach::Mount, Attributes::READ_ONLY)?;
            mounts::attach(&cover, &Path::new("/proc").join(name))?;
        }
    }
    mounts::set_attributes(proc, Reach::Mount, Attributes::READ_ONLY)?;
    Ok(enforced)
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
    parse_version(&rustix::system::uname().release().to_string_lossy())
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
