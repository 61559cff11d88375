//! How this executable is asked to take probes: as the probe role inside, or as the careless caller of a fence.
//!
//! The probe role is Stockade's own executable, started inside the fence with one fixed argument.

use std::io::{Read, Write};
use std::process::ExitCode;

use super::fenced;
use super::fixture::FixtureFacts;
use super::runner::run;

/// The first argument by which an executable of ours is asked to be the probe role. Further arguments name probes.
pub const ARGUMENT: &str = "stockade-probes";

/// The longest description of a fixture.
pub(super) const FACTS_LIMIT: u64 = 64 * 1024;

/// Runs the probes and says how that ended, if this process was started for them: [`FixtureFacts`] as JSON on
/// standard input, one [`Observation`](super::Observation) as JSON on each line of standard output. The careless caller
/// that [`Attempt::inside`](super::Attempt::inside) starts comes in here, too.
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
    if first != ARGUMENT {
        return None;
    }
    let only: Vec<String> = arguments.map(|id| id.to_string_lossy().into_owned()).collect();
    Some(match observe_all(&only) {
        Ok(()) => ExitCode::SUCCESS,
        // The caller misses lines; there is nobody here to explain it to.
        Err(_) => ExitCode::FAILURE,
    })
}

fn observe_all(only: &[String]) -> std::io::Result<()> {
    let mut text = Vec::new();
    std::io::stdin().lock().take(FACTS_LIMIT).read_to_end(&mut text)?;
    let facts: FixtureFacts = serde_json::from_slice(&text)?;
    let only = if only.is_empty() { None } else { Some(only) };
    let mut output = std::io::stdout().lock();
    for observation in run(&facts, only) {
        serde_json::to_writer(&mut output, &observation)?;
        output.write_all(b"\n")?;
        output.flush()?;
    }
    Ok(())
}
