//! When the wire was last heard, for the idle watch.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

/// Bytes and the time of the last one, in both directions. Cheap to read from anywhere.
#[derive(Debug)]
pub struct Activity {
    started: Instant,
    last_ms: AtomicU64,
    from_agent: AtomicU64,
    from_endpoint: AtomicU64,
}

impl Activity {
    pub(crate) fn new() -> Self {
        Self {
            started: Instant::now(),
            last_ms: AtomicU64::new(0),
            from_agent: AtomicU64::new(0),
            from_endpoint: AtomicU64::new(0),
        }
    }

    /// How long ago the last byte was seen; since the start where none was.
    pub fn quiet_for(&self) -> Duration {
        self.started.elapsed().saturating_sub(Duration::from_millis(self.last_ms.load(Ordering::Relaxed)))
    }

    /// Bytes received from the agent: request bodies, and what left through the egress listener.
    pub fn bytes_from_agent(&self) -> u64 {
        self.from_agent.load(Ordering::Relaxed)
    }

    /// Bytes received for the agent: answer bodies, and what came back through the egress listener.
    pub fn bytes_from_endpoint(&self) -> u64 {
        self.from_endpoint.load(Ordering::Relaxed)
    }

    pub(crate) fn heard_agent(&self, bytes: usize) {
        self.heard(&self.from_agent, bytes);
    }

    pub(crate) fn heard_endpoint(&self, bytes: usize) {
        self.heard(&self.from_endpoint, bytes);
    }

    fn heard(&self, counter: &AtomicU64, bytes: usize) {
        counter.fetch_add(bytes as u64, Ordering::Relaxed);
        let now = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_ms.store(now, Ordering::Relaxed);
    }
}
