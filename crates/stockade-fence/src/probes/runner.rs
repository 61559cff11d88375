//! Takes each probe in a child of its own, so that one which is killed or hangs is an observation and not the end.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};

use crate::errno::errno_name;
use crate::sys::process::{self, Ended, Side, Wait};

use super::fixture::FixtureFacts;
use super::table::{PROBES, Probe, probe};

/// How long a probe may take: longer than it waits for an answer outside.
const LIMIT: Duration = Duration::from_secs(10);

/// What was seen when a probe's action was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observed {
    /// It worked.
    Allowed,
    /// It failed with this error number.
    Denied(i32),
    /// The filter killed whoever tried (SIGSYS).
    KilledBySeccomp,
    /// Another signal ended it, which shows nothing.
    Killed(i32),
    /// It had not ended in time, which shows nothing.
    TimedOut,
    /// It could not be taken for a reason of its own, which shows nothing.
    Broken,
}

impl Observed {
    /// The text in reports: `allowed`, the name of an error number, or what else happened.
    pub fn text(&self) -> String {
        match self {
            Self::Allowed => "allowed".to_owned(),
            Self::Denied(errno) => match errno_name(*errno) {
                "EUNKNOWN" => format!("errno {errno}"),
                name => name.to_owned(),
            },
            Self::KilledBySeccomp => "killed by seccomp".to_owned(),
            Self::Killed(signal) => format!("killed by signal {signal}"),
            Self::TimedOut => "timed out".to_owned(),
            Self::Broken => "broken".to_owned(),
        }
    }

    /// Reads what [`Observed::text`] wrote.
    pub fn from_text(text: &str) -> Option<Self> {
        match text {
            "allowed" => Some(Self::Allowed),
            "killed by seccomp" => Some(Self::KilledBySeccomp),
            "timed out" => Some(Self::TimedOut),
            "broken" => Some(Self::Broken),
            // What `errno_name` says of numbers that have no name: `text` writes those as numbers.
            "EUNKNOWN" => None,
            _ => {
                if let Some(number) = text.strip_prefix("errno ") {
                    return number.parse().ok().map(Self::Denied);
                }
                if let Some(number) = text.strip_prefix("killed by signal ") {
                    return number.parse().ok().map(Self::Killed);
                }
                (1..=133).find(|number| errno_name(*number) == text).map(Self::Denied)
            }
        }
    }
}

/// One probe, taken once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Observation {
    /// The probe.
    pub id: String,
    /// What was seen, as [`Observed::text`] writes it.
    pub observed: String,
    /// How far it came, where there is more to say.
    pub detail: String,
}

impl Observation {
    /// What was seen; text that nobody wrote is [`Observed::Broken`].
    pub fn seen(&self) -> Observed {
        Observed::from_text(&self.observed).unwrap_or(Observed::Broken)
    }

    /// In one short line, for whoever may cut what is long: `ID=OBSERVED`.
    pub fn brief(&self) -> String {
        format!("{}={}", self.id, self.observed)
    }

    /// Reads what [`Observation::brief`] wrote. `None`: the line says something else.
    pub fn from_brief(line: &str) -> Option<Self> {
        let (id, observed) = line.trim().split_once('=')?;
        probe(id)?;
        Observed::from_text(observed)?;
        Some(Self { id: id.to_owned(), observed: observed.to_owned(), detail: String::new() })
    }
}

/// Takes the probes that are named, or every one, each when its observation is asked for.
///
/// Forks: the caller has one thread.
pub fn run<'f>(
    fixture: &'f FixtureFacts,
    only: Option<&'f [String]>,
) -> impl Iterator<Item = Observation> + 'f {
    let wanted = move |probe: &&Probe| match only {
        Some(ids) => ids.iter().any(|id| id == probe.id),
        None => true,
    };
    PROBES.iter().filter(wanted).map(|probe| observe(probe, fixture))
}

fn observe(probe: &Probe, fixture: &FixtureFacts) -> Observation {
    let (seen, detail) =
        attempt(probe, fixture).unwrap_or_else(|error| (Observed::Broken, error.to_string()));
    Observation { id: probe.id.to_owned(), observed: seen.text(), detail }
}

fn attempt(probe: &Probe, fixture: &FixtureFacts) -> Result<(Observed, String), crate::FenceError> {
    use crate::error::Step;
    let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).step("pipe2")?;
    // SAFETY: the caller has one thread, and the child ends by `exit_now`.
    let child = match unsafe { process::fork() }? {
        Side::Child => {
            drop(reader);
            take(probe, fixture, writer)
        }
        Side::Parent(child) => child,
    };
    drop(writer);
    let answer = read_line(reader, Instant::now() + LIMIT);
    end_group(child);
    let ended = process::reap(Some(child), Wait::Block).step("wait4")?;
    Ok(judge(answer, ended))
}

/// The whole life of the child: the action, one line, the end.
fn take(probe: &Probe, fixture: &FixtureFacts, writer: OwnedFd) -> ! {
    // A group of its own, so that whatever it starts can be ended with it.
    let _grouped = rustix::process::setpgid(None, None);
    // A panic must not unwind into the parent's code, of which this process has a copy.
    let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| (probe.run)(fixture)));
    let line = match outcome {
        Ok(Ok(())) => "allowed\n".to_owned(),
        Ok(Err(denial)) => format!("{} {}\n", denial.errno, denial.detail.replace('\n', " ")),
        Err(_) => "0 panicked\n".to_owned(),
    };
    // An answer that is not heard is one that is missing.
    let _written = File::from(writer).write_all(line.as_bytes());
    process::exit_now(0)
}

/// Kills the probe and what it started. Its answer is in, or its time is over.
fn end_group(child: Pid) {
    let _gone = rustix::process::kill_process_group(child, Signal::KILL);
    let _gone = process::signal(child, libc::SIGKILL);
}

/// What the answer and the end together show.
fn judge(answer: Answer, ended: Option<Ended>) -> (Observed, String) {
    match answer {
        Answer::Line(line) if line == "allowed" => (Observed::Allowed, String::new()),
        Answer::Line(line) => {
            let (errno, detail) = line.split_once(' ').unwrap_or((&line, ""));
            match errno.parse() {
                Ok(0) | Err(_) => (Observed::Broken, detail.to_owned()),
                Ok(errno) => (Observed::Denied(errno), detail.to_owned()),
            }
        }
        Answer::TimedOut => (Observed::TimedOut, String::new()),
        Answer::Missing => match ended.and_then(|ended| ended.signal) {
            Some(libc::SIGSYS) => (Observed::KilledBySeccomp, String::new()),
            Some(signal) => (Observed::Killed(signal), String::new()),
            None => (Observed::Broken, "ended without an answer".to_owned()),
        },
    }
}

enum Answer {
    Line(String),
    Missing,
    TimedOut,
}

/// Reads one line. Not until the end: something the probe started may hold the pipe open.
fn read_line(reader: OwnedFd, deadline: Instant) -> Answer {
    let mut file = File::from(reader);
    let mut bytes = Vec::new();
    while bytes.len() < 4096 {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).ok();
        match rustix::event::poll(
            &mut [PollFd::from_borrowed_fd(file.as_fd(), PollFlags::IN)],
            timeout.as_ref(),
        ) {
            Ok(0) => return Answer::TimedOut,
            Err(rustix::io::Errno::INTR) => continue,
            Ok(_) | Err(_) => {}
        }
        let mut chunk = [0_u8; 512];
        match file.read(&mut chunk) {
            Ok(count) if count > 0 => bytes.extend(chunk.iter().take(count)),
            Ok(_) | Err(_) => return Answer::Missing,
        }
        if let Some(line) = bytes.strip_suffix(b"\n") {
            return Answer::Line(String::from_utf8_lossy(line).into_owned());
        }
    }
    Answer::Missing
}

#[cfg(test)]
mod tests {
    use super::{Observation, Observed};

    #[test]
    fn every_observation_survives_the_report() {
        let mut all = vec![
            Observed::Allowed,
            Observed::KilledBySeccomp,
            Observed::Killed(9),
            Observed::TimedOut,
            Observed::Broken,
            Observed::Denied(4095),
        ];
        all.extend((1..=40).map(Observed::Denied));
        for observed in all {
            assert_eq!(Observed::from_text(&observed.text()), Some(observed));
        }
        assert_eq!(Observed::from_text("EUNKNOWN"), None);
    }

    #[test]
    fn a_brief_line_is_read_as_it_was_written_and_nothing_else_is() {
        let seen = |observed: Observed| Observation {
            id: "W01".to_owned(),
            observed: observed.text(),
            detail: String::new(),
        };
        for observed in [Observed::Allowed, Observed::KilledBySeccomp, Observed::Denied(13)] {
            let observation = seen(observed);
            assert_eq!(Observation::from_brief(&format!(" {}\r", observation.brief())), Some(observation));
        }
        for other in ["", "W01", "W01=", "W01=maybe", "W99=allowed", "status=0", "see W01=allowed"] {
            assert_eq!(Observation::from_brief(other), None, "{other}");
        }
    }
}
