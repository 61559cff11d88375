//! The walker: what a workspace holds, what changed in it, and what would keep it from being one.
//!
//! It never follows a link, opens nothing but folders while walking, and is bounded in entries, depth and bytes. One
//! walk gives both the survey before planning and the snapshot to compare with.

mod changes;
mod entry;
mod mounts;
mod survey;
mod tree;
mod usage;

use std::{
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use rustix::fs::CWD;

use self::{entry::Entry, tree::Walker};
pub use self::{
    survey::{GitCredential, WorkspaceSurvey, survey_workspace},
    usage::{Usage, UsageBounds, disk_usage},
};
use crate::{digest, error::JournalError, files, state::canonical};

/// How far the walker goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Entries recorded.
    pub entries: usize,
    /// Folders below each other. One descriptor is open for each.
    pub depth: usize,
    /// Changes listed.
    pub changes: usize,
    /// Bytes of a file that is hashed.
    pub hashed_file_bytes: u64,
    /// Bytes hashed for all changes together.
    pub hashed_bytes: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            entries: 200_000,
            depth: 256,
            changes: 10_000,
            hashed_file_bytes: 64 * 1024 * 1024,
            // About a second of hashing.
            hashed_bytes: 1024 * 1024 * 1024,
        }
    }
}

/// What a folder held at one moment.
#[derive(Debug)]
pub struct Snapshot {
    root: PathBuf,
    folder: OwnedFd,
    bounds: Bounds,
    /// Sorted by path.
    entries: Vec<Entry>,
    complete: bool,
}

impl Snapshot {
    /// Walks `root`, which may be a link to a folder. Only the root itself can fail it: what cannot be read below makes
    /// it incomplete.
    pub fn take(root: &Path, bounds: &Bounds) -> Result<Self, JournalError> {
        let (root, folder) = open_root(root)?;
        let walked = Walker::walk(&folder, bounds).map_err(|e| JournalError::refused("walk", &root, e))?;
        Ok(Self { root, folder, bounds: *bounds, entries: walked.entries, complete: walked.complete })
    }

    /// The folder, without links.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// How many entries were recorded, the root included.
    pub fn entry_count(&self) -> usize {
        self.entries.len()
    }

    /// Whether everything was seen.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Bytes of all regular files together.
    pub fn file_bytes(&self) -> u64 {
        self.entries.iter().filter(|e| e.is_file()).fold(0, |sum, e| sum.saturating_add(e.size))
    }

    /// A digest of names, kinds, modes, sizes and modification times: two that are equal were taken of a folder in which
    /// nobody had worked in between. The folder's own times do not count.
    pub fn fingerprint(&self) -> String {
        let mut text = Vec::new();
        for entry in self.entries.iter().filter(|e| !e.path.is_empty()) {
            text.extend_from_slice(&entry.path);
            let what = (entry.kind, entry.mode, entry.ino);
            // The time of a folder moves with what is in it, which is listed.
            let file = entry.is_file().then_some((entry.size, entry.mtime));
            text.extend_from_slice(format!("\0{what:?} {file:?} {:?}\n", entry.target).as_bytes());
        }
        digest::sha256_hex(&text)
    }

    /// What changed from `before` to `after`; reads the changed files of `after` for their digests.
    pub fn changes(before: &Self, after: &Self) -> stockade_core::changes::Changes {
        changes::between(before, after)
    }
}

fn open_root(root: &Path) -> Result<(PathBuf, OwnedFd), JournalError> {
    let root = canonical("resolve", root)?;
    let folder = files::open_folder(CWD, &root).map_err(|e| JournalError::refused("open", &root, e))?;
    Ok((root, folder))
}

#[cfg(test)]
mod tests;
