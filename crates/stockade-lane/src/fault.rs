//! Named points at which a test can end this process, as a power cut would. Compiled in only with the feature
//! `fault-points`; without it every point is nothing.

/// Every point, in the order of a run.
pub const POINTS: [&str; 12] = [
    "reserved",
    "verified",
    "surveyed",
    "planned",
    "staged",
    "fence-built",
    "fence-proven",
    "agent-started",
    "first-request",
    "tool-running",
    "turn-ended",
    "receipt-rename",
];

#[cfg(feature = "fault-points")]
static ARMED: std::sync::OnceLock<String> = std::sync::OnceLock::new();

/// Arms one point: the process kills itself when it gets there.
#[cfg(feature = "fault-points")]
pub fn arm(point: &str) {
    // A second call is a mistake of the test and changes nothing.
    let _second_call = ARMED.set(point.to_owned());
}

/// Passes a point.
#[cfg(feature = "fault-points")]
pub(crate) fn point(name: &str) {
    debug_assert!(POINTS.contains(&name), "{name} is no fault point");
    if ARMED.get().is_some_and(|armed| armed == name) {
        // Nothing can be done about a SIGKILL that is refused, and nothing refuses one to itself.
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}

/// Passes a point.
#[cfg(not(feature = "fault-points"))]
pub(crate) const fn point(_name: &str) {}
