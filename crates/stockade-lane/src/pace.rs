//! How fast a stream may be read: whoever writes faster waits.

use std::time::{Duration, Instant};

/// A bucket that fills by `rate` bytes a second and holds those of one second.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    rate: u64,
    left: u64,
    at: Instant,
}

impl Pace {
    pub(crate) fn new(rate: u64, now: Instant) -> Self {
        Self { rate: rate.max(1), left: rate.max(1), at: now }
    }

    /// Takes what was read.
    pub(crate) fn took(&mut self, bytes: u64, now: Instant) {
        self.fill(now);
        self.left = self.left.saturating_sub(bytes);
    }

    /// When there is room to read `bytes` at once; in the past: there is.
    pub(crate) fn ready_at(&self, bytes: u64) -> Instant {
        let missing = bytes.min(self.rate).saturating_sub(self.left);
        let nanos = u128::from(missing) * 1_000_000_000 / u128::from(self.rate);
        self.at + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    fn fill(&mut self, now: Instant) {
        let since = now.saturating_duration_since(self.at);
        let more = u128::from(self.rate) * since.as_nanos() / 1_000_000_000;
        self.left = self.left.saturating_add(u64::try_from(more).unwrap_or(u64::MAX)).min(self.rate);
        self.at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_read_at_the_rate_and_a_trickle_at_once() {
        let start = Instant::now();
        let (rate, chunk) = (1000, 100);
        let mut pace = Pace::new(rate, start);
        let mut now = start;
        let mut read = 0;
        while now < start + Duration::from_secs(10) {
            now = now.max(pace.ready_at(chunk));
            pace.took(chunk, now);
            read += chunk;
        }
        // Ten seconds, and what a rest before had filled.
        assert!((10_900..=11_100).contains(&read), "{read}");

        let rested = now + Duration::from_secs(60);
        pace.took(0, rested);
        assert!(pace.ready_at(chunk) <= rested);
        assert!(pace.ready_at(u64::MAX) <= rested, "more than a second's worth is never waited for");
    }
}
