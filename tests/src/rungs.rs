//! Every rung, for tests of what holds on all of them.

/// The names by which `--rung` takes them.
pub const RUNGS: [&str; 5] = ["nsl", "ns", "ns-nest", "ns-hostproc", "bs"];

/// What two of them do not give.
pub const WITHOUT: [&str; 4] = ["--accept-missing", "process-visibility", "--accept-missing", "no-nesting"];
