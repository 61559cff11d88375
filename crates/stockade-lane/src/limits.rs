//! Limits while an agent runs: what was measured of each, and which one was passed.

use std::collections::BTreeMap;

use stockade_core::{
    budget::Spent,
    limits::{LimitId, LimitRecord, LimitState, PlannedLimit},
    receipt::Receipt,
};
use stockade_fence::MemoryReading;

/// A limit that was passed. The whole tree ends at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Breach {
    pub(crate) id: LimitId,
    /// The limit, with its unit.
    pub(crate) value: String,
    /// What was measured, and by what.
    pub(crate) measured: String,
}

/// The limits of a run.
#[derive(Clone, Debug)]
pub(crate) struct LimitWatch {
    limits: Vec<PlannedLimit>,
    peaks: BTreeMap<LimitId, u64>,
    reached: Option<LimitId>,
}

impl LimitWatch {
    pub(crate) fn new(limits: Vec<PlannedLimit>) -> Self {
        Self { limits, peaks: BTreeMap::new(), reached: None }
    }

    /// Something was measured.
    pub(crate) fn saw(&mut self, id: LimitId, amount: u64) {
        let peak = self.peaks.entry(id).or_default();
        *peak = amount.max(*peak);
    }

    /// The most that was measured.
    pub(crate) fn peak(&self, id: LimitId) -> Option<u64> {
        self.peaks.get(&id).copied()
    }

    /// Whether this amount is over a limit that nothing but the runner holds.
    pub(crate) fn is_over(&self, id: LimitId, amount: u64) -> bool {
        let over = |l: &&PlannedLimit| l.id == id && l.state == LimitState::Watched && amount > l.limit;
        self.limits.iter().any(|l| over(&l))
    }

    /// A limit was passed. `None` when one was before: the first is the reason.
    pub(crate) fn pass(&mut self, id: LimitId, measured: String) -> Option<Breach> {
        if self.reached.is_some() {
            return None;
        }
        let limit = self.limits.iter().find(|l| l.id == id)?.limit;
        self.reached = Some(id);
        Some(Breach { id, value: id.show(limit), measured })
    }

    /// What the memory controller has counted, and whether it has killed.
    pub(crate) fn memory_controller(&mut self, reading: MemoryReading) -> Option<Breach> {
        self.saw(LimitId::Memory, reading.peak);
        if reading.kills == 0 {
            return None;
        }
        let measured =
            format!("{}: oom_kill {}, {} bytes at most", reading.counted_in, reading.kills, reading.peak);
        self.pass(LimitId::Memory, measured)
    }

    /// What stream has more than is kept.
    pub(crate) fn output(&mut self, stream: &str, seen: u64) -> Option<Breach> {
        let limit = self.limits.iter().find(|l| l.id == LimitId::Output)?.limit;
        if seen <= limit {
            return None;
        }
        self.pass(LimitId::Output, format!("{seen} bytes on {stream}, counted by the runner"))
    }

    /// Everything for the receipt.
    pub(crate) fn records(&self) -> Vec<LimitRecord> {
        records(&self.limits, |id| (self.peak(id), self.reached == Some(id)))
    }
}

/// Limits for the receipt: with the most that was measured of each, and whether it ended the run.
pub(crate) fn records(
    limits: &[PlannedLimit],
    measured: impl Fn(LimitId) -> (Option<u64>, bool),
) -> Vec<LimitRecord> {
    limits
        .iter()
        .map(|l| {
            let (peak, reached) = measured(l.id);
            LimitRecord {
                id: l.id,
                limit: l.limit,
                state: l.state,
                by: l.by,
                mechanism: l.mechanism.clone(),
                peak,
                reached,
            }
        })
        .collect()
}

/// Adds what was spent to the budgets of a receipt. The gateway held them, and its word for the one that was reached is
/// the run's cause.
pub(crate) fn add_spent(receipt: &mut Receipt, spent: &Spent) {
    let cause = receipt.cause.as_ref().map(|cause| cause.code.clone()).unwrap_or_default();
    for record in &mut receipt.held_limits {
        let amount = match record.id {
            LimitId::Turns => spent.turns,
            LimitId::Tokens => spent.tokens,
            LimitId::Cost => spent.cost.millionths(),
            _ => continue,
        };
        record.peak = Some(amount);
        record.reached = cause == format!("limit-{}", record.id.id());
    }
}

#[cfg(test)]
mod tests {
    use stockade_core::limits::LimitBy;

    use super::*;

    fn limit(id: LimitId, limit: u64, state: LimitState) -> PlannedLimit {
        PlannedLimit { id, limit, state, by: LimitBy::Sampling, mechanism: String::new(), remedy: None }
    }

    fn watch() -> LimitWatch {
        LimitWatch::new(vec![
            limit(LimitId::Processes, 10, LimitState::Enforced),
            limit(LimitId::Memory, 1 << 20, LimitState::Watched),
            limit(LimitId::Output, 100, LimitState::Enforced),
        ])
    }

    #[test]
    fn only_what_nobody_else_holds_is_over() {
        let w = watch();
        assert!(w.is_over(LimitId::Memory, (1 << 20) + 1));
        assert!(!w.is_over(LimitId::Memory, 1 << 20));
        assert!(!w.is_over(LimitId::Processes, 11), "the kernel holds it");
        assert!(!w.is_over(LimitId::Growth, u64::MAX), "there is no such limit");
    }

    #[test]
    fn the_first_limit_that_was_passed_is_the_reason() {
        let mut w = watch();
        assert_eq!(w.output("stdout", 100), None);
        let breach = w.output("stdout", 101).unwrap();
        assert_eq!((breach.id, breach.value.as_str()), (LimitId::Output, "100 bytes"));
        assert_eq!(w.output("stderr", 500), None);
        let reading = MemoryReading { peak: 9, kills: 1, counted_in: "memory.events" };
        assert_eq!(w.memory_controller(reading), None);
        let records = w.records();
        assert_eq!(records.iter().filter(|r| r.reached).map(|r| r.id).collect::<Vec<_>>(), [LimitId::Output]);
        assert_eq!(records.iter().map(|r| r.peak).collect::<Vec<_>>(), [None, Some(9), None]);
    }

    #[test]
    fn a_kill_by_the_memory_controller_is_evidence_with_its_numbers() {
        let mut w = watch();
        assert_eq!(w.memory_controller(MemoryReading { peak: 5, kills: 0, counted_in: "x" }), None);
        let reading = MemoryReading { peak: 7, kills: 2, counted_in: "memory.oom_control" };
        let breach = w.memory_controller(reading).unwrap();
        assert_eq!(breach.value, "1 MiB");
        assert_eq!(breach.measured, "memory.oom_control: oom_kill 2, 7 bytes at most");
    }
}
