//! When is nothing happening? A pure answer from what was seen last.

use std::time::{Duration, Instant};

/// The share of one CPU below which a tree counts as idle, in percent, where the profile does not say another.
const IDLE_CPU_PERCENT: u32 = 1;

/// What was seen moving, and when.
#[derive(Clone, Debug)]
pub(crate) struct IdleWatch {
    limit: Option<Duration>,
    /// Of one CPU, from 0 to 1.
    idle_share: f64,
    last_activity: Instant,
    last_what: &'static str,
    cpu_at: Option<(Instant, Duration)>,
}

/// What a look at the process tree showed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TreeLook {
    /// CPU time of everything in the tree so far.
    pub(crate) cpu: Duration,
    /// Processes besides the agent's own.
    pub(crate) children: usize,
}

impl IdleWatch {
    pub(crate) fn new(limit: Option<Duration>, idle_percent: Option<u32>, now: Instant) -> Self {
        let idle_share = f64::from(idle_percent.unwrap_or(IDLE_CPU_PERCENT)) / 100.0;
        Self { limit, idle_share, last_activity: now, last_what: "start", cpu_at: None }
    }

    /// Something moved.
    pub(crate) fn saw(&mut self, what: &'static str, now: Instant) {
        self.last_activity = now;
        self.last_what = what;
    }

    /// How long nothing has moved.
    pub(crate) fn quiet_for(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.last_activity)
    }

    /// What moved last.
    pub(crate) fn last_what(&self) -> &'static str {
        self.last_what
    }

    /// How often the tree has to be looked at: ten times in the limit, at least once a second.
    pub(crate) fn period(&self) -> Duration {
        self.limit.map_or(Duration::from_secs(1), |l| {
            (l / 10).clamp(Duration::from_millis(50), Duration::from_secs(1))
        })
    }

    /// Takes a look at the tree; says whether the idle limit is reached.
    pub(crate) fn look(&mut self, tree: TreeLook, open_tool_calls: usize, now: Instant) -> bool {
        if let Some((then, cpu)) = self.cpu_at {
            let window = now.saturating_duration_since(then).as_secs_f64();
            let used = tree.cpu.saturating_sub(cpu).as_secs_f64();
            if window > 0.0 && used / window >= self.idle_share {
                self.saw("cpu", now);
            }
        }
        self.cpu_at = Some((now, tree.cpu));
        if open_tool_calls > 0 && tree.children > 0 {
            self.saw("a tool call with a live process", now);
        }
        self.limit.is_some_and(|l| self.quiet_for(now) >= l)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    fn look(cpu_ms: u64, children: usize) -> TreeLook {
        TreeLook { cpu: Duration::from_millis(cpu_ms), children }
    }

    #[test]
    fn silence_without_cpu_is_idle_at_the_limit() {
        let start = Instant::now();
        let mut w = IdleWatch::new(Some(LIMIT), None, start);
        assert!(!w.look(look(5, 0), 1, start + Duration::from_secs(9)));
        assert!(w.look(look(5, 0), 1, start + Duration::from_secs(10)));
    }

    #[test]
    fn cpu_and_a_tool_with_a_live_child_are_activity() {
        let start = Instant::now();
        let mut w = IdleWatch::new(Some(LIMIT), None, start);
        assert!(!w.look(look(0, 0), 0, start + Duration::from_secs(9)));
        assert!(!w.look(look(500, 0), 0, start + Duration::from_secs(12)));
        assert!(!w.look(look(500, 2), 1, start + Duration::from_secs(23)));
        assert!(w.look(look(500, 2), 0, start + Duration::from_secs(33)));
    }

    #[test]
    fn an_agent_that_never_rests_is_idle_below_its_own_share() {
        let start = Instant::now();
        for (percent, idle) in [(None, false), (Some(10), true)] {
            let mut w = IdleWatch::new(Some(LIMIT), percent, start);
            let mut is_idle = false;
            for second in 0..=10 {
                is_idle = w.look(look(second * 40, 0), 0, start + Duration::from_secs(second));
            }
            assert_eq!(is_idle, idle, "{percent:?}");
        }
    }

    #[test]
    fn without_a_limit_nothing_is_idle() {
        let start = Instant::now();
        let mut w = IdleWatch::new(None, None, start);
        assert!(!w.look(look(0, 0), 0, start + Duration::from_secs(1_000_000)));
    }
}
