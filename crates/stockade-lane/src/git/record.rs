//! What is kept beside a worktree, so that whoever cleans up knows what it is.

use std::{fs, io::Write as _, os::unix::fs::OpenOptionsExt as _, path::Path};

use serde::{Deserialize, Serialize};
use stockade_core::git::WorkTree;

/// The file beside the worktree.
const NAME: &str = "worktree.json";
const LIMIT_BYTES: u64 = 4 * 1024 * 1024;

/// The record of a worktree or of a private git folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WorktreeRecord {
    /// The repository's common folder.
    pub(super) repository: String,
    /// Which files the agent worked on.
    pub(super) tree: WorkTree,
    /// How it ended; `None`: it did not, or the work could not be taken out.
    pub(super) taken: Option<Taken>,
}

/// What was taken out of a worktree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Taken {
    /// The commits.
    pub(super) commits: Vec<String>,
    /// What the files looked like then.
    pub(super) fingerprint: String,
}

impl WorktreeRecord {
    /// Writes it into a folder, whole or not at all.
    pub(super) fn write(&self, folder: &Path) -> std::io::Result<()> {
        let staged = folder.join(format!(".{NAME}.tmp"));
        // Only a process that died in between leaves one.
        drop(fs::remove_file(&staged));
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&staged)?;
        file.write_all(&serde_json::to_vec(self).unwrap_or_default())?;
        fs::rename(&staged, folder.join(NAME))
    }

    /// Reads it; `None`: there is none that can be read.
    pub(super) fn read(folder: &Path) -> Option<Self> {
        let path = folder.join(NAME);
        let small = fs::symlink_metadata(&path).is_ok_and(|m| m.is_file() && m.len() <= LIMIT_BYTES);
        small.then(|| fs::read(&path).ok()).flatten().and_then(|bytes| serde_json::from_slice(&bytes).ok())
    }
}
