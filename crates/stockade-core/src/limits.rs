//! Limits of what a run may use: how each is held on a host, and what was seen of it.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::budget::Usd;

/// One thing that is limited. A closed list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LimitId {
    /// Processes and threads at a time.
    Processes,
    /// Memory of the whole tree, in bytes.
    Memory,
    /// Open files of one process.
    OpenFiles,
    /// The size of one file, in bytes.
    FileSize,
    /// The size of each private temporary folder, in bytes.
    Temp,
    /// How much the folders on disk that can be written may grow together, in bytes.
    Growth,
    /// What is kept of each output stream, in bytes.
    Output,
    /// Answers to calls of the main turn.
    Turns,
    /// Tokens sent and generated.
    Tokens,
    /// Money, in millionths of a US dollar.
    Cost,
}

impl LimitId {
    /// The id used in receipts, events and documentation.
    pub const fn id(self) -> &'static str {
        match self {
            Self::Processes => "processes",
            Self::Memory => "memory",
            Self::OpenFiles => "open-files",
            Self::FileSize => "file-size",
            Self::Temp => "temp",
            Self::Growth => "growth",
            Self::Output => "output",
            Self::Turns => "turns",
            Self::Tokens => "tokens",
            Self::Cost => "cost",
        }
    }

    /// The flag that sets it.
    pub const fn flag(self) -> &'static str {
        match self {
            Self::Processes => "--max-processes",
            Self::Memory => "--max-memory",
            Self::OpenFiles => "--max-open-files",
            Self::FileSize => "--max-file-size",
            Self::Temp => "--max-temp",
            Self::Growth => "--max-growth",
            Self::Output => "--max-output",
            Self::Turns => "--max-turns",
            Self::Tokens => "--max-tokens",
            Self::Cost => "--max-cost",
        }
    }

    /// A value of this limit for people.
    pub fn show(self, value: u64) -> String {
        match self {
            Self::Processes | Self::OpenFiles | Self::Turns | Self::Tokens => value.to_string(),
            Self::Cost => Usd::of_millionths(value).to_string(),
            Self::Memory | Self::FileSize | Self::Temp | Self::Growth | Self::Output => size_text(value),
        }
    }
}

/// How a limit is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LimitState {
    /// It cannot be passed: the kernel refuses, or ends the run at that moment.
    Enforced,
    /// It is looked at every 250 ms, and the whole tree is killed when it was passed.
    Watched,
}

impl LimitState {
    /// The id used in receipts and documentation.
    pub const fn id(self) -> &'static str {
        match self {
            Self::Enforced => "enforced",
            Self::Watched => "watched",
        }
    }
}

/// What holds a limit. A closed list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LimitBy {
    /// `pid_max` of the PID namespace (Linux 6.14 and newer).
    PidMax,
    /// `RLIMIT_NPROC`, counted in the fence's own user namespace.
    Nproc,
    /// A control group of the run's own.
    Cgroup,
    /// A resource limit of each process.
    Rlimit,
    /// The size of a temporary file system.
    Tmpfs,
    /// The runner itself, which reads no more.
    Runner,
    /// The gateway, which forwards no more.
    Gateway,
    /// Samples.
    Sampling,
}

/// How one limit is held on a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedLimit {
    /// Which.
    pub id: LimitId,
    /// The limit: a count, bytes, or millionths of a US dollar.
    pub limit: u64,
    /// How it is held.
    pub state: LimitState,
    /// What holds it.
    pub by: LimitBy,
    /// The same for people, with the reason where it is only watched.
    pub mechanism: String,
    /// What would have it enforced; null: it is.
    pub remedy: Option<String>,
}

/// A limit as a run knew it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LimitRecord {
    /// Which.
    pub id: LimitId,
    /// The limit: a count, bytes, or millionths of a US dollar.
    pub limit: u64,
    /// How it was held.
    pub state: LimitState,
    /// What held it.
    pub by: LimitBy,
    /// The same for people.
    pub mechanism: String,
    /// The most that was measured; null: it is not measured.
    pub peak: Option<u64>,
    /// Whether the run was ended because of it.
    pub reached: bool,
}

/// Whether limits that are only watched are enough.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LimitDemand {
    /// They are, and the receipt says which those were.
    #[default]
    Reported,
    /// They are not: the run is refused.
    Enforced,
}

/// A hierarchy of control groups in which the caller can make one of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CgroupHierarchy {
    /// 1 or 2.
    pub version: u8,
    /// The group below which it would be made.
    pub parent: PathBuf,
    /// The controllers that a group there has, among `memory` and `pids`.
    pub controllers: Vec<String>,
}

/// Control groups as found on a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CgroupFacts {
    /// Where groups can be made.
    pub hierarchies: Vec<CgroupHierarchy>,
    /// Why none with a memory controller can be made; null: one can.
    pub refused: Option<crate::survey::Refused>,
}

impl CgroupFacts {
    /// The hierarchy that has a controller.
    pub fn with(&self, controller: &str) -> Option<&CgroupHierarchy> {
        self.hierarchies.iter().find(|h| h.controllers.iter().any(|c| c == controller))
    }
}

/// The name of a run's own group, by which `gc` finds what a killed run left.
pub fn cgroup_name(run: &str) -> String {
    format!("stockade-{run}")
}

/// The name of the group in which git works on what a run made.
pub fn cgroup_name_for_git(run: &str) -> String {
    format!("stockade-{run}-git")
}

/// Bytes for people: whole units where they are whole, else rounded down to mebibytes or bytes.
pub fn size_text(bytes: u64) -> String {
    const UNITS: [(u32, &str); 4] = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let whole = UNITS.iter().find(|(bits, _)| bytes >> bits > 0 && bytes.trailing_zeros() >= *bits);
    if let Some((bits, unit)) = whole {
        return format!("{} {unit}", bytes >> bits);
    }
    if bytes >= 10 << 20 { format!("{} MiB", bytes >> 20) } else { format!("{bytes} bytes") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_for_people() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (1023, "1023 bytes"),
            (4096, "4 KiB"),
            (512 << 20, "512 MiB"),
            (8 << 30, "8 GiB"),
            (1 << 40, "1 TiB"),
            ((8 << 30) + 1, "8192 MiB"),
            ((1 << 20) + 1, "1048577 bytes"),
        ] {
            assert_eq!(size_text(bytes), text);
        }
    }

    #[test]
    fn a_controller_is_found_in_its_hierarchy() {
        let hierarchy = |version, name: &str, controllers: &[&str]| CgroupHierarchy {
            version,
            parent: PathBuf::from("/sys/fs/cgroup").join(name),
            controllers: controllers.iter().map(ToString::to_string).collect(),
        };
        let facts = CgroupFacts {
            hierarchies: vec![hierarchy(1, "memory", &["memory"]), hierarchy(2, "unified", &[])],
            refused: None,
        };
        assert_eq!(facts.with("memory"), facts.hierarchies.first());
        assert_eq!(facts.with("pids"), None);
    }
}
