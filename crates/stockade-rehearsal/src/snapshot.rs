//! What a folder holds, so that two looks at it can be compared.

use std::{
    collections::BTreeMap,
    fmt, fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use stockade_journal::digest::sha256_hex;

use crate::error::RehearsalError;

/// The most entries that are looked at: a rehearsal makes a dozen.
const MAX_ENTRIES: usize = 10_000;
/// The longest file that is read, in bytes: a rehearsal's have a few dozen.
const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;

/// A folder with everything in it, by path relative to it. The folder itself has the empty path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Snapshot(BTreeMap<PathBuf, Entry>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    mode: u32,
    owner: (u32, u32),
    bytes: u64,
    modified: (i64, i64),
    /// Changes with any change of content or metadata and cannot be set by anybody.
    changed: (i64, i64),
    content: Content,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    File { sha256: String },
    Link { target: PathBuf },
    Folder,
    Other,
}

/// One difference between two looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Difference {
    Added,
    Removed,
    Changed,
}

impl fmt::Display for Difference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Added => "added",
            Self::Removed => "removed",
            Self::Changed => "changed",
        })
    }
}

impl Snapshot {
    /// Looks at a folder.
    pub(crate) fn take(root: &Path) -> Result<Self, RehearsalError> {
        let mut entries = BTreeMap::new();
        look(root, PathBuf::new(), &mut entries).map_err(|source| RehearsalError::Scratch {
            step: "read",
            path: root.to_owned(),
            source,
        })?;
        Ok(Self(entries))
    }

    /// What is different in a later look.
    pub(crate) fn differences(&self, later: &Self) -> BTreeMap<PathBuf, Difference> {
        let gone = self.0.keys().filter(|path| !later.0.contains_key(*path));
        let mut found: BTreeMap<_, _> = gone.map(|path| (path.clone(), Difference::Removed)).collect();
        for (path, entry) in &later.0 {
            match self.0.get(path) {
                None => found.insert(path.clone(), Difference::Added),
                Some(before) if before != entry => found.insert(path.clone(), Difference::Changed),
                Some(_) => None,
            };
        }
        found
    }

    /// Whether this path is a folder.
    pub(crate) fn is_folder(&self, path: &Path) -> bool {
        self.0.get(path).is_some_and(|entry| entry.content == Content::Folder)
    }

    /// The digest of a file.
    pub(crate) fn sha256(&self, path: &Path) -> Option<&str> {
        match &self.0.get(path)?.content {
            Content::File { sha256 } => Some(sha256),
            Content::Link { .. } | Content::Folder | Content::Other => None,
        }
    }

    /// User and group of a path.
    pub(crate) fn owner(&self, path: &Path) -> Option<(u32, u32)> {
        self.0.get(path).map(|entry| entry.owner)
    }

    /// How many entries there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

fn look(root: &Path, path: PathBuf, entries: &mut BTreeMap<PathBuf, Entry>) -> io::Result<()> {
    let mut open = vec![path];
    while let Some(path) = open.pop() {
        if entries.len() >= MAX_ENTRIES {
            return Err(io::Error::other(format!("more than {MAX_ENTRIES} entries")));
        }
        let full = root.join(&path);
        let meta = fs::symlink_metadata(&full)?;
        let content = if meta.is_dir() {
            for entry in fs::read_dir(&full)? {
                open.push(path.join(entry?.file_name()));
            }
            Content::Folder
        } else if meta.is_symlink() {
            Content::Link { target: fs::read_link(&full)? }
        } else if meta.is_file() && meta.len() <= MAX_FILE_BYTES {
            Content::File { sha256: sha256_hex(&fs::read(&full)?) }
        } else {
            Content::Other
        };
        let entry = Entry {
            mode: meta.mode(),
            owner: (meta.uid(), meta.gid()),
            bytes: meta.len(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
            content,
        };
        entries.insert(path, entry);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn sees_what_was_added_removed_changed_and_chmodded() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("d")).unwrap();
        for name in ["kept", "edited", "gone", "d/mode"] {
            fs::write(path(name), "a").unwrap();
        }
        std::os::unix::fs::symlink("kept", path("link")).unwrap();
        let before = Snapshot::take(folder.path()).unwrap();
        assert_eq!(before.differences(&before), BTreeMap::new());
        assert_eq!(before.len(), 7);

        fs::write(path("edited"), "b").unwrap();
        fs::remove_file(path("gone")).unwrap();
        fs::write(path("new"), "c").unwrap();
        fs::set_permissions(path("d/mode"), fs::Permissions::from_mode(0o777)).unwrap();
        fs::remove_file(path("link")).unwrap();
        std::os::unix::fs::symlink("new", path("link")).unwrap();
        let after = Snapshot::take(folder.path()).unwrap();
        let expected = [
            ("", Difference::Changed),
            ("d/mode", Difference::Changed),
            ("edited", Difference::Changed),
            ("gone", Difference::Removed),
            ("link", Difference::Changed),
            ("new", Difference::Added),
        ];
        let expected = expected.map(|(path, difference)| (PathBuf::from(path), difference));
        assert_eq!(before.differences(&after), BTreeMap::from(expected));
    }

    #[test]
    fn an_edit_that_hides_its_time_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        fs::write(&path, "a").unwrap();
        let before = Snapshot::take(folder.path()).unwrap();
        let time = fs::metadata(&path).unwrap().modified().unwrap();
        fs::write(&path, "a").unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
        let after = Snapshot::take(folder.path()).unwrap();
        assert_eq!(before.differences(&after), BTreeMap::from([("f".into(), Difference::Changed)]));
    }
}
