//! What a program is known to leave in a folder: looked for before it starts, removed when it has ended.
//!
//! Nothing that was there before is touched, and no link is followed on the way: whoever worked in the folder may have
//! put one anywhere.

use std::{
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags},
    io::Errno,
};

use crate::{
    error::{ErrorKind, JournalError},
    files, remove,
};

/// Paths of a folder that were not there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Residue {
    /// Relative to the folder, inner ones first.
    absent: Vec<Absent>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Absent {
    path: PathBuf,
    what: What,
}

/// What is removed of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// All of it.
    Everything,
    /// A folder on the way to it, if nothing else is in it.
    EmptyFolder,
}

impl Residue {
    /// Remembers which of these relative paths are not there, and which folders on the way to them.
    pub fn look_for(root: &Path, paths: &[String]) -> Self {
        let mut absent: Vec<Absent> = Vec::new();
        for path in paths {
            let mut what = What::Everything;
            for path in Path::new(path).ancestors().filter(|path| !path.as_os_str().is_empty()) {
                let is_known = absent.iter().any(|known| known.path == path);
                if is_known || !is_absent(root, path) {
                    break;
                }
                absent.push(Absent { path: path.to_owned(), what });
                what = What::EmptyFolder;
            }
        }
        absent.sort_by_key(|absent| std::cmp::Reverse(absent.path.components().count()));
        Self { absent }
    }

    /// Removes what is there now of the paths that were not. Gives those that were removed.
    pub fn remove(&self, root: &Path) -> Result<Vec<PathBuf>, JournalError> {
        let mut removed = Vec::new();
        for Absent { path, what } in &self.absent {
            let (Ok(Some(folder)), Some(name)) = (parent(root, path), path.file_name()) else { continue };
            if !matches!(files::identity_at(&folder, name), Ok(Some(_))) {
                continue;
            }
            match what {
                What::Everything => remove::remove_entry(&folder, name, &root.join(path))?,
                What::EmptyFolder => match rustix::fs::unlinkat(&folder, name, AtFlags::REMOVEDIR) {
                    Ok(()) => {}
                    Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR | Errno::NOENT) => continue,
                    Err(e) => return Err(JournalError::refused("remove", &root.join(path), e)),
                },
            }
            removed.push(path.clone());
        }
        Ok(removed)
    }
}

/// Whether a path is surely not there. What cannot be looked at, or lies behind a link, counts as being there.
fn is_absent(root: &Path, path: &Path) -> bool {
    match (parent(root, path), path.file_name()) {
        (Ok(None), _) => true,
        (Ok(Some(folder)), Some(name)) => matches!(files::identity_at(&folder, name), Ok(None)),
        _ => false,
    }
}

/// The folder that a path lies in; `None`: it is not there.
fn parent(root: &Path, path: &Path) -> Result<Option<OwnedFd>, JournalError> {
    let fail = |e| JournalError::refused("open", &root.join(path), e);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::openat(CWD, root, flags, Mode::empty()).map_err(fail)?;
    let Some(parent) = path.parent() else {
        return Err(JournalError::new(ErrorKind::PathUnusable, "open", path, "no parent"));
    };
    if parent.as_os_str().is_empty() {
        return Ok(Some(root));
    }
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match rustix::fs::openat2(&root, parent, flags, Mode::empty(), resolve) {
        Ok(folder) => Ok(Some(folder)),
        Err(Errno::NOENT) => Ok(None),
        Err(e) => Err(fail(e)),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    fn paths() -> Vec<String> {
        ["a/b/left", "c/left", "file"].map(str::to_owned).into()
    }

    fn fill(root: &Path) {
        for folder in ["a/b/left/deep", "c/left"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        fs::write(root.join("a/b/left/deep/x"), "x").unwrap();
        fs::write(root.join("file"), "x").unwrap();
    }

    #[test]
    fn what_was_not_there_goes_with_the_folders_made_for_it() {
        let root = tempfile::tempdir().unwrap();
        let residue = Residue::look_for(root.path(), &paths());
        fill(root.path());
        let removed = residue.remove(root.path()).unwrap();
        assert_eq!(removed, ["a/b/left", "a/b", "c/left", "a", "c", "file"].map(PathBuf::from));
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
        assert_eq!(residue.remove(root.path()).unwrap(), [] as [PathBuf; 0]);
    }

    #[test]
    fn what_was_there_stays_and_so_does_a_folder_with_something_else_in_it() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("c/left")).unwrap();
        fs::write(root.path().join("file"), "mine").unwrap();
        let residue = Residue::look_for(root.path(), &paths());
        fill(root.path());
        fs::write(root.path().join("a/settings"), "made on purpose").unwrap();
        assert_eq!(residue.remove(root.path()).unwrap(), ["a/b/left", "a/b"].map(PathBuf::from));
        assert!(root.path().join("a/settings").exists() && root.path().join("c/left").exists());
        assert!(root.path().join("file").exists());
    }

    #[test]
    fn links_are_not_followed() {
        let (root, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir_all(elsewhere.path().join("b/left")).unwrap();
        fs::create_dir_all(elsewhere.path().join("left")).unwrap();
        symlink(elsewhere.path(), root.path().join("c")).unwrap();
        let residue = Residue::look_for(root.path(), &paths());
        symlink(elsewhere.path(), root.path().join("a")).unwrap();
        symlink(elsewhere.path(), root.path().join("file")).unwrap();
        assert_eq!(residue.remove(root.path()).unwrap(), ["file"].map(PathBuf::from), "the link itself goes");
        assert!(elsewhere.path().join("b/left").exists() && elsewhere.path().join("left").exists());
    }
}
