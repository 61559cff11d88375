//! Where a path to be reserved really is.

use std::{
    ffi::{OsStr, OsString},
    os::{fd::OwnedFd, unix::ffi::OsStrExt as _},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, Mode},
    io::Errno,
};

use super::open_parent;
use crate::{
    error::{ErrorKind, JournalError},
    files,
    state::{errno_of, require_absolute},
};

/// The mode asked for when parent folders are made; the umask takes its part.
const PARENT_MODE: Mode = Mode::from_raw_mode(0o777);

/// A path taken apart: the folder that exists, the folders to be made below it, the name of the file.
#[derive(Debug)]
pub(super) struct Place {
    existing: PathBuf,
    missing: Vec<OsString>,
    pub(super) name: OsString,
}

/// A folder that was made for a reservation.
#[derive(Debug)]
pub(super) struct MadeFolder {
    parent: OwnedFd,
    name: OsString,
}

impl MadeFolder {
    /// Takes it away again, unless somebody put something into it.
    pub(super) fn remove_if_empty(&self) {
        let _in_use = rustix::fs::unlinkat(&self.parent, &*self.name, AtFlags::REMOVEDIR);
    }
}

impl Place {
    /// Resolves every link of the folders that are there. Creates nothing.
    pub(super) fn resolve(path: &Path) -> Result<Self, JournalError> {
        let unusable = |reason: &str| JournalError::new(ErrorKind::PathUnusable, "resolve", path, reason);
        require_absolute(path)?;
        let bytes = path.as_os_str().as_bytes();
        if bytes.contains(&0) {
            return Err(unusable("a path cannot hold a zero byte"));
        }
        // `Path` drops a last `/` or `/.`, with which only a folder can be meant.
        let last = bytes.rsplit(|b| *b == b'/').next().unwrap_or_default();
        let (Some(name), Some(mut parent)) = (path.file_name(), path.parent()) else {
            return Err(unusable("no file name at its end"));
        };
        if last != name.as_bytes() {
            return Err(unusable("it names a folder"));
        }
        let mut missing: Vec<OsString> = Vec::new();
        let existing = loop {
            match std::fs::canonicalize(parent).map_err(|e| errno_of(&e)) {
                Ok(existing) => break existing,
                Err(Errno::NOENT) => {
                    let name =
                        parent.file_name().ok_or_else(|| unusable("`..` below a folder that is missing"))?;
                    missing.push(name.to_owned());
                    parent = parent.parent().ok_or_else(|| unusable("no folder above it"))?;
                }
                Err(e) => return Err(JournalError::refused("resolve", path, e)),
            }
        };
        missing.reverse();
        Ok(Self { existing, missing, name: name.to_owned() })
    }

    /// The path without links.
    pub(super) fn path(&self) -> PathBuf {
        let mut path = self.existing.clone();
        path.extend(&self.missing);
        path.push(&self.name);
        path
    }

    /// Refuses a path inside one of these folders, whether by name or because a folder on the way is one of them under
    /// another name.
    pub(super) fn require_outside(&self, roots: &[PathBuf]) -> Result<(), JournalError> {
        let path = self.path();
        for root in roots {
            let resolved = std::fs::canonicalize(root);
            let root = resolved.as_deref().unwrap_or(root);
            let same_folder = |folder: &Path| {
                let id = |p: &Path| rustix::fs::stat(p).map(|s| files::FileId::of(&s)).ok();
                id(root).is_some_and(|r| id(folder) == Some(r))
            };
            if path.starts_with(root) || self.existing.ancestors().any(same_folder) {
                let reason = format!("the agent can write there: it is inside `{}`", root.display());
                return Err(JournalError::new(ErrorKind::InsideWritableRoot, "check", &path, reason));
            }
        }
        Ok(())
    }

    /// Makes the missing folders and opens the last. On failure those made are taken away again.
    pub(super) fn enter(&self) -> Result<(OwnedFd, Vec<MadeFolder>), JournalError> {
        let mut path = self.existing.clone();
        let mut made: Vec<MadeFolder> = Vec::new();
        let mut folder = open_parent(&path).map_err(|e| JournalError::refused("open", &path, e))?;
        for name in &self.missing {
            path.push(name);
            match enter_one(folder, name) {
                Ok((next, new)) => {
                    folder = next;
                    made.extend(new);
                }
                Err(e) => {
                    for folder in made.iter().rev() {
                        folder.remove_if_empty();
                    }
                    return Err(JournalError::refused("create folder", &path, e));
                }
            }
        }
        Ok((folder, made))
    }
}

fn enter_one(folder: OwnedFd, name: &OsStr) -> Result<(OwnedFd, Option<MadeFolder>), Errno> {
    match rustix::fs::mkdirat(&folder, name, PARENT_MODE) {
        Ok(()) => {
            let made = MadeFolder { parent: folder, name: name.to_owned() };
            match files::open_folder(&made.parent, name) {
                Ok(next) => Ok((next, Some(made))),
                Err(e) => {
                    made.remove_if_empty();
                    Err(e)
                }
            }
        }
        // Another process was faster; its folder serves as well.
        Err(Errno::EXIST) => files::open_folder(&folder, name).map(|next| (next, None)),
        Err(e) => Err(e),
    }
}
