//! The careless caller: a process that secrets were left to, and that builds a fence and has the probes taken in it.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::ExitCode;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{FenceError, FenceErrorKind, Step};
use crate::fence::Fence;
use crate::role::{Role, SpawnLimits, SpawnRequest};
use crate::spec::{FenceSpec, OWN_BINARY};
use crate::stdio;

use super::entry::{ARGUMENT, FACTS_LIMIT};
use super::fixture::FixtureFacts;
use super::runner::Observation;

/// The first argument by which an executable of ours is asked to be the careless caller. The second is a
/// [`FencedRequest`].
pub(super) const CALLER_ARGUMENT: &str = "stockade-probes-fenced";

/// How long everything inside may take to end. It takes milliseconds, or is stuck in the kernel.
const END: Duration = Duration::from_secs(5);

/// A fence to take the probes in.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FencedRequest {
    /// The fence. Its own binary has to be bound.
    pub spec: FenceSpec,
    /// The limits of the probe role.
    pub limits: SpawnLimits,
}

/// What the careless caller says, one on each line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Said {
    /// The fence stands; whether the kernel limits its processes.
    Built {
        /// Whether it does.
        limits_processes: bool,
    },
    /// One probe was taken.
    Observed(Observation),
    /// The fence is closed; whether every process in it is gone.
    Closed {
        /// Whether they are.
        gone: bool,
    },
    /// It could not be built, or its role not started.
    Failed(FenceError),
}

/// The whole life of the careless caller. Facts come on standard input, as for the probe role.
pub(super) fn call(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let text = arguments.next().unwrap_or_default();
    let outcome = serde_json::from_slice(text.as_encoded_bytes())
        .map_err(|_| FenceError::bare(FenceErrorKind::Request, "the request is malformed"))
        .and_then(|request: FencedRequest| take_inside(&request));
    match outcome.or_else(|error| say(&Said::Failed(error)).step("write")) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader has gone: there is nobody to tell.
        Err(_) => ExitCode::FAILURE,
    }
}

fn take_inside(request: &FencedRequest) -> Result<(), FenceError> {
    let mut text = Vec::new();
    io::stdin().lock().take(FACTS_LIMIT).read_to_end(&mut text).step("read")?;
    let facts: FixtureFacts = serde_json::from_slice(&text)
        .map_err(|_| FenceError::bare(FenceErrorKind::Request, "the facts are malformed"))?;
    let facts = facts.inside();
    let mut fence = Fence::build(&request.spec)?;
    say(&Said::Built { limits_processes: fence.facts().max_processes.is_some() }).step("write")?;
    let (streams, ends) = stdio::sockets()?;
    let role = SpawnRequest {
        role: Role::Probe,
        argv: vec![OWN_BINARY.to_owned(), ARGUMENT.to_owned()],
        env: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
        cwd: facts.workspace.clone(),
        limits: request.limits,
    };
    fence.spawn(&role, streams)?;
    let mut stdin = File::from(ends.stdin);
    let facts = serde_json::to_vec(&facts)
        .map_err(|_| FenceError::bare(FenceErrorKind::Request, "a fixture path is not text"))?;
    stdin.write_all(&facts).step("write")?;
    drop(stdin);
    for line in BufReader::new(File::from(ends.stdout)).lines() {
        // A line that nobody can read is a probe that was not taken, which the reader misses.
        if let Ok(observation) = serde_json::from_str(&line.step("read")?) {
            say(&Said::Observed(observation)).step("write")?;
        }
    }
    let end = fence.close(END);
    say(&Said::Closed { gone: end.gone }).step("write")
}

fn say(said: &Said) -> io::Result<()> {
    let mut output = io::stdout().lock();
    serde_json::to_writer(&mut output, said)?;
    output.write_all(b"\n")?;
    output.flush()
}
