//! What travels over the control socket.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::canary::CanaryPlan;
use crate::error::FenceError;
use crate::role::{Role, RoleId, SpawnLimits, TreeStat};
use crate::spec::FenceSpec;

/// How many descriptors a message brings along.
pub(crate) trait Carries {
    fn descriptors(&self) -> usize;
}

/// From the runner to the helper.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Request {
    /// The first message, read by stage A.
    Build(Box<FenceSpec>),
    Spawn(SpawnOrder),
    Signal {
        /// `None`: everything but PID 1.
        role: Option<RoleId>,
        signal: i32,
    },
    Stat,
    /// How much memory everything but PID 1 has, shared pages counted once.
    Memory,
    Close,
}

impl Carries for Request {
    fn descriptors(&self) -> usize {
        match self {
            Self::Spawn(_) => 3,
            Self::Build(_) | Self::Signal { .. } | Self::Stat | Self::Memory | Self::Close => 0,
        }
    }
}

/// A role to start; its three descriptors come with the message.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SpawnOrder {
    pub(crate) id: RoleId,
    pub(crate) role: Role,
    pub(crate) work: Work,
    pub(crate) limits: SpawnLimits,
}

/// What a role does.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Work {
    /// Execs `argv[0]`, an absolute path.
    Exec { argv: Vec<String>, env: Vec<(String, String)>, cwd: PathBuf },
    /// Tries the canaries, without exec.
    Canaries(CanaryPlan),
}

/// From the helper to the runner.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Report {
    /// PID 1 exists; its pidfd comes with the message.
    Born {
        /// Its id where it was sent from.
        pid: i32,
        /// Where the time of stage A went: (phase, microseconds).
        phases: Vec<(String, u64)>,
    },
    /// bubblewrap takes over from stage A; what it complains about can be read from the descriptor with the message.
    Through {
        /// Where the time of stage A went: (phase, microseconds).
        phases: Vec<(String, u64)>,
    },
    /// The place is ready; the listeners come with the message.
    Ready {
        listeners: usize,
        max_processes: Option<u32>,
        /// Where the time of PID 1 went: (phase, microseconds).
        phases: Vec<(String, u64)>,
    },
    Failed(FenceError),
    Spawned,
    NotSpawned(FenceError),
    Exited(Exited),
    Signalled,
    NotSignalled(FenceError),
    Stat(TreeStat),
    Memory {
        bytes: u64,
    },
    Closing {
        left: u32,
    },
}

impl Carries for Report {
    fn descriptors(&self) -> usize {
        match self {
            Self::Born { .. } | Self::Through { .. } => 1,
            Self::Ready { listeners, .. } => *listeners,
            Self::Failed(_)
            | Self::Spawned
            | Self::NotSpawned(_)
            | Self::Exited(_)
            | Self::Signalled
            | Self::NotSignalled(_)
            | Self::Stat(_)
            | Self::Memory { .. }
            | Self::Closing { .. } => 0,
        }
    }
}

/// How a role ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Exited {
    /// Which one.
    pub role: RoleId,
    /// The exit code, where it exited.
    pub code: Option<i32>,
    /// The signal, where one ended it.
    pub signal: Option<i32>,
    /// Processes it left running. They are gone by now, save `survivors`.
    pub left_behind: u32,
    /// The names of the first of them.
    pub left_names: Vec<String>,
    /// Processes that were killed and had not ended when the helper stopped waiting: stuck in the kernel.
    pub survivors: u32,
    /// User and system time of the role, of descendants it waited for, and of those swept.
    pub cpu: Duration,
    /// The largest resident set of one process of the role, in KiB.
    pub max_rss_kib: u64,
}
