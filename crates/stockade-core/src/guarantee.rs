//! The guarantees a fence can give: a closed list, with the ids used in code, receipts and documentation.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{mode::AccessMode, survey::Rung};

/// One promise about what an agent and its tools cannot do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Guarantee {
    /// Nothing under the workspace changes.
    WorkspaceReadonly,
    /// Content and metadata outside workspace, private temp and home stay unchanged.
    WriteConfinement,
    /// Hooks, config, refs, objects and other worktrees of the repository stay unchanged.
    RepoMetadata,
    /// Credentials, foreign homes and tokens are unreadable, the run's own credential too.
    Secrets,
    /// Other processes are not visible, signalled, traced or reprioritised.
    ProcessVisibility,
    /// No new privileges; no setuid, setgid or file-capability file appears on disk.
    Privileges,
    /// No namespaces or mounts can be made from inside.
    NoNesting,
    /// Only what the network policy names is reachable.
    Network,
    /// The process tree ends with the run, whoever dies first.
    TreeEnd,
    /// Output, wall clock and idle limits hold.
    Bounds,
    /// Processes, memory and disk are limited: enforced or watched.
    Limits,
}

impl Guarantee {
    /// Every guarantee, in the order of the documentation.
    pub const ALL: [Self; 11] = [
        Self::WorkspaceReadonly,
        Self::WriteConfinement,
        Self::RepoMetadata,
        Self::Secrets,
        Self::ProcessVisibility,
        Self::Privileges,
        Self::NoNesting,
        Self::Network,
        Self::TreeEnd,
        Self::Bounds,
        Self::Limits,
    ];

    /// The id used in flags, receipts and documentation.
    pub const fn id(self) -> &'static str {
        match self {
            Self::WorkspaceReadonly => "workspace-readonly",
            Self::WriteConfinement => "write-confinement",
            Self::RepoMetadata => "repo-metadata",
            Self::Secrets => "secrets",
            Self::ProcessVisibility => "process-visibility",
            Self::Privileges => "privileges",
            Self::NoNesting => "no-nesting",
            Self::Network => "network",
            Self::TreeEnd => "tree-end",
            Self::Bounds => "bounds",
            Self::Limits => "limits",
        }
    }

    /// What the guarantee means, in one sentence for people.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::WorkspaceReadonly => "nothing under the workspace changes",
            Self::WriteConfinement => {
                "content and metadata outside the workspace, private temp and home stay unchanged"
            }
            Self::RepoMetadata => "hooks, config, refs, objects and other worktrees stay unchanged",
            Self::Secrets => "credentials, foreign homes and tokens cannot be read",
            Self::ProcessVisibility => "other processes cannot be seen, signalled, traced or reprioritised",
            Self::Privileges => "no new privileges, and no privileged file appears on disk",
            Self::NoNesting => "no namespaces or mounts can be made from inside",
            Self::Network => "only what the network policy names can be reached",
            Self::TreeEnd => "the process tree ends with the run, whoever dies first",
            Self::Bounds => "output, wall clock and idle limits hold",
            Self::Limits => "processes, memory and disk are limited",
        }
    }

    /// Finds a guarantee by its id.
    pub fn from_id(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|g| g.id() == id)
    }

    /// Whether a run in this mode needs the guarantee, on a rung that does not nest, unless the caller accepts its
    /// absence in words.
    pub const fn required_in(self, mode: AccessMode) -> bool {
        match self {
            Self::WorkspaceReadonly => matches!(mode, AccessMode::ReadOnly),
            Self::Limits => false,
            Self::WriteConfinement
            | Self::RepoMetadata
            | Self::Secrets
            | Self::ProcessVisibility
            | Self::Privileges
            | Self::NoNesting
            | Self::Network
            | Self::TreeEnd
            | Self::Bounds => true,
        }
    }

    /// Whether a run in this mode on this rung needs the guarantee. A rung that nests cannot also forbid nesting.
    pub fn required_on(self, rung: Rung, mode: AccessMode) -> bool {
        self.required_in(mode) && !(self == Self::NoNesting && rung.nests())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_the_serialised_names_and_round_trip() {
        for g in Guarantee::ALL {
            assert_eq!(serde_json::to_value(g).unwrap(), g.id());
            assert_eq!(Guarantee::from_id(g.id()), Some(g));
        }
        assert_eq!(Guarantee::from_id("toString"), None);
    }
}
