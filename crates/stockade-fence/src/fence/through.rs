//! The runner's side of a fence through bubblewrap: whose descriptor it was given, and what bubblewrap complained about.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::Pid;

use crate::error::{FenceError, FenceErrorKind};
use crate::frames::wait_readable;

/// The longest complaint that is read.
const MAX_COMPLAINT: u64 = 4096;
/// Error numbers whose text bubblewrap puts at the end of a complaint.
const KNOWN: [i32; 9] = [
    libc::EPERM,
    libc::EACCES,
    libc::ENOENT,
    libc::ENOSPC,
    libc::EINVAL,
    libc::EROFS,
    libc::EBUSY,
    libc::ENOSYS,
    libc::ELOOP,
];

/// The id here of the process that a descriptor is of, if it is PID 1 of a namespace and a child of `parent`.
pub(super) fn first_process(pidfd: &OwnedFd, parent: u32) -> Option<Pid> {
    let told = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd())).ok()?;
    let pid = Pid::from_raw(field(&told, "Pid:")?.trim().parse().ok()?)?;
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_pid())).ok()?;
    let is_first = field(&status, "NSpid:")?.split_whitespace().nth(1) == Some("1");
    let is_childs = field(&status, "PPid:")?.trim() == parent.to_string();
    (is_first && is_childs).then_some(pid)
}

fn field<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.lines().find_map(|line| line.strip_prefix(name))
}

/// Why bubblewrap ended: its first complaint as a step and an error number.
pub(super) fn complaint(complaints: OwnedFd) -> FenceError {
    let mut text = Vec::new();
    // bubblewrap is gone or going: what it had to say is there.
    if wait_readable(complaints.as_fd(), Duration::from_secs(1)).is_ok() {
        let mut chunk = [0; 4096];
        let mut file = File::from(complaints).take(MAX_COMPLAINT);
        // Nothing read is no complaint.
        let count = file.read(&mut chunk).unwrap_or(0);
        text.extend(chunk.iter().take(count));
    }
    let text = String::from_utf8_lossy(&text);
    parse(text.lines().find(|line| line.starts_with("bwrap: ")).unwrap_or_default())
}

fn parse(line: &str) -> FenceError {
    if line.is_empty() {
        return FenceError::bare(FenceErrorKind::Helper, "bwrap ended without a word");
    }
    let text_of = |errno: &i32| {
        let text = io::Error::from_raw_os_error(*errno).to_string();
        text.split(" (os error").next().unwrap_or_default().to_owned()
    };
    if let Some(errno) = KNOWN.iter().find(|errno| line.ends_with(&text_of(errno))) {
        let step = line.strip_suffix(&text_of(errno)).unwrap_or(line).trim_end_matches([':', ' ']);
        return FenceError::new(FenceErrorKind::Refused, step.to_owned(), Errno::from_raw_os_error(*errno));
    }
    // The one refusal that it words itself.
    if line.contains("No permissions to create") {
        let step = line.split(',').next().unwrap_or(line).to_owned();
        return FenceError::new(FenceErrorKind::Refused, step, Errno::PERM);
    }
    FenceError::bare(FenceErrorKind::Refused, line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_is_a_step_and_an_error_number() {
        for (line, step, errno) in [
            (
                "bwrap: Creating new namespace failed: Operation not permitted",
                "bwrap: Creating new namespace failed",
                libc::EPERM,
            ),
            (
                "bwrap: Can't mount proc on /newroot/proc: Operation not permitted",
                "bwrap: Can't mount proc on /newroot/proc",
                libc::EPERM,
            ),
            (
                "bwrap: No permissions to create new namespace, likely because the kernel does not allow it",
                "bwrap: No permissions to create new namespace",
                libc::EPERM,
            ),
            ("bwrap: Unknown option --size", "bwrap: Unknown option --size", 0),
            ("", "bwrap ended without a word", 0),
        ] {
            let error = parse(line);
            assert_eq!((error.step(), error.errno()), (step, errno), "{line}");
        }
    }

    #[test]
    fn a_process_of_this_namespace_is_no_first_process() {
        let me = rustix::process::getpid();
        let pidfd = rustix::process::pidfd_open(me, rustix::process::PidfdFlags::empty()).unwrap();
        assert_eq!(first_process(&pidfd, 1), None);
    }
}
