//! Canaries: attempts that have to fail inside a finished fence, and a few that have to work.
//!
//! Each one that must fail has a positive control: the same attempt, or one like it, works outside at the same moment. A
//! canary that does not do what it must is an error that names it, and never a reason to try something weaker.

mod attempt;
mod decoys;
mod proof;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use stockade_core::guarantee::Guarantee;
use stockade_core::survey::Rung;

use crate::spec::BindAccess;

pub(crate) use attempt::run_inside;
pub(crate) use decoys::{Decoys, NetworkIs};
pub(crate) use proof::judge;
pub use proof::{CanaryResult, Expectation, Proof, ProofError, ProofRequest, WorkspaceProof};

/// One attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Canary {
    /// Reads a secret outside.
    SecretFile,
    /// Reads the host's password hashes.
    ShadowFile,
    /// Makes a file outside.
    WriteOutside,
    /// Connects to a port of the host's loopback.
    TcpDecoy,
    /// Connects to an abstract socket of the host.
    AbstractDecoy,
    /// Sees or signals a process of the host.
    ProcessDecoy,
    /// Reads memory, environment or descriptors of a process of the host, where that can be seen.
    ProcessSecrets,
    /// Opens a setting of the kernel for writing.
    KernelSetting,
    /// Has a capability, may gain one, or runs without a filter.
    Privileges,
    /// Makes a file in the workspace setuid.
    SetuidInWorkspace,
    /// Makes a file in the home setuid.
    SetuidInHome,
    /// Gives a file in the home a capability.
    FileCapability,
    /// Makes a file in the workspace.
    WorkspaceWrite,
    /// Makes a file in a protected folder of the workspace.
    ProtectedWrite,
    /// Makes a file in the home.
    HomeWrite,
    /// Makes a file in /tmp.
    TempWrite,
    /// Opens its standard input again for writing.
    StdinReopen,
    /// Makes a call that only Landlock refuses.
    SecondLock,
    /// Mounts a file system.
    Mount,
    /// Makes a user namespace and mounts in it. On a rung that does not nest it is the last: had it worked, nothing after
    /// it would mean anything. What follows is tried by root of that namespace.
    UserNamespace,
    /// Takes the read-only lock off the root.
    NestedRemount,
    /// Opens a setting of the kernel for writing.
    NestedSetting,
    /// Gives a file in the home a capability.
    NestedCapability,
}

impl Canary {
    /// Every canary, in the order of their attempts.
    pub(crate) const ALL: [Self; 23] = [
        Self::SecretFile,
        Self::ShadowFile,
        Self::WriteOutside,
        Self::TcpDecoy,
        Self::AbstractDecoy,
        Self::ProcessDecoy,
        Self::ProcessSecrets,
        Self::KernelSetting,
        Self::Privileges,
        Self::SetuidInWorkspace,
        Self::SetuidInHome,
        Self::FileCapability,
        Self::WorkspaceWrite,
        Self::ProtectedWrite,
        Self::HomeWrite,
        Self::TempWrite,
        Self::StdinReopen,
        Self::SecondLock,
        Self::Mount,
        Self::UserNamespace,
        Self::NestedRemount,
        Self::NestedSetting,
        Self::NestedCapability,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::SecretFile => "secret-file",
            Self::ShadowFile => "shadow-file",
            Self::WriteOutside => "write-outside",
            Self::TcpDecoy => "tcp-decoy",
            Self::AbstractDecoy => "abstract-decoy",
            Self::ProcessDecoy => "process-decoy",
            Self::ProcessSecrets => "process-secrets",
            Self::KernelSetting => "kernel-setting",
            Self::Privileges => "privileges",
            Self::SetuidInWorkspace => "setuid-in-workspace",
            Self::SetuidInHome => "setuid-in-home",
            Self::FileCapability => "file-capability",
            Self::WorkspaceWrite => "workspace-write",
            Self::ProtectedWrite => "protected-write",
            Self::HomeWrite => "home-write",
            Self::TempWrite => "temp-write",
            Self::StdinReopen => "stdin-reopen",
            Self::SecondLock => "second-lock",
            Self::Mount => "mount",
            Self::UserNamespace => "user-namespace",
            Self::NestedRemount => "nested-remount",
            Self::NestedSetting => "nested-setting",
            Self::NestedCapability => "nested-capability",
        }
    }

    /// The guarantee it stands for.
    pub(crate) const fn guarantee(self, plan: &CanaryPlan) -> Guarantee {
        match self {
            Self::SecretFile | Self::ShadowFile | Self::ProcessSecrets => Guarantee::Secrets,
            Self::TcpDecoy | Self::AbstractDecoy => Guarantee::Network,
            Self::ProcessDecoy => Guarantee::ProcessVisibility,
            Self::KernelSetting
            | Self::Privileges
            | Self::SetuidInWorkspace
            | Self::SetuidInHome
            | Self::FileCapability
            | Self::NestedSetting
            | Self::NestedCapability => Guarantee::Privileges,
            Self::Mount | Self::UserNamespace if plan.rung.nests() => Guarantee::Privileges,
            Self::Mount | Self::UserNamespace => Guarantee::NoNesting,
            Self::ProtectedWrite => Guarantee::RepoMetadata,
            Self::WorkspaceWrite => match &plan.workspace {
                Some(WorkspaceProof { access: BindAccess::ReadOnly, .. }) => Guarantee::WorkspaceReadonly,
                _ => Guarantee::WriteConfinement,
            },
            Self::WriteOutside
            | Self::HomeWrite
            | Self::TempWrite
            | Self::StdinReopen
            | Self::SecondLock
            | Self::NestedRemount => Guarantee::WriteConfinement,
        }
    }

    /// Whether it applies to this fence.
    pub(crate) fn applies(self, plan: &CanaryPlan) -> bool {
        match self {
            Self::ShadowFile => plan.shadow_exists,
            Self::TcpDecoy => plan.tcp_port.is_some(),
            Self::AbstractDecoy => plan.abstract_name.is_some(),
            Self::SetuidInWorkspace | Self::WorkspaceWrite => plan.workspace.is_some(),
            Self::ProtectedWrite => !plan.protected.is_empty(),
            // Where the host's /proc stays its processes are seen; what they hold must not be.
            Self::ProcessDecoy => plan.rung != Rung::NsHostproc,
            Self::ProcessSecrets => plan.rung == Rung::NsHostproc,
            Self::SecondLock => plan.rung == Rung::Nsl,
            Self::NestedRemount | Self::NestedSetting | Self::NestedCapability => plan.rung.nests(),
            _ => true,
        }
    }

    /// What has to come of it.
    pub(crate) fn expectation(self, plan: &CanaryPlan) -> Expectation {
        match self {
            Self::HomeWrite | Self::TempWrite => Expectation::Works,
            Self::UserNamespace if plan.rung.nests() => Expectation::Works,
            Self::WorkspaceWrite => match &plan.workspace {
                Some(WorkspaceProof { access: BindAccess::ReadWrite, .. }) => Expectation::Works,
                _ => Expectation::Denied,
            },
            _ => Expectation::Denied,
        }
    }

    /// The errors that are a denial. Any other error says that the attempt was not made as meant.
    pub(crate) const fn denials(self) -> &'static [i32] {
        match self {
            Self::SecretFile | Self::ShadowFile => &[libc::ENOENT, libc::EACCES],
            Self::WriteOutside | Self::KernelSetting => {
                &[libc::ENOENT, libc::EACCES, libc::EROFS, libc::EPERM]
            }
            Self::TcpDecoy => &[libc::ECONNREFUSED, libc::ENETUNREACH],
            Self::AbstractDecoy => &[libc::ECONNREFUSED, libc::EPERM],
            Self::ProcessDecoy => &[libc::ESRCH],
            Self::ProcessSecrets => &[libc::EACCES, libc::EPERM],
            Self::SetuidInWorkspace => &[libc::EPERM, libc::EROFS, libc::EACCES],
            Self::FileCapability | Self::NestedCapability => &[libc::EPERM, libc::EOPNOTSUPP],
            Self::WorkspaceWrite | Self::ProtectedWrite => &[libc::EROFS, libc::EACCES],
            Self::StdinReopen => &[libc::ENXIO],
            Self::SecondLock | Self::NestedSetting => &[libc::EACCES],
            Self::Privileges
            | Self::SetuidInHome
            | Self::Mount
            | Self::UserNamespace
            | Self::NestedRemount => &[libc::EPERM],
            Self::HomeWrite | Self::TempWrite => &[],
        }
    }
}

/// What the attempts need to know, sent inside.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CanaryPlan {
    /// A file of the host that can be read there.
    pub(crate) secret: PathBuf,
    /// A path of the host at which a file can be made there.
    pub(crate) outside: PathBuf,
    pub(crate) shadow_exists: bool,
    pub(crate) tcp_port: Option<u16>,
    pub(crate) abstract_name: Option<String>,
    pub(crate) process: ProcessMark,
    pub(crate) workspace: Option<WorkspaceProof>,
    pub(crate) protected: Vec<PathBuf>,
    pub(crate) rung: Rung,
}

/// A process and the moment it started: a process id alone may be given again inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProcessMark {
    pub(crate) pid: i32,
    /// Clock ticks since boot (field 22 of /proc/PID/stat).
    pub(crate) started: u64,
}

impl ProcessMark {
    /// When the process with this id, as this /proc sees it, started.
    pub(crate) fn started(pid: i32) -> Option<u64> {
        let line = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
        let line = String::from_utf8_lossy(&line);
        // From the state (field 3) on; the name before it may hold anything.
        let (_, rest) = line.rsplit_once(") ")?;
        rest.split(' ').nth(19)?.parse().ok()
    }
}
