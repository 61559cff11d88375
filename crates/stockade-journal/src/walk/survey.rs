//! What has to be known about a workspace before planning.

use std::path::{Path, PathBuf};

use rustix::{
    fs::{AtFlags, FileType},
    io::Errno,
};
use stockade_core::order::WorkspaceKind;

use super::{
    Bounds, Snapshot, mounts, open_root,
    tree::{FINDS, Walked, Walker},
};
use crate::{copy::open_below, error::JournalError, files, git_config};

/// A git configuration with everything in it is a few kilobytes; what is larger than this is not read.
const CONFIG_LIMIT_BYTES: usize = 16 * 1024 * 1024;

/// All of them together: a repository with a thousand submodules has about one megabyte.
const CONFIGS_LIMIT_BYTES: usize = 64 * 1024 * 1024;

/// A setting of a git configuration that holds a credential. Never its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitCredential {
    /// The file, relative to the workspace.
    pub file: PathBuf,
    /// The key, as `git config` names it; a credential inside the key is masked.
    pub key: String,
}

/// What a workspace is and what speaks against it. Paths are relative to it, the first five of each sort.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkspaceSurvey {
    /// The folder, without links.
    pub root: PathBuf,
    /// Whether the path given had a link in it.
    pub symlinked_root: bool,
    /// What `.git` at its root is, links followed.
    pub kind: WorkspaceKind,
    /// Whether `.git` at its root is a link.
    pub git_is_link: bool,
    /// The owner of the root.
    pub owner_uid: u32,
    /// Its group.
    pub owner_gid: u32,
    /// Sockets.
    pub sockets: Vec<PathBuf>,
    /// Paths whose owner is not the root's.
    pub foreign_owners: Vec<PathBuf>,
    /// Mount points below the root.
    pub submounts: Vec<PathBuf>,
    /// Folders that could not be walked.
    pub unreadable: Vec<PathBuf>,
    /// Credentials in `.git/config` and in those of submodules.
    pub git_credentials: Vec<GitCredential>,
    /// Whether everything was walked.
    pub complete: bool,
}

/// Walks a workspace once, for the survey and for the snapshot to compare with later.
pub fn survey_workspace(root: &Path, bounds: &Bounds) -> Result<(WorkspaceSurvey, Snapshot), JournalError> {
    let (resolved, folder) = open_root(root)?;
    let fail = |e: Errno| JournalError::refused("walk", &resolved, e);
    let stat = rustix::fs::fstat(&folder).map_err(fail)?;
    let walked = Walker::walk(&folder, bounds).map_err(fail)?;
    let (kind, git_is_link) = git_entry(&folder).map_err(fail)?;
    let Walked { entries, complete, sockets, foreign_owners, submounts, unreadable, git_configs } = walked;
    let mut mounted = mounts::below(&resolved);
    mounted.extend(submounts);
    mounted.sort();
    mounted.dedup();
    mounted.truncate(FINDS);
    let survey = WorkspaceSurvey {
        symlinked_root: resolved != root,
        kind,
        git_is_link,
        owner_uid: stat.st_uid,
        owner_gid: stat.st_gid,
        sockets,
        foreign_owners,
        submounts: mounted,
        unreadable,
        git_credentials: credentials(&resolved, &folder, git_is_link, git_configs),
        complete,
        root: resolved.clone(),
    };
    Ok((survey, Snapshot { root: resolved, folder, bounds: *bounds, entries, complete }))
}

fn git_entry(folder: &std::os::fd::OwnedFd) -> Result<(WorkspaceKind, bool), Errno> {
    let kind_of = |flags| match rustix::fs::statat(folder, c".git", flags) {
        Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
        Err(Errno::NOENT | Errno::LOOP) => Ok(None),
        Err(e) => Err(e),
    };
    let is_link = kind_of(AtFlags::SYMLINK_NOFOLLOW)? == Some(FileType::Symlink);
    let kind = match kind_of(AtFlags::empty())? {
        Some(FileType::Directory) => WorkspaceKind::MainWorktree,
        Some(_) => WorkspaceKind::LinkedWorktree,
        None => WorkspaceKind::Plain,
    };
    Ok((kind, is_link))
}

fn credentials(
    root: &Path,
    folder: &std::os::fd::OwnedFd,
    git_is_link: bool,
    mut configs: Vec<PathBuf>,
) -> Vec<GitCredential> {
    let main = Path::new(".git/config");
    // The walk may have ended before it came there.
    if !configs.iter().any(|c| c == main) {
        configs.insert(0, main.to_owned());
    }
    let mut found = Vec::new();
    let mut left = CONFIGS_LIMIT_BYTES;
    for file in configs {
        let limit = left.min(CONFIG_LIMIT_BYTES);
        let bytes = if git_is_link && file == main {
            // Git itself follows this link.
            std::fs::canonicalize(root.join(&file))
                .map_err(|_| Errno::NOENT)
                .and_then(|path| files::read_at(rustix::fs::CWD, path, limit))
        } else {
            open_below(folder, &file).and_then(|f| files::read_bounded(f, limit))
        };
        // One that is missing or cannot be read is of no use to the agent either.
        let bytes = bytes.unwrap_or_default();
        left = left.saturating_sub(bytes.len());
        let keys = git_config::credential_keys(&bytes);
        found.extend(keys.into_iter().map(|key| GitCredential { file: file.clone(), key }));
    }
    found.truncate(FINDS);
    found
}
