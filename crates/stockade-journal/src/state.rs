//! The state directory: where runs, providers, private homes and locks live.

use std::{
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{CWD, Mode, Stat},
    io::Errno,
    process::geteuid,
};
use stockade_core::receipt::LauncherRecord;

use crate::{
    error::{ErrorKind, JournalError},
    files::{self, PRIVATE_FOLDER},
    run_dir::RunDir,
};

/// Providers are read by the agent, who may be another user: 0755 inside a private root.
const SHARED_FOLDER: Mode = Mode::from_raw_mode(0o755);

pub(crate) const RUNS: &str = "runs";
pub(crate) const PROVIDERS: &str = "providers";
pub(crate) const HOMES: &str = "homes";
pub(crate) const LOCKS: &str = "locks";
pub(crate) const WORKTREES: &str = "worktrees";

/// A state directory that belongs to the caller alone.
#[derive(Debug)]
pub struct State {
    root: PathBuf,
    folder: OwnedFd,
}

impl State {
    /// Opens the state directory at an absolute path and makes it (0700, parents included) if it is missing. A root
    /// that is a link is resolved once, here.
    pub fn create(root: &Path) -> Result<Self, JournalError> {
        require_absolute(root)?;
        make_all(root)?;
        Self::open(root)
    }

    /// Opens a state directory that must be there; [`ErrorKind::NotFound`] if it is not.
    pub fn open(root: &Path) -> Result<Self, JournalError> {
        require_absolute(root)?;
        let root = canonical("open", root)?;
        let folder = files::open_folder(CWD, &root).map_err(|e| JournalError::refused("open", &root, e))?;
        let stat = rustix::fs::fstat(&folder).map_err(|e| JournalError::storage("stat", &root, e))?;
        require_own(&root, &stat)?;
        Ok(Self { root, folder })
    }

    /// Its path, without links.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder of installed providers (0755), made if it is missing.
    pub fn providers(&self) -> Result<PathBuf, JournalError> {
        self.ensure(PROVIDERS, SHARED_FOLDER).map(|_| self.root.join(PROVIDERS))
    }

    /// The folder of locks (0700), made if it is missing.
    pub fn locks(&self) -> Result<PathBuf, JournalError> {
        self.ensure(LOCKS, PRIVATE_FOLDER).map(|_| self.root.join(LOCKS))
    }

    /// The folder of private homes (0700), made if it is missing.
    pub fn homes(&self) -> Result<PathBuf, JournalError> {
        self.ensure(HOMES, PRIVATE_FOLDER).map(|_| self.root.join(HOMES))
    }

    /// Makes the private home of a run (0700), which must not be there.
    pub fn create_home(&self, id: &str) -> Result<PathBuf, JournalError> {
        self.create_private(HOMES, id)
    }

    /// Makes the folder for a run's worktree and git folder (0700), which must not be there.
    pub fn create_worktree(&self, id: &str) -> Result<PathBuf, JournalError> {
        self.create_private(WORKTREES, id)
    }

    fn create_private(&self, name: &'static str, id: &str) -> Result<PathBuf, JournalError> {
        require_run_id(id)?;
        let parent = self.ensure(name, PRIVATE_FOLDER)?;
        let path = self.root.join(name).join(id);
        rustix::fs::mkdirat(&parent, id, PRIVATE_FOLDER)
            .and_then(|()| files::open_folder(&parent, id))
            .and_then(|made| rustix::fs::fchmod(made, PRIVATE_FOLDER))
            .map_err(|e| JournalError::refused("create", &path, e))?;
        Ok(path)
    }

    /// Makes the directory of a new run. Its launcher is recorded there and holds a lock for as long as the returned
    /// value lives, so that nothing of the run is taken for a leftover.
    pub fn create_run(&self, id: &str, launcher: &LauncherRecord) -> Result<RunDir, JournalError> {
        require_run_id(id)?;
        let runs = self.ensure(RUNS, PRIVATE_FOLDER)?;
        RunDir::create(&runs, &self.root.join(RUNS), id, launcher)
    }

    /// The path a run of this id has or would have.
    pub fn run_path(&self, id: &str) -> PathBuf {
        self.root.join(RUNS).join(id)
    }

    /// Opens one of its folders; `None` if it was never made.
    pub(crate) fn folder(&self, name: &'static str) -> Result<Option<OwnedFd>, JournalError> {
        match files::open_folder(&self.folder, name) {
            Ok(folder) => Ok(Some(folder)),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(JournalError::storage("open", &self.root.join(name), e)),
        }
    }

    fn ensure(&self, name: &'static str, mode: Mode) -> Result<OwnedFd, JournalError> {
        let path = self.root.join(name);
        let folder = files::ensure_folder(&self.folder, name, mode)
            .map_err(|e| JournalError::storage("create", &path, e))?;
        let stat = rustix::fs::fstat(&folder).map_err(|e| JournalError::storage("stat", &path, e))?;
        require_own(&path, &stat)?;
        Ok(folder)
    }
}

/// Run ids become names of folders: letters, digits and hyphens, 64 at most.
pub(crate) fn is_run_id(id: &str) -> bool {
    (1..=64).contains(&id.len())
        && !id.starts_with('-')
        && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

fn require_run_id(id: &str) -> Result<(), JournalError> {
    if is_run_id(id) {
        return Ok(());
    }
    let reason = "a run id is made of letters, digits and hyphens";
    Err(JournalError::new(ErrorKind::PathUnusable, "create", Path::new(id), reason))
}

pub(crate) fn require_absolute(path: &Path) -> Result<(), JournalError> {
    if path.is_absolute() {
        return Ok(());
    }
    Err(JournalError::new(ErrorKind::PathUnusable, "resolve", path, "not an absolute path"))
}

pub(crate) fn canonical(step: &'static str, path: &Path) -> Result<PathBuf, JournalError> {
    std::fs::canonicalize(path).map_err(|e| JournalError::refused(step, path, errno_of(&e)))
}

pub(crate) fn errno_of(error: &std::io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)
}

/// Somebody who can write the state directory can forge receipts and swap executables.
fn require_own(path: &Path, stat: &Stat) -> Result<(), JournalError> {
    let owner = geteuid().as_raw();
    let reason = if stat.st_uid != owner {
        format!("it belongs to user {}, not to user {owner}", stat.st_uid)
    } else if stat.st_mode & 0o022 != 0 {
        format!("others can write it (mode {:04o})", stat.st_mode & 0o7777)
    } else {
        return Ok(());
    };
    Err(JournalError::new(ErrorKind::StateRefused, "check", path, reason))
}

fn make_all(root: &Path) -> Result<(), JournalError> {
    use std::os::unix::fs::DirBuilderExt as _;
    // The base directory specification of freedesktop.org asks for 0700 on the way, too.
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(root)
        .map_err(|e| JournalError::storage("create", root, errno_of(&e)))
}

#[cfg(test)]
mod tests;
