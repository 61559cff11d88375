//! Has the probes taken, outside or in a fence, by a process that was started carelessly.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use crate::error::{FenceError, FenceErrorKind, Step};

use super::entry::ARGUMENT;
use super::fenced::{CALLER_ARGUMENT, FencedRequest, Said};
use super::host::Host;

/// All probes take one to two seconds. What takes longer than this hangs.
const LIMIT: Duration = Duration::from_secs(60);

/// Probes that are being taken. Dropped, no process of it is left.
#[derive(Debug)]
pub struct Attempt {
    child: Child,
    lines: BufReader<ChildStdout>,
    reads: fn(&str) -> Option<Said>,
    until: Instant,
}

/// What is heard of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// One line.
    Said(Said),
    /// Nothing yet.
    Nothing,
    /// Nothing comes any more.
    End,
}

impl Attempt {
    /// Takes them outside any fence: the control. `program` calls [`enter_if_asked`](super::enter_if_asked).
    pub fn outside(host: &Host, program: &Path) -> Result<Self, FenceError> {
        let mut command = program_outside(program);
        command.arg(ARGUMENT);
        Self::by(host, command)
    }

    /// Takes them in a fence.
    pub fn inside(host: &Host, program: &Path, request: &FencedRequest) -> Result<Self, FenceError> {
        let request = serde_json::to_string(request)
            .map_err(|_| FenceError::bare(FenceErrorKind::Request, "a path is not text"))?;
        let mut command = program_outside(program);
        command.args([CALLER_ARGUMENT, &request]);
        Self::start(host, command, |line| serde_json::from_str(line).ok())
    }

    /// Takes them by a command of the caller's own, which starts the probe role in whatever it wants to be tried.
    pub fn by(host: &Host, command: Command) -> Result<Self, FenceError> {
        Self::start(host, command, |line| serde_json::from_str(line).ok().map(Said::Observed))
    }

    fn start(host: &Host, mut command: Command, reads: fn(&str) -> Option<Said>) -> Result<Self, FenceError> {
        host.make_careless(&mut command)?;
        // A Ctrl-C is for whoever waits for the attempt, and ends it.
        command.process_group(0);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().step("spawn")?;
        let Some(stdout) = child.stdout.take() else {
            return Err(FenceError::bare(FenceErrorKind::Helper, "the prober has no output"));
        };
        Ok(Self { child, lines: BufReader::new(stdout), reads, until: Instant::now() + LIMIT })
    }

    /// Waits for what comes next, at most that long.
    pub fn next(&mut self, patience: Duration) -> Result<Heard, FenceError> {
        loop {
            if self.lines.buffer().is_empty() && !self.is_readable(patience)? {
                return Ok(Heard::Nothing);
            }
            let mut line = String::new();
            if self.lines.read_line(&mut line).step("read")? == 0 {
                return Ok(Heard::End);
            }
            // A line of somebody else's is a probe that was not taken, which the caller misses.
            match (self.reads)(&line) {
                Some(Said::Failed(error)) => return Err(error),
                Some(said) => return Ok(Heard::Said(said)),
                None => {}
            }
        }
    }

    fn is_readable(&self, patience: Duration) -> Result<bool, FenceError> {
        let timeout = Timespec::try_from(patience).ok();
        let mut output = [PollFd::new(self.lines.get_ref(), PollFlags::IN)];
        let ready = match rustix::event::poll(&mut output, timeout.as_ref()) {
            Ok(count) => count > 0,
            Err(Errno::INTR) => false,
            Err(error) => return Err(error).step("poll"),
        };
        if !ready && Instant::now() >= self.until {
            return Err(FenceError::new(FenceErrorKind::Helper, "wait for the probes", Errno::TIMEDOUT));
        }
        Ok(ready)
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        // Ended already is as good. Its fence ends with it.
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

#[expect(clippy::disallowed_methods, reason = "this program itself, as the careless caller of a fence")]
fn program_outside(program: &Path) -> Command {
    Command::new(program)
}
