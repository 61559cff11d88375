//! How this executable is asked to take probes: as the probe role inside, or as the careless caller of a fence.
//!
//! The probe role is Stockade's own executable, started inside the fence with one fixed argument.

use std::io::{Read, Write};
use std::process::ExitCode;

use super::fenced;
use super::fixture::FixtureFacts;
use super::runner::{Observation, run};
use super::table::taken_by_tool;

/// The first argument by which an executable of ours is asked to be the probe role. Further arguments name probes.
pub const ARGUMENT: &str = "stockade-probes";

/// The first argument by which an executable of ours is asked to take the probes as a tool of a real agent: those that say
/// something there, one [`Observation::brief`] on each line.
pub const TOOL_ARGUMENT: &str = "stockade-probes-by-tool";

/// The longest description of a fixture.
pub(super) const FACTS_LIMIT: u64 = 64 * 1024;

/// Runs the probes and says how that ended, if this process was started for them: [`FixtureFacts`] as JSON on
/// standard input, one [`Observation`] as JSON on each line of standard output. The careless caller that
/// [`Attempt::inside`](super::Attempt::inside) starts comes in here, too.
///
/// Inside a fence it is started as an agent is, with [`sockets`](crate::stdio::sockets) as its streams, because some
/// probes open the streams of the process that started them.
///
/// Called first in main, while the process has one thread. `None`: this process has another job.
#[must_use]
pub fn enter_if_asked() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let first = arguments.next()?;
    if first == fenced::CALLER_ARGUMENT {
        return Some(fenced::call(arguments));
    }
    let taken = if first == ARGUMENT {
        let only: Vec<String> = arguments.map(|id| id.to_string_lossy().into_owned()).collect();
        let only = if only.is_empty() { None } else { Some(only) };
        observe_all(only.as_deref(), |observation| Ok(serde_json::to_string(observation)?))
    } else if first == TOOL_ARGUMENT {
        let only: Vec<String> = taken_by_tool().map(|probe| probe.id.to_owned()).collect();
        observe_all(Some(&only), |observation| Ok(observation.brief()))
    } else {
        return None;
    };
    Some(match taken {
        Ok(()) => ExitCode::SUCCESS,
        // The caller misses lines; there is nobody here to explain it to.
        Err(_) => ExitCode::FAILURE,
    })
}

fn observe_all(
    only: Option<&[String]>,
    line: fn(&Observation) -> std::io::Result<String>,
) -> std::io::Result<()> {
    let mut text = Vec::new();
    std::io::stdin().lock().take(FACTS_LIMIT).read_to_end(&mut text)?;
    let facts: FixtureFacts = serde_json::from_slice(&text)?;
    let mut output = std::io::stdout().lock();
    for observation in run(&facts, only) {
        writeln!(output, "{}", line(&observation)?)?;
        output.flush()?;
    }
    Ok(())
}
