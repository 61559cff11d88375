//! A trial: one child that takes real steps, reports each by one byte through a pipe, and ends.
//!
//! The child is made by clone(2) without exec. Between that call and its end it makes system calls only: no
//! allocation, no lock, no formatting. The parent waits for at most [`LIMIT`] and always reaps.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, Signal};
use stockade_core::survey::Refused;

use crate::error::FenceError;
use crate::sys::process::{self, Wait};
use crate::sys::slow_ends;

use super::refused;
use super::steps::Step;

/// The longest that one trial may take; measured trials take less than 8 ms.
const LIMIT: Duration = Duration::from_secs(5);

/// The byte that ends the report of a child that took every step.
const STOOD: u8 = 0xFE;
/// The byte before the error number of the step begun last.
const REFUSED: u8 = 0xFF;

/// Why a step was not taken: an error number, 0 where the step was taken but had no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fault(pub(super) i32);

impl Fault {
    /// The step was taken and changed nothing.
    pub(super) const NO_EFFECT: Self = Self(0);
}

impl From<Errno> for Fault {
    fn from(errno: Errno) -> Self {
        Self(errno.raw_os_error())
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or(0))
    }
}

impl From<FenceError> for Fault {
    fn from(error: FenceError) -> Self {
        Self(error.errno())
    }
}

/// The step has to fail with this error.
pub(super) fn expect_error<T>(result: &Result<T, Errno>, expected: Errno) -> Result<(), Fault> {
    match result {
        Err(errno) if *errno == expected => Ok(()),
        Err(errno) => Err((*errno).into()),
        Ok(_) => Err(Fault::NO_EFFECT),
    }
}

/// The child's end of the report.
pub(super) struct Reporter {
    pipe: OwnedFd,
}

impl Reporter {
    /// Says which step comes next, then takes it.
    pub(super) fn step<T, E: Into<Fault>>(
        &self,
        step: Step,
        action: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, Fault> {
        self.send(&[step as u8]);
        action().map_err(Into::into)
    }

    /// A report that cannot be written is noticed by the parent as one that is missing.
    fn send(&self, bytes: &[u8]) {
        let _written = rustix::io::retry_on_intr(|| rustix::io::write(&self.pipe, bytes));
    }
}

/// How a trial ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Every step was taken.
    Stood,
    /// The step was refused with the error number; 0: it was taken but had no effect.
    Refused(Step, i32),
    /// The child was killed by a signal while it took the step.
    Killed(Step, i32),
    /// The child had not ended after [`LIMIT`] and was killed.
    Stuck(Step),
}

impl Ending {
    /// The refusal as reported; `None`: the trial stood.
    pub(super) fn refusal(self) -> Option<Refused> {
        match self {
            Self::Stood => None,
            Self::Refused(step, errno) => Some(refused(step.name(), errno)),
            Self::Killed(step, signal) => {
                Some(refused(format!("{} (killed by signal {signal})", step.name()), 0))
            }
            Self::Stuck(step) => Some(refused(step.name(), libc::ETIMEDOUT)),
        }
    }
}

/// What a trial reported.
#[derive(Debug)]
pub(super) struct Report {
    /// How it ended.
    pub(super) ending: Ending,
    /// Every step that was begun, in order.
    pub(super) begun: Vec<Step>,
}

/// A child that waits for the word to start, so that its parent can prepare it (write its id mappings).
pub(super) struct Waiting {
    pid: Pid,
    report: OwnedFd,
    go: OwnedFd,
}

/// Takes the steps of `body` in a plain child.
pub(super) fn in_child(body: impl FnOnce(&Reporter) -> Result<(), Fault>) -> Report {
    match prepare(0, body) {
        Ok(child) => child.finish(),
        Err(error) => {
            Report { ending: Ending::Refused(Step::Start, Fault::from(error).0), begun: Vec::new() }
        }
    }
}

/// Makes a child in new namespaces (`CLONE_NEW*` flags) that takes the steps of `body` once it is released.
pub(super) fn prepare(
    namespaces: libc::c_int,
    body: impl FnOnce(&Reporter) -> Result<(), Fault>,
) -> io::Result<Waiting> {
    let (report, report_in_child) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let (go_in_child, go) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let Some(pid) = clone_process(namespaces)? else {
        drop(go);
        drop(report);
        child(&Reporter { pipe: report_in_child }, &go_in_child, body)
    };
    Ok(Waiting { pid, report, go })
}

/// The whole life of the child.
fn child(reporter: &Reporter, go: &OwnedFd, body: impl FnOnce(&Reporter) -> Result<(), Fault>) -> ! {
    let mut word = [0_u8; 1];
    let released = rustix::io::retry_on_intr(|| rustix::io::read(go, &mut word));
    if released == Ok(1) {
        match body(reporter) {
            Ok(()) => reporter.send(&[STOOD]),
            Err(Fault(errno)) => {
                let [a, b, c, d] = errno.to_le_bytes();
                reporter.send(&[REFUSED, a, b, c, d]);
            }
        }
    }
    process::exit_now(0)
}

impl Waiting {
    /// The child's process id in this namespace.
    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// Ends the child before it took any step, because its parent was refused one.
    pub(super) fn give_up(self, step: Step, errno: i32) -> Refused {
        drop(self.go);
        // The child ends by itself: the word it waits for cannot come any more.
        let _ended = process::reap(Some(self.pid), Wait::Block);
        refused(step.name(), errno)
    }

    /// Releases the child.
    pub(super) fn release(self) -> Released {
        let _written = rustix::io::retry_on_intr(|| rustix::io::write(&self.go, b"g"));
        Released { pid: self.pid, report: self.report, deadline: Instant::now() + LIMIT }
    }

    /// Releases the child and waits for its end.
    pub(super) fn finish(self) -> Report {
        self.release().finish()
    }
}

/// A child that takes its steps.
#[derive(Debug)]
pub(super) struct Released {
    pid: Pid,
    report: OwnedFd,
    deadline: Instant,
}

impl Released {
    /// Leaves it to end by itself, where nobody wants its report any more.
    pub(super) fn abandon(self) {
        slow_ends::leave(self.pid);
    }

    /// Waits for its end.
    pub(super) fn finish(self) -> Report {
        let bytes = read_until_end(&self.report, self.deadline);
        if bytes.is_none() {
            let _gone = rustix::process::kill_process(self.pid, Signal::KILL);
        }
        let (begun, last_word) = parse(bytes.as_deref().unwrap_or_default());
        let ended = if last_word.is_some() {
            slow_ends::leave(self.pid);
            None
        } else {
            // An error: somebody else reaped it (the caller ignores SIGCHLD).
            process::reap(Some(self.pid), Wait::Block).ok().flatten()
        };
        let at = begun.last().copied().unwrap_or(Step::Start);
        let ending = match (bytes, last_word) {
            (None, _) => Ending::Stuck(at),
            (Some(_), Some(LastWord::Stood)) => Ending::Stood,
            (Some(_), Some(LastWord::Refused(errno))) => Ending::Refused(at, errno),
            (Some(_), None) => Ending::Killed(at, ended.and_then(|e| e.signal).unwrap_or(0)),
        };
        Report { ending, begun }
    }
}

/// What a child said last.
enum LastWord {
    Stood,
    Refused(i32),
}

/// The steps begun, and the last word if the child lived long enough to say it.
fn parse(bytes: &[u8]) -> (Vec<Step>, Option<LastWord>) {
    match bytes {
        [begun @ .., STOOD] => (steps(begun), Some(LastWord::Stood)),
        [begun @ .., REFUSED, a, b, c, d] => {
            (steps(begun), Some(LastWord::Refused(i32::from_le_bytes([*a, *b, *c, *d]))))
        }
        begun => (steps(begun), None),
    }
}

fn steps(bytes: &[u8]) -> Vec<Step> {
    bytes.iter().copied().map(Step::from_byte).collect()
}

/// Everything written until the last writer is gone; `None`: that did not happen before the deadline.
fn read_until_end(pipe: &OwnedFd, deadline: Instant) -> Option<Vec<u8>> {
    // A trial has fewer steps than this.
    let mut bytes = Vec::with_capacity(256);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).ok()?;
        // Only the end is waited for: a wake-up for each step would cost more than the steps. A trial's report is far
        // shorter than a pipe holds.
        match rustix::event::poll(&mut [PollFd::new(pipe, PollFlags::empty())], Some(&timeout)) {
            Ok(0) => return None,
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(_) => return Some(bytes),
        }
        let mut chunk = [0_u8; 64];
        match rustix::io::read(pipe.as_fd(), &mut chunk) {
            Ok(0) => return Some(bytes),
            Ok(count) if bytes.len() < 4096 => bytes.extend(chunk.iter().take(count)),
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return Some(bytes),
        }
    }
}

/// clone(2), not clone3: container filters answer clone3 with ENOSYS, which would hide the real cause.
///
/// Returns the child's process id, or `None` in the child.
fn clone_process(namespaces: libc::c_int) -> io::Result<Option<Pid>> {
    let flags = i64::from(namespaces | libc::SIGCHLD | libc::CLONE_CHILD_SETTID);
    let mut own_id: libc::c_int = 0;
    let at = std::ptr::from_mut(&mut own_id);
    // SAFETY: without CLONE_VM and with a null stack this is fork(2): the child goes on with a copy of this
    // stack and memory. It makes system calls only until it ends, so locks held by other threads do not matter. `own_id`
    // is writable for the kernel.
    let raw = unsafe { libc::syscall(libc::SYS_clone, flags, 0_usize, 0_usize, at, 0_usize) };
    Ok(process::parents_side(raw, at)?)
}

#[cfg(test)]
mod tests {
    use super::{Ending, Fault, Step, in_child};

    #[test]
    fn a_child_reports_the_step_it_was_refused_and_the_error_number() {
        let report = in_child(|r| {
            r.step(Step::NoNewPrivs, || Ok::<(), Fault>(()))?;
            r.step(Step::MountProc, || Err::<(), _>(Fault(libc::ENOSPC)))
        });
        assert_eq!(report.ending, Ending::Refused(Step::MountProc, libc::ENOSPC));
        assert_eq!(report.begun, [Step::NoNewPrivs, Step::MountProc]);
    }

    #[test]
    fn a_child_that_is_killed_is_a_refusal_that_names_the_step_and_the_signal() {
        let report = in_child(|r| {
            r.step(Step::SeccompInstall, || {
                let me = rustix::process::getpid();
                rustix::process::kill_process(me, rustix::process::Signal::KILL)
            })
        });
        assert_eq!(report.ending, Ending::Killed(Step::SeccompInstall, libc::SIGKILL));
        let refusal = report.ending.refusal().unwrap();
        assert_eq!(refusal.step, "seccomp(SET_MODE_FILTER) (killed by signal 9)");
    }

    #[test]
    fn a_child_that_takes_every_step_stood() {
        assert_eq!(in_child(|r| r.step(Step::NoNewPrivs, || Ok::<(), Fault>(()))).ending, Ending::Stood);
    }
}
