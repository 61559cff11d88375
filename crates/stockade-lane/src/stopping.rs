//! Ending an agent: polite signals first, KILL after the grace time.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use stockade_core::profile::Stop;

/// What to do next about an agent that has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Send this to the agent's process.
    Polite(Signal),
    /// Kill everything in the fence.
    KillAll,
}

/// A stop in progress.
#[derive(Clone, Debug)]
pub(crate) struct Stopping {
    schedule: Vec<(Instant, Step)>,
    sent: Vec<&'static str>,
}

impl Stopping {
    /// Plans a stop: the polite signals spread over the grace time, then KILL.
    pub(crate) fn polite(stop: &Stop, now: Instant) -> Self {
        let grace = Duration::from_millis(stop.grace_ms);
        let signals: Vec<Signal> = stop.signals.iter().filter_map(|s| signal(s)).collect();
        let apart = grace / u32::try_from(signals.len().max(1)).unwrap_or(1);
        let mut schedule = Vec::with_capacity(signals.len() + 1);
        let mut at = now;
        for s in signals {
            schedule.push((at, Step::Polite(s)));
            at += apart;
        }
        schedule.push((now + grace, Step::KillAll));
        Self { schedule, sent: Vec::new() }
    }

    /// Plans a stop without grace.
    pub(crate) fn at_once(now: Instant) -> Self {
        Self { schedule: vec![(now, Step::KillAll)], sent: Vec::new() }
    }

    /// When the next step is due.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.schedule.first().map(|(at, _)| *at)
    }

    /// Takes the next step if it is due.
    pub(crate) fn due(&mut self, now: Instant) -> Option<Step> {
        let (at, step) = self.schedule.first().copied()?;
        if at > now {
            return None;
        }
        self.schedule.remove(0);
        self.sent.push(match step {
            Step::Polite(s) => signal_name(s),
            Step::KillAll => "SIGKILL",
        });
        Some(step)
    }

    /// The last signal that was sent.
    pub(crate) fn last_sent(&self) -> Option<&'static str> {
        self.sent.last().copied()
    }
}

fn signal(name: &str) -> Option<Signal> {
    match name {
        "INT" => Some(Signal::INT),
        "TERM" => Some(Signal::TERM),
        "HUP" => Some(Signal::HUP),
        _ => None,
    }
}

fn signal_name(s: Signal) -> &'static str {
    if s == Signal::INT {
        "SIGINT"
    } else if s == Signal::HUP {
        "SIGHUP"
    } else {
        "SIGTERM"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polite_signals_are_spread_and_kill_comes_at_the_end_of_the_grace() {
        let stop = Stop { signals: vec!["INT".into(), "TERM".into()], grace_ms: 1000, linger_ms: 0 };
        let t = Instant::now();
        let mut s = Stopping::polite(&stop, t);
        assert_eq!(s.due(t), Some(Step::Polite(Signal::INT)));
        assert_eq!(s.due(t), None);
        assert_eq!(s.due(t + Duration::from_millis(500)), Some(Step::Polite(Signal::TERM)));
        assert_eq!(s.due(t + Duration::from_millis(999)), None);
        assert_eq!(s.due(t + Duration::from_secs(1)), Some(Step::KillAll));
        assert_eq!(s.last_sent(), Some("SIGKILL"));
        assert_eq!(s.next_at(), None);
    }
}
