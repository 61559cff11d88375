//! Processes that outlive the probe that started them.

use std::fs;

use crate::sys::process;

use super::damage::Damage;

/// The name by which such a process is known.
#[derive(Debug)]
pub(super) struct Survivors(String);

impl Survivors {
    pub(super) fn called(name: &str) -> Self {
        Self(name.to_owned())
    }

    pub(super) fn found(&self) -> Vec<Damage> {
        self.pids().map(Damage::Survived).collect()
    }

    /// By name, which everybody may read: a process in a fence shows nothing else to its user.
    fn pids(&self) -> impl Iterator<Item = i32> {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        entries.filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let name = fs::read_to_string(entry.path().join("comm")).ok()?;
            (name.trim_end() == self.0).then_some(pid)
        })
    }
}

impl Drop for Survivors {
    fn drop(&mut self) {
        for pid in self.pids().filter_map(rustix::process::Pid::from_raw) {
            // Gone meanwhile is as good.
            let _gone = process::signal(pid, libc::SIGKILL);
        }
    }
}
