//! The clocks of a run: wall time for people, the monotonic clock for everything measured.

use std::time::{Duration, Instant};

/// The clocks, started with the run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunClock {
    started: Instant,
}

impl RunClock {
    /// Starts the monotonic clock.
    pub(crate) fn start() -> Self {
        Self { started: Instant::now() }
    }

    /// Time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Milliseconds since the start.
    pub(crate) fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// When a run with this limit of time has to be over.
    pub(crate) fn deadline(&self, timeout_ms: Option<u64>) -> Option<Instant> {
        timeout_ms.and_then(|ms| self.started.checked_add(Duration::from_millis(ms)))
    }
}

/// The wall clock: RFC 3339 with milliseconds, UTC.
pub fn wall_time() -> String {
    let now = jiff::Timestamp::now();
    let rounded = jiff::Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now);
    format!("{rounded:.3}")
}
