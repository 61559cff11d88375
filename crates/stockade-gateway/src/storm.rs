//! Retry storms: an agent may repeat a failing request for minutes, or for ever.

/// How many requests after the answer that told the agent to stop make a storm. The last of them is not forwarded.
const REPEATS_OF_A_STORM: u32 = 3;

/// What a failure asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Another try may mend it.
    Pass,
    /// The agent is told to stop.
    Tell,
    /// The agent cannot be told, and nothing more of the class is forwarded.
    End,
}

/// Failures in a row, per request class.
#[derive(Debug)]
pub(crate) struct Storm {
    allowed: u32,
    can_tell: bool,
    classes: Vec<Row>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Row {
    failures: u32,
    /// The last answer could not tell the agent to stop.
    untold: bool,
}

impl Storm {
    /// `can_tell`: the profile knows an answer that ends the agent's retries.
    pub(crate) fn new(failures_before_stop: u32, can_tell: bool, classes: usize) -> Self {
        Self { allowed: failures_before_stop.max(1), can_tell, classes: vec![Row::default(); classes] }
    }

    /// Whether another request of the class is forwarded. Where the last allowed answer could not tell the agent to stop,
    /// the answer to the next request does, instead of being forwarded.
    pub(crate) fn forwards(&self, class: usize) -> bool {
        self.classes.get(class).is_none_or(|row| {
            let repeats = if row.untold { 0 } else { REPEATS_OF_A_STORM - 1 };
            row.failures < self.allowed.saturating_add(repeats)
        })
    }

    /// Counts a failed answer, or none at all (`status` is `None`).
    pub(crate) fn failed(&mut self, class: usize, status: Option<u16>) -> Verdict {
        let Some(row) = self.classes.get_mut(class) else { return Verdict::Tell };
        let least = if is_final(status) { self.allowed } else { 0 };
        let failures = row.failures.saturating_add(1).max(least);
        let reached = failures >= self.allowed;
        *row = Row { failures, untold: reached && !self.can_tell };
        match (reached, self.can_tell) {
            (false, _) => Verdict::Pass,
            (true, true) => Verdict::Tell,
            // An agent that knows better than to repeat such a request says itself what it was.
            (true, false) if is_final(status) => Verdict::Pass,
            (true, false) => Verdict::End,
        }
    }

    /// Counts an answer that broke off, or said nothing of use, after its head had passed.
    pub(crate) fn broke_off(&mut self, class: usize) -> Verdict {
        let Some(row) = self.classes.get_mut(class) else { return Verdict::Pass };
        *row = Row { failures: row.failures.saturating_add(1), untold: true };
        if row.failures >= self.allowed { Verdict::End } else { Verdict::Pass }
    }

    /// Counts an answer that arrived whole.
    pub(crate) fn answered(&mut self, class: usize) {
        if let Some(row) = self.classes.get_mut(class) {
            *row = Row::default();
        }
    }
}

/// Whether no repetition mends it: the credential, the bill, or the name of the model is wrong.
fn is_final(status: Option<u16>) -> bool {
    matches!(status, Some(401..=404))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_to_stop_from_the_allowed_failure_on_and_then_stops() {
        let mut storm = Storm::new(2, true, 2);
        assert_eq!(storm.failed(0, None), Verdict::Pass);
        assert_eq!(storm.failed(0, Some(503)), Verdict::Tell, "the second failure is the last");
        for _ in 0..2 {
            assert!(storm.forwards(0));
            assert_eq!(storm.failed(0, Some(429)), Verdict::Tell);
        }
        assert!(!storm.forwards(0), "the third repeat is not forwarded");
        assert!(storm.forwards(1), "another class is not concerned");
    }

    #[test]
    fn an_agent_that_cannot_be_told_is_ended() {
        let mut storm = Storm::new(2, false, 1);
        assert_eq!(storm.failed(0, Some(500)), Verdict::Pass);
        assert!(storm.forwards(0));
        assert_eq!(storm.failed(0, Some(500)), Verdict::End);
        assert!(!storm.forwards(0));
    }

    #[test]
    fn what_no_repetition_mends_is_not_repeated() {
        for status in [401, 402, 403, 404] {
            let mut storm = Storm::new(5, true, 1);
            assert_eq!(storm.failed(0, Some(status)), Verdict::Tell, "{status}");
            let mut storm = Storm::new(5, false, 1);
            assert_eq!(storm.failed(0, Some(status)), Verdict::Pass, "the agent may say what it was");
            assert!(!storm.forwards(0), "but nothing more is forwarded");
        }
        let mut storm = Storm::new(2, true, 1);
        assert_eq!(storm.failed(0, Some(400)), Verdict::Pass, "an agent may send less");
    }

    #[test]
    fn forgets_failures_after_an_answer() {
        let mut storm = Storm::new(0, true, 1);
        assert_eq!(storm.failed(0, None), Verdict::Tell, "none allowed means that the first tells");
        storm.answered(0);
        assert_eq!(storm.failed(0, None), Verdict::Tell);
        assert!(storm.forwards(0));
    }

    #[test]
    fn answers_that_break_off_are_not_repeated_beyond_the_allowed() {
        let mut storm = Storm::new(2, true, 1);
        assert_eq!(storm.broke_off(0), Verdict::Pass);
        assert!(storm.forwards(0), "one may be made good");
        assert_eq!(storm.broke_off(0), Verdict::End, "the second was the last");
        assert!(!storm.forwards(0));
        storm.answered(0);
        assert!(storm.forwards(0));
    }
}
