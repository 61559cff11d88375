//! What changed in a workspace: by walking it before and after, or between two commits where the work became commits.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What happened to one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeKind {
    /// It was not there before.
    Added,
    /// Its content changed.
    Modified,
    /// Its mode, owner or link target changed, not its content.
    Metadata,
    /// It is gone.
    Deleted,
}

/// One changed path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FileChange {
    /// Relative to the workspace; bytes that are no UTF-8 are replaced.
    pub path: String,
    /// What happened.
    pub kind: ChangeKind,
    /// SHA-256 of the content afterwards; `None` for folders, links, deleted files and files over the hash limit.
    pub sha256: Option<String>,
    /// Bytes afterwards.
    pub bytes: Option<u64>,
}

/// What changed in the workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Changes {
    /// Commits the agent made, newest first, at most 1,000.
    pub commits: Vec<String>,
    /// Changed paths, sorted, at most 10,000.
    pub files: Vec<FileChange>,
    /// Whether everything was seen within the bounds.
    pub complete: bool,
}
