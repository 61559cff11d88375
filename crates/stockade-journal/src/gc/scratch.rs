//! Scratch folders of commands that were killed.

use std::{
    ffi::OsStr,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use rustix::{
    fs::{CWD, FlockOperation, flock},
    io::Errno,
};

use super::{Leftover, LeftoverKind, find, groups};
use crate::{
    error::{ErrorKind, JournalError},
    files,
    remove::remove_tree,
    scratch::PREFIXES,
};

/// A folder that is not locked may have been made just now: making and locking it takes far less.
const MAKING: Duration = Duration::from_secs(2);

/// What commands that were killed left in a folder for temporary things, with their control groups. Only the caller's own is
/// looked at.
pub fn scratch_of_the_killed(temporary: &Path, now: SystemTime) -> Vec<Leftover> {
    let mut found = Vec::new();
    for path in dead_folders(temporary, now) {
        let groups = groups::left(&path);
        let is_empty = groups.iter().all(|(_, empty)| *empty);
        let why = |empty| if empty { "its command was killed" } else { "something of it is still running" };
        for (group, empty) in groups {
            found.push(find::leftover(LeftoverKind::ControlGroup, group, None, why(empty), empty));
        }
        // Without it nobody would know the groups.
        found.push(find::leftover(LeftoverKind::Scratch, path, None, why(is_empty), is_empty));
    }
    found.sort_by(|a, b| (a.kind, &a.path).cmp(&(b.kind, &b.path)));
    found
}

fn dead_folders(temporary: &Path, now: SystemTime) -> impl Iterator<Item = PathBuf> {
    let own = rustix::process::geteuid().as_raw();
    let entries = std::fs::read_dir(temporary).into_iter().flatten().flatten();
    let named = entries.filter(|entry| is_ours(&entry.file_name())).map(|entry| entry.path());
    named.filter(move |path| {
        let Ok(metadata) = std::fs::symlink_metadata(path) else { return false };
        let age = metadata.modified().ok().and_then(|changed| now.duration_since(changed).ok());
        metadata.is_dir()
            && metadata.uid() == own
            && age.is_some_and(|age| age >= MAKING)
            && hold(path).is_ok_and(|held| held.is_some())
    })
}

fn is_ours(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| PREFIXES.iter().any(|prefix| name.starts_with(prefix)))
}

/// Takes the lock of the folder; `None`: it is gone. An error: its command lives.
fn hold(path: &Path) -> Result<Option<std::os::fd::OwnedFd>, Errno> {
    match files::open_folder(CWD, path) {
        Ok(folder) => flock(&folder, FlockOperation::NonBlockingLockExclusive).map(|()| Some(folder)),
        Err(Errno::NOENT) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Removes one while holding its lock.
pub(super) fn remove(path: &Path) -> Result<(), JournalError> {
    let _held = hold(path).map_err(|e| JournalError::refused_as(ErrorKind::InUse, "lock", path, e))?;
    remove_tree(path)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn only_folders_of_the_killed_are_left_over() {
        use LeftoverKind::{ControlGroup, Scratch as Folder};

        let t = tempfile::tempdir().unwrap();
        let at = |name: &str| t.path().join(name);
        let living = Scratch::make(at("stockade-doctor-1")).unwrap();
        let groups = at("groups");
        fs::create_dir_all(groups.join("stockade-s-1")).unwrap();
        fs::write(groups.join("stockade-s-1/cgroup.procs"), "").unwrap();
        let hierarchy: stockade_core::limits::CgroupHierarchy = serde_json::from_value(
            serde_json::json!({ "version": 1, "parent": groups, "controllers": ["memory"] }),
        )
        .unwrap();
        living.note_groups("s-1", std::slice::from_ref(&hierarchy)).unwrap();
        fs::create_dir(at("stockade-fence-check-2")).unwrap();
        fs::create_dir(at("of-somebody-else")).unwrap();
        fs::write(at("stockade-rehearsal-3"), "").unwrap();

        // Now by the clock of the file system, which is what their age is measured by.
        let now = fs::metadata(at("stockade-rehearsal-3")).unwrap().modified().unwrap();
        let later = now + Duration::from_secs(60);
        assert_eq!(scratch_of_the_killed(t.path(), now), [], "it may be in the making");
        let found = scratch_of_the_killed(t.path(), later);
        assert_eq!(found.iter().map(|l| &l.path).collect::<Vec<_>>(), [&at("stockade-fence-check-2")]);
        assert!(remove(living.path()).is_err(), "its command lives");
        assert!(living.path().is_dir());

        // As a kill leaves it: the lock goes with the process, the folder stays.
        let path = living.path().to_owned();
        let kept = at("kept");
        fs::rename(&path, &kept).unwrap();
        drop(living);
        fs::rename(&kept, &path).unwrap();
        let kinds = |now| {
            let found = scratch_of_the_killed(t.path(), now);
            found.into_iter().map(|l| (l.kind, l.safe)).collect::<Vec<_>>()
        };
        assert_eq!(kinds(later), [(ControlGroup, true), (Folder, true), (Folder, true)]);
        fs::write(groups.join("stockade-s-1/cgroup.procs"), "42\n").unwrap();
        assert_eq!(kinds(later), [(ControlGroup, false), (Folder, false), (Folder, true)]);
        remove(&path).unwrap();
        remove(&path).unwrap();
        assert!(!path.exists());
    }
}
