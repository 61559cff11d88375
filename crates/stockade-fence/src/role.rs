//! Roles: what runs in a fence, with which limits, and what can be asked about it.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What a process of the fence is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Proves the fence.
    Canary,
    /// Tries to escape.
    Probe,
    /// The agent.
    Agent,
    /// A file the agent's client reads or writes for it.
    ClientFile,
    /// A command the agent's client runs for it.
    ClientTerminal,
    /// An MCP server.
    Mcp,
    /// Takes the result out.
    Export,
    /// Renews a credential.
    Refresh,
}

impl Role {
    /// Whether it runs beside another role. Of the others one lives at a time: its end is the end of everything in the
    /// fence. A role that runs beside another ends alone.
    pub(crate) const fn is_companion(self) -> bool {
        matches!(self, Self::ClientFile | Self::ClientTerminal | Self::Mcp)
    }
}

/// Names a role that was started in a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RoleId(pub(crate) u32);

/// Resource limits of one role. Core dumps are always off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SpawnLimits {
    /// Most open descriptors of a process.
    pub open_files: u64,
    /// Largest file a process may write, in bytes; `None`: the caller's own limit.
    pub file_bytes: Option<u64>,
    /// Most processes and threads of the payload's user in the fence, PID 1 among them; `None`: the caller's own limit.
    /// The kernel counts them per user namespace from Linux 5.14 on, and never for kernel uid 0.
    pub processes: Option<u64>,
}

impl Default for SpawnLimits {
    /// 65,536 descriptors: node and bun watch whole trees.
    fn default() -> Self {
        Self { open_files: 65_536, file_bytes: None, processes: None }
    }
}

/// A program to start in a fence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpawnRequest {
    /// What it is there for.
    pub role: Role,
    /// The program and its arguments. The first is an absolute path inside: nothing is looked up.
    pub argv: Vec<String>,
    /// Its whole environment.
    pub env: Vec<(String, String)>,
    /// Its working directory inside.
    pub cwd: PathBuf,
    /// Its limits.
    pub limits: SpawnLimits,
}

/// Whom a signal is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The process that was started for a role.
    Role(RoleId),
    /// Everything in the fence.
    All,
}

/// One process of a fence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessStat {
    /// Its id inside.
    pub pid: i32,
    /// Its parent's id inside.
    pub parent: i32,
    /// Its name, which it can choose itself.
    pub comm: String,
    /// The letter of its state (`R`, `S`, `D`, `Z` …).
    pub state: char,
    /// User and system time so far.
    pub cpu: Duration,
    /// Its resident set, in KiB.
    pub rss_kib: u64,
    /// The role it was started for, where it is the first process of one.
    pub role: Option<RoleId>,
}

/// Every process of a fence but PID 1.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TreeStat {
    /// The processes, at most 4,096 of them.
    pub processes: Vec<ProcessStat>,
    /// How many there are.
    pub total: u32,
    /// User and system time of all that have ended.
    pub ended_cpu: Duration,
}
