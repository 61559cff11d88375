//! Where the time of a build goes.

use std::time::Instant;

/// A clock that names what it measures.
pub(super) struct Phases {
    phases: Vec<(String, u64)>,
    last: Instant,
}

impl Phases {
    pub(super) fn new() -> Self {
        Self { phases: Vec::new(), last: Instant::now() }
    }

    /// Names what has been done since the last mark.
    pub(super) fn mark(&mut self, name: &str) {
        let now = Instant::now();
        let micros = u64::try_from((now - self.last).as_micros()).unwrap_or(u64::MAX);
        self.phases.push((name.to_owned(), micros));
        self.last = now;
    }

    /// Everything measured: (phase, microseconds).
    pub(super) fn finish(self) -> Vec<(String, u64)> {
        self.phases
    }
}
