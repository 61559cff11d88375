//! Who asks, on which kernel, and what the kernel says about this process.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use rustix::thread::CapabilitySet;
use stockade_core::survey::CallerFacts;

/// The name of the initial user namespace, fixed in the kernel (`PROC_USER_INIT_INO`, include/linux/proc_ns.h).
const INITIAL_USER_NAMESPACE: &str = "user:[4026531837]";

/// The most that is read of a file of the kernel's.
const FILE_LIMIT: u64 = 64 * 1024;

/// The ids and groups of this process.
pub(super) fn caller() -> CallerFacts {
    let groups = rustix::process::getgroups().unwrap_or_default();
    CallerFacts {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        groups: groups.into_iter().map(rustix::process::Gid::as_raw).collect(),
        initial_user_namespace: std::fs::read_link("/proc/self/ns/user")
            .is_ok_and(|name| name == Path::new(INITIAL_USER_NAMESPACE)),
        mount_privilege: rustix::thread::capabilities(None)
            .is_ok_and(|held| held.effective.contains(CapabilitySet::SYS_ADMIN)),
    }
}

/// The list of security modules, for diagnosis only.
pub(super) fn lsm() -> Option<String> {
    read("/sys/kernel/security/lsm").ok().map(|text| text.trim().to_owned())
}

/// Whether the administrator has shut io_uring, so that its refusal is the kernel's own answer.
pub(super) fn io_uring_is_disabled() -> bool {
    read("/proc/sys/kernel/io_uring_disabled").is_ok_and(|text| text.trim() != "0")
}

/// What /proc/self/status says. Lines that are missing or make no sense are `None`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ProcessStatus {
    /// 0: no seccomp; 1: strict; 2: filters.
    pub(super) seccomp_mode: Option<u32>,
    /// Filters in force (Linux 5.9 and newer).
    pub(super) seccomp_filters: Option<u32>,
    /// Whether `no_new_privs` is set.
    pub(super) no_new_privs: Option<bool>,
}

impl ProcessStatus {
    /// Reads the status of this process.
    pub(super) fn read() -> Self {
        Self::parse(&read("/proc/self/status").unwrap_or_default())
    }

    fn parse(text: &str) -> Self {
        let number = |key: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(key)?.strip_prefix(':')?.trim().parse::<u32>().ok())
        };
        Self {
            seccomp_mode: number("Seccomp"),
            seccomp_filters: number("Seccomp_filters"),
            no_new_privs: number("NoNewPrivs").map(|value| value == 1),
        }
    }
}

/// The beginning of a file of the kernel's; bytes that are not text are replaced.
pub(super) fn read(path: &str) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE_LIMIT).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::ProcessStatus;

    #[test]
    fn a_status_is_read_by_its_keys_and_nonsense_is_nothing() {
        let text = "Name:\tx\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t3\n";
        let expected =
            ProcessStatus { seccomp_mode: Some(2), seccomp_filters: Some(3), no_new_privs: Some(true) };
        assert_eq!(ProcessStatus::parse(text), expected);
        assert_eq!(
            ProcessStatus::parse("Seccomp:\t-1\nSeccomp_filters\nNoNewPrivs: yes\n\u{fffd}"),
            ProcessStatus::default()
        );
    }
}
