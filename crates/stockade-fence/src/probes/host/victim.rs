//! The victim: a process of the same user that holds a secret and should notice nothing.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Child;

use rustix::process::Signal;

use crate::error::{FenceError, FenceErrorKind, Step};
use crate::probes::acts::Denial;
use crate::probes::fixture::{SECRET, careless_descriptors};
use crate::probes::raw;
use crate::sys::process;

use super::damage::Damage;

#[derive(Debug)]
pub(super) struct Victim {
    child: Child,
    pid: i32,
    before: Facts,
}

/// What a process of the same user could change about another.
#[derive(Debug, PartialEq, Eq)]
struct Facts {
    limits: String,
    processors: String,
    tracer: String,
    priority: i32,
    disk_priority: i64,
}

impl Victim {
    pub(super) fn start(sleep: &Path, root: &Path) -> Result<Self, FenceError> {
        let path = root.join("home/.ssh/id_ed25519");
        let secret = File::open(&path).step_on("open", path)?;
        let mut command = super::program(sleep);
        command.arg("1000000").env("VICTIM_SECRET", SECRET).stderr(std::process::Stdio::null());
        let maker = rustix::process::getpid();
        let prepare = move || {
            // It ends with its maker, however that ends.
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            if rustix::process::getppid() != Some(maker) {
                return Err(std::io::Error::from_raw_os_error(libc::ESRCH));
            }
            process::duplicate_to(secret.as_fd(), careless_descriptors::VICTIM_SECRET)
                .map_err(|error| std::io::Error::from_raw_os_error(error.errno()))
        };
        // SAFETY: between fork and exec the closure makes system calls only.
        unsafe { command.pre_exec(prepare) };
        let mut child = command.spawn().step_on("spawn", sleep)?;
        let pid = i32::try_from(child.id()).unwrap_or(0);
        match facts(pid) {
            Ok(before) => Ok(Self { child, pid, before }),
            Err(error) => {
                let _ended = super::end(&mut child);
                Err(error)
            }
        }
    }

    pub(super) fn pid(&self) -> i32 {
        self.pid
    }

    pub(super) fn check(&self) -> Vec<Damage> {
        let Ok(now) = facts(self.pid) else { return vec![Damage::Victim("life")] };
        let before = &self.before;
        let changes = [
            ("limits", now.limits != before.limits),
            ("processors", now.processors != before.processors),
            ("tracer", now.tracer != before.tracer),
            ("priority", now.priority != before.priority),
            ("disk priority", now.disk_priority != before.disk_priority),
        ];
        changes.into_iter().filter(|(_, changed)| *changed).map(|(name, _)| Damage::Victim(name)).collect()
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        // Dead already is as good.
        let _ended = super::end(&mut self.child);
    }
}

fn facts(pid: i32) -> Result<Facts, FenceError> {
    let read = |file: &str| {
        let path = format!("/proc/{pid}/{file}");
        std::fs::read_to_string(&path).step_on("read", path)
    };
    let status = read("status")?;
    let line = |key: &str| status.lines().find(|line| line.starts_with(key)).unwrap_or_default().to_owned();
    if line("State:").contains('Z') {
        return Err(FenceError::bare(FenceErrorKind::Source, "the victim has ended"));
    }
    Ok(Facts {
        limits: read("limits")?,
        processors: line("Cpus_allowed:"),
        tracer: line("TracerPid:"),
        priority: rustix::process::getpriority_process(rustix::process::Pid::from_raw(pid))
            .step("getpriority")?,
        disk_priority: disk_priority(pid).unwrap_or(-1),
    })
}

fn disk_priority(pid: i32) -> Result<i64, Denial> {
    /// `IOPRIO_WHO_PROCESS` of linux/ioprio.h.
    const PROCESS: usize = 1;
    // SAFETY: numbers only.
    unsafe { raw::call(libc::SYS_ioprio_get, [PROCESS, raw::signed(pid)]) }
}
