//! The end of a fence, shown by the kernel: the pidfd of PID 1 is readable only when everything is gone.

use std::os::fd::{AsFd, OwnedFd};
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};
use stockade_core::survey::Rung;

use crate::fence::Fence;
use crate::frames::{Received, wait_readable};
use crate::group::{Group, GroupEnd};
use crate::message::{Report, Request};
use crate::role::ProcessStat;
use crate::stat_line;
use crate::sys::slow_ends;

/// How long a dropped fence is waited for. Killed processes end in a few milliseconds unless they are stuck in the kernel.
const DROP_WAIT: Duration = Duration::from_secs(2);
/// Most stuck processes that are named.
const MAX_STUCK: usize = 100;

/// How long bubblewrap may take to end after PID 1.
const REAP_WAIT: Duration = Duration::from_secs(1);

/// How a fence ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeEnd {
    /// Whether every process is gone.
    pub gone: bool,
    /// Processes that were still running when the end was asked for; `None`: PID 1 was gone already or did not say.
    pub killed: Option<u32>,
    /// How long it took.
    pub elapsed: Duration,
    /// Processes that were killed and are still there, at most 100: the kernel does not let them end yet.
    pub stuck: Vec<Stuck>,
    /// How its control groups ended; `None`: there were none.
    pub group: Option<GroupEnd>,
}

/// A process that was killed and has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// Its id, as the caller sees it.
    pub pid: i32,
    /// Its name, which it can choose itself.
    pub name: String,
    /// The letter of its state.
    pub state: char,
}

impl Fence {
    /// Ends everything in the fence, and waits at most that long until it is gone.
    pub fn close(mut self, wait: Duration) -> TreeEnd {
        let start = Instant::now();
        let killed = self.ask_to_close(start + wait);
        let gone = self.wait_until_gone(start + wait);
        let stuck = if gone { Vec::new() } else { stuck_below(self.pid.as_raw_pid()) };
        // All that can be done for what is stuck has been done: it is not waited for once more.
        self.reaped = true;
        let elapsed = start.elapsed();
        let group = self.group.take().map(Group::end);
        TreeEnd { gone, killed, elapsed, stuck, group }
    }

    fn ask_to_close(&mut self, end: Instant) -> Option<u32> {
        if self.ended || self.frames.send(&Request::Close, &[]).is_err() {
            return None;
        }
        loop {
            match self.frames.wait::<Report>(end) {
                Ok(Received::Message(Report::Closing { left }, _)) => return Some(left),
                Ok(Received::Message(..)) => {}
                Ok(Received::Nothing | Received::End) | Err(_) => return None,
            }
        }
    }

    /// Waits for the end of PID 1, and kills it when it does not come by itself.
    fn wait_until_gone(&mut self, end: Instant) -> bool {
        self.ended = true;
        if !is_readable(&self.pidfd, end) {
            // Gone already is as good as killed.
            let _gone = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
            if let Some(group) = &self.group {
                group.kill();
            }
            if !is_readable(&self.pidfd, Instant::now() + DROP_WAIT) {
                return false;
            }
        }
        reap(&self.pidfd);
        self.reap_stage_a();
        slow_ends::collect();
        self.reaped = true;
        true
    }

    /// Stage A ended long ago, or is the bubblewrap that waits for PID 1. It is reaped only now, because its end takes
    /// mounts down and that takes the kernel time that nobody has to wait for.
    fn reap_stage_a(&mut self) {
        if let Some(mut stage_a) = self.stage_a.take() {
            if self.rung == Rung::Bs {
                let_it_end(&stage_a);
            }
            // Gone already is as good as killed.
            let _gone = stage_a.kill();
            let _reaped = stage_a.wait();
        }
    }
}

/// bubblewrap takes the status of PID 1 and ends by itself. One that was stopped does not.
fn let_it_end(bubblewrap: &Child) {
    let pid = i32::try_from(bubblewrap.id()).ok().and_then(Pid::from_raw);
    if let Some(Ok(pidfd)) = pid.map(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty())) {
        is_readable(&pidfd, Instant::now() + REAP_WAIT);
    }
}

impl Drop for Fence {
    fn drop(&mut self) {
        if self.reaped {
            return;
        }
        // Gone already is as good as killed.
        let _gone = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
        self.wait_until_gone(Instant::now() + DROP_WAIT);
    }
}

/// What is left below a process that cannot end before they do.
fn stuck_below(pid: i32) -> Vec<Stuck> {
    // What cannot be listed cannot be named.
    let pids = stat_line::pids().unwrap_or_default();
    let all: Vec<ProcessStat> = pids.into_iter().filter_map(stat_line::of).collect();
    let below = stat_line::below(pid, &all);
    let alive = |p: &&ProcessStat| below.contains(&p.pid) && !matches!(p.state, 'Z' | 'X');
    let stuck = |p: &ProcessStat| Stuck { pid: p.pid, name: p.comm.clone(), state: p.state };
    all.iter().filter(alive).take(MAX_STUCK).map(stuck).collect()
}

fn is_readable(pidfd: &OwnedFd, end: Instant) -> bool {
    loop {
        let left = end.saturating_duration_since(Instant::now());
        match has_ended(pidfd) {
            true => return true,
            false if left.is_zero() => return false,
            false => {}
        }
        if wait_readable(pidfd.as_fd(), left).is_err() {
            return false;
        }
    }
}

/// Whether PID 1 has ended. Asked of the descriptor and not by waiting: PID 1 may be the child of somebody else.
fn has_ended(pidfd: &OwnedFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(rustix::event::poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&now)), Ok(1))
}

/// Takes the status of PID 1, so that no zombie stays; the child of somebody else is left to them.
pub(super) fn reap(pidfd: &OwnedFd) {
    loop {
        match rustix::process::waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED) {
            Err(Errno::INTR) => {}
            Ok(_) | Err(_) => return,
        }
    }
}
