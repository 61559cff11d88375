//! One attempt, from its first line to its last.

use std::time::Duration;

use stockade_core::status::Refusal;
use stockade_fence::probes::{Attempt, Heard, Observation, ProcessLimit, Said};

use super::{Part, Progress, Watch, all, not_taken};

/// How often the caller's wish to stop is looked at.
const PATIENCE: Duration = Duration::from_millis(100);

/// What was heard of an attempt.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) observed: Vec<Observation>,
    pub(super) processes: ProcessLimit,
    /// Whether every process of the fence is gone. Outside there is none.
    pub(super) gone: bool,
}

/// Hears an attempt to its end; `None`: the caller stopped it.
pub(super) fn take(
    mut attempt: Attempt,
    part: Part,
    watch: &mut Watch<'_>,
) -> Result<Option<Taken>, Refusal> {
    let mut taken =
        Taken { observed: Vec::new(), processes: ProcessLimit::Watched, gone: part == Part::Outside };
    loop {
        if watch.is_stopped() {
            return Ok(None);
        }
        match attempt.next(PATIENCE).map_err(|e| not_taken(&e))? {
            Heard::Said(Said::Observed(observation)) => {
                taken.observed.push(observation);
                (watch.progress)(Progress { part, taken: taken.observed.len(), probes: all() });
            }
            Heard::Said(Said::Built { limits_processes }) => {
                if limits_processes {
                    taken.processes = ProcessLimit::Enforced;
                }
            }
            Heard::Said(Said::Closed { gone }) => taken.gone = gone,
            Heard::Said(Said::Failed(error)) => return Err(not_taken(&error)),
            Heard::Nothing => {}
            Heard::End => return Ok(Some(taken)),
        }
    }
}
