//! The private git folder: what stands in a fence where the real one would be.
//!
//! References and a fresh, small configuration; the real objects are borrowed, read-only. Hooks, remotes with their
//! tokens, other worktrees, reflogs and a stash are not in it. Whatever is done to it stays in it.

mod config;

use std::{
    fs::File,
    path::{Path, PathBuf},
};

use rustix::fs::{Timespec, Timestamps};
use stockade_core::git::{self, GitWorkspace, WorkTree};

use crate::{
    error::GitError,
    files,
    layout::Repository,
    refs::{self, Refs},
};

/// An index of a million files takes about a hundred megabytes.
const INDEX_LIMIT_BYTES: u64 = 512 * 1024 * 1024;
/// Lists of patterns and of shallow commits.
const LIST_LIMIT_BYTES: usize = 16 * 1024 * 1024;

/// The index of the caller's working tree as it was, for a comparison with its files.
const CALLERS_INDEX: &str = "callers-index";

/// A private git folder that was made.
#[derive(Clone, Debug)]
pub struct PrivateFolder {
    /// Where it is on the host.
    pub path: PathBuf,
    /// Where the folder of the working tree is, inside.
    pub git_dir: PathBuf,
    /// References as they were.
    pub refs: Refs,
    /// The text of its configuration.
    pub config: String,
}

/// What a private folder is made of.
#[derive(Clone, Copy, Debug)]
pub struct Content<'c> {
    /// The repository.
    pub repository: &'c Repository,
    /// How it is shown.
    pub workspace: &'c GitWorkspace,
}

impl PrivateFolder {
    /// Makes it at a path where nothing is.
    pub fn make(at: &Path, content: Content<'_>) -> Result<Self, GitError> {
        let Content { repository, workspace } = content;
        let refs = Refs::read(&repository.common)?;
        let config = config::text(repository, workspace);
        files::make_folder(at)?;
        for name in ["refs", "refs/heads", "refs/tags", "objects", "objects/info", "objects/pack", "info"] {
            files::make_folder(&at.join(name))?;
        }
        files::write(&at.join("config"), config.as_bytes())?;
        files::write(&at.join("packed-refs"), refs.to_packed().as_bytes())?;
        for (name, target) in &refs.symbolic {
            let path = at.join(name);
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(parent).map_err(|e| GitError::io("mkdir", parent, &e))?;
            }
            files::write(&path, format!("ref: {target}\n").as_bytes())?;
        }
        files::write(&at.join("objects/info/alternates"), format!("{}\n", git::OBJECTS).as_bytes())?;
        for name in ["info/exclude", "info/attributes", "shallow"] {
            copy_list(&repository.common.join(name), &at.join(name))?;
        }
        let git_dir = if workspace.tree == WorkTree::Made || repository.is_main() {
            files::write(&at.join("HEAD"), repository.head.to_file().as_bytes())?;
            copy_list(&repository.git_dir.join("info/sparse-checkout"), &at.join("info/sparse-checkout"))?;
            let index = if workspace.tree == WorkTree::Made { CALLERS_INDEX } else { "index" };
            copy_index(&repository.git_dir, at, index)?;
            workspace.shown_at.clone()
        } else {
            linked(at, repository)?;
            workspace.shown_at.join("worktrees").join(worktree_name(repository))
        };
        Ok(Self { path: at.to_owned(), git_dir, refs, config })
    }

    /// Takes the caller's index away that came along for a comparison.
    pub fn forget_callers_index(&self) -> Result<(), GitError> {
        let path = self.path.join(CALLERS_INDEX);
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(GitError::io("remove", &path, &e)),
            _ => Ok(()),
        }
    }

    /// Where the index of a made worktree is on the host.
    pub fn index(&self) -> PathBuf {
        self.path.join("index")
    }
}

/// The folder of a linked worktree within the private one.
fn linked(at: &Path, repository: &Repository) -> Result<(), GitError> {
    // What the main working tree has checked out is nobody's business here, but a git folder needs some.
    let main = refs::loose(&repository.common.join("HEAD"));
    let main = main.map_err(|e| GitError::kernel("read", &repository.common.join("HEAD"), e))?;
    let main = match main {
        Some(refs::Loose::Symbolic(name)) => format!("ref: {name}\n"),
        Some(refs::Loose::Object(object)) => format!("{object}\n"),
        None => repository.head.to_file(),
    };
    files::write(&at.join("HEAD"), main.as_bytes())?;
    files::make_folder(&at.join("worktrees"))?;
    let own = at.join("worktrees").join(worktree_name(repository));
    files::make_folder(&own)?;
    files::make_folder(&own.join("info"))?;
    files::write(&own.join("HEAD"), repository.head.to_file().as_bytes())?;
    files::write(&own.join("commondir"), b"../..\n")?;
    let back = format!("{}\n", repository.worktree.join(".git").display());
    files::write(&own.join("gitdir"), back.as_bytes())?;
    copy_list(&repository.git_dir.join("info/sparse-checkout"), &own.join("info/sparse-checkout"))?;
    copy_index(&repository.git_dir, &own, "index")
}

fn worktree_name(repository: &Repository) -> &Path {
    repository.git_dir.file_name().map_or(Path::new("lane"), Path::new)
}

fn copy_list(from: &Path, to: &Path) -> Result<(), GitError> {
    match files::read(from, LIST_LIMIT_BYTES).map_err(|e| GitError::kernel("read", from, e))? {
        Some(bytes) => files::write(to, &bytes),
        None => Ok(()),
    }
}

/// Copies an index and what it shares with others. Its time comes along: git takes files that are not older than the
/// index for changed until it has read them.
fn copy_index(from: &Path, to: &Path, name: &str) -> Result<(), GitError> {
    copy_file(&from.join("index"), &to.join(name))?;
    let Ok(entries) = std::fs::read_dir(from) else { return Ok(()) };
    for entry in entries.flatten().filter(|e| e.file_name().to_string_lossy().starts_with("sharedindex.")) {
        copy_file(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}

fn copy_file(from: &Path, to: &Path) -> Result<(), GitError> {
    use std::io::Read as _;
    let Some(file) = files::open(from).map_err(|e| GitError::kernel("open", from, e))? else { return Ok(()) };
    let stat = rustix::fs::fstat(&file).map_err(|e| GitError::kernel("stat", from, e))?;
    let mut target = files::create(to)?;
    let mut source = File::from(file).take(INDEX_LIMIT_BYTES);
    let copied = std::io::copy(&mut source, &mut target).map_err(|e| GitError::io("copy", to, &e))?;
    if copied == INDEX_LIMIT_BYTES {
        return Err(GitError::new("copy", from, "it has more than 512 MiB"));
    }
    #[expect(clippy::cast_possible_wrap, reason = "nanoseconds are below 10^9")]
    let time = Timespec { tv_sec: stat.st_mtime, tv_nsec: stat.st_mtime_nsec as i64 };
    let times = Timestamps { last_access: time, last_modification: time };
    rustix::fs::futimens(&target, &times).map_err(|e| GitError::kernel("utimensat", to, e))
}

#[cfg(test)]
mod tests;
