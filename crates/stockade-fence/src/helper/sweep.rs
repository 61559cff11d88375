//! Ends everything in the place but PID 1.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::Pid;

use crate::sys::process::{self, Ended, Wait};

/// How long a killed process may take to end: longer means that it is stuck in the kernel.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a sweep met.
#[derive(Debug, Default)]
pub(super) struct Swept {
    /// Everything that ended.
    pub(super) ended: Vec<Ended>,
    /// Whether something has not ended in time.
    pub(super) incomplete: bool,
}

/// Kills everything and reaps until nothing is left. One signal is enough: a fork of a killed process fails.
pub(super) fn sweep(control: BorrowedFd<'_>, children: BorrowedFd<'_>) -> Swept {
    let mut swept = Swept::default();
    // ESRCH: nobody is there.
    if process::signal_all(libc::SIGKILL) == Err(Errno::SRCH) {
        drain(children);
        return swept;
    }
    let end = Instant::now() + PATIENCE;
    loop {
        drain(children);
        loop {
            match process::reap(None, Wait::Poll) {
                Ok(Some(ended)) => swept.ended.push(ended),
                Ok(None) => break,
                // ECHILD: nobody is left. PID 1 is the parent of every orphan, and the others' parents are dead too.
                Err(_) => return swept,
            }
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            swept.incomplete = true;
            return swept;
        }
        wait(control, children, left);
    }
}

fn wait(control: BorrowedFd<'_>, children: BorrowedFd<'_>, left: Duration) {
    let timeout = Timespec::try_from(left).ok();
    let mut fds = [
        PollFd::from_borrowed_fd(control, PollFlags::empty()),
        PollFd::from_borrowed_fd(children, PollFlags::IN),
    ];
    let ready = rustix::event::poll(&mut fds, timeout.as_ref());
    let [control, _] = fds;
    if ready.is_ok() && control.revents().contains(PollFlags::HUP) {
        // The runner is gone: the kernel ends the rest.
        process::exit_now(0);
    }
}

/// Forgets the signals that have come: whoever reads them reaps everything there is.
pub(super) fn drain(children: BorrowedFd<'_>) {
    let mut infos = [0; 1024];
    while rustix::io::read(children.as_fd(), &mut infos).is_ok_and(|n| n > 0) {}
}

/// The end of one process among those that were swept.
pub(super) fn end_of(pid: Pid, ended: &[Ended]) -> Option<&Ended> {
    ended.iter().find(|e| e.pid == pid)
}
