//! Retry storms: an agent may repeat a failing request for minutes.

/// How many requests after the answer that told the agent to stop make a storm. The last of them is not forwarded.
const REPEATS_OF_A_STORM: u32 = 3;

/// Failures in a row, per request class.
#[derive(Debug)]
pub(crate) struct Storm {
    allowed: u32,
    failures: Vec<u32>,
}

impl Storm {
    pub(crate) fn new(failures_before_stop: u32, classes: usize) -> Self {
        Self { allowed: failures_before_stop.max(1), failures: vec![0; classes] }
    }

    /// Whether another request of the class is forwarded.
    pub(crate) fn forwards(&self, class: usize) -> bool {
        self.failures.get(class).is_none_or(|n| *n < self.allowed.saturating_add(REPEATS_OF_A_STORM - 1))
    }

    /// Counts a failure; returns whether the agent is to be told to stop.
    pub(crate) fn failed(&mut self, class: usize) -> bool {
        let Some(count) = self.failures.get_mut(class) else { return true };
        *count = count.saturating_add(1);
        *count >= self.allowed
    }

    /// Counts an answer that arrived whole.
    pub(crate) fn answered(&mut self, class: usize) {
        if let Some(count) = self.failures.get_mut(class) {
            *count = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_to_stop_from_the_allowed_failure_on_and_then_stops() {
        let mut storm = Storm::new(2, 2);
        assert!(!storm.failed(0));
        assert!(storm.failed(0), "the second failure carries the header");
        for _ in 0..2 {
            assert!(storm.forwards(0));
            assert!(storm.failed(0));
        }
        assert!(!storm.forwards(0), "the third repeat is not forwarded");
        assert!(storm.forwards(1), "another class is not concerned");
    }

    #[test]
    fn forgets_failures_after_an_answer() {
        let mut storm = Storm::new(0, 1);
        assert!(storm.failed(0), "none allowed means that the first tells");
        storm.answered(0);
        assert!(storm.failed(0));
        assert!(storm.forwards(0));
    }
}
