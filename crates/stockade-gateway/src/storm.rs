//! Retry storms: an agent may repeat a failing request for minutes.

/// How many requests after the answer that told the agent to stop make a storm. The last of them is not forwarded.
const REPEATS_OF_A_STORM: u32 = 3;

/// Failures in a row, per request class.
#[derive(Debug)]
pub(crate) struct Storm {
    allowed: u32,
    classes: Vec<Row>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Row {
    failures: u32,
    /// The last answer broke off after its head, so that it could not tell the agent to stop.
    untold: bool,
}

impl Storm {
    pub(crate) fn new(failures_before_stop: u32, classes: usize) -> Self {
        Self { allowed: failures_before_stop.max(1), classes: vec![Row::default(); classes] }
    }

    /// Whether another request of the class is forwarded. Where the last allowed answer could not tell the agent to stop,
    /// the answer to the next request does, instead of being forwarded.
    pub(crate) fn forwards(&self, class: usize) -> bool {
        self.classes.get(class).is_none_or(|row| {
            let repeats = if row.untold { 0 } else { REPEATS_OF_A_STORM - 1 };
            row.failures < self.allowed.saturating_add(repeats)
        })
    }

    /// Counts a failure; returns whether the agent is to be told to stop.
    pub(crate) fn failed(&mut self, class: usize) -> bool {
        let Some(row) = self.classes.get_mut(class) else { return true };
        *row = Row { failures: row.failures.saturating_add(1), untold: false };
        row.failures >= self.allowed
    }

    /// Counts an answer that broke off; returns whether that was the last one: nothing more of the class is forwarded.
    pub(crate) fn broke_off(&mut self, class: usize) -> bool {
        let Some(row) = self.classes.get_mut(class) else { return false };
        *row = Row { failures: row.failures.saturating_add(1), untold: true };
        row.failures >= self.allowed
    }

    /// Counts an answer that arrived whole.
    pub(crate) fn answered(&mut self, class: usize) {
        if let Some(row) = self.classes.get_mut(class) {
            *row = Row::default();
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

    #[test]
    fn answers_that_break_off_are_not_repeated_beyond_the_allowed() {
        let mut storm = Storm::new(2, 1);
        assert!(!storm.broke_off(0));
        assert!(storm.forwards(0), "one may be made good");
        assert!(storm.broke_off(0), "the second was the last");
        assert!(!storm.forwards(0));
        storm.answered(0);
        assert!(storm.forwards(0));
    }
}
