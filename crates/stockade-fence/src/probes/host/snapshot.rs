//! The state of everything a probe could change, and the difference between two of them.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use stockade_core::mode::AccessMode;

use crate::error::{FenceError, Step};
use crate::probes::fixture::FixtureFacts;

use super::damage::Damage;

/// Larger files are not the fixture's: only their size is compared.
const CONTENT_LIMIT: u64 = 1 << 20;

/// Files of the machine that a probe opens for writing.
const SETTINGS: [(&str, &str); 2] =
    [("core_pattern", "/proc/sys/kernel/core_pattern"), ("/etc/hosts", "/etc/hosts")];

#[derive(Debug, Default)]
pub(super) struct Snapshot {
    files: BTreeMap<PathBuf, Entry>,
    privileged: Vec<PathBuf>,
    settings: BTreeMap<&'static str, Vec<u8>>,
    mounted: Vec<PathBuf>,
}

/// Everything about a file but when it was last read.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    mode: u32,
    owner: (u32, u32),
    size: u64,
    modified: (i64, i64),
    /// Moves with attributes, links and renames too. Not compared for folders.
    changed: Option<(i64, i64)>,
    content: Option<Vec<u8>>,
}

impl Snapshot {
    /// In a mode that lets the workspace change, of the workspace only the git pointer counts.
    pub(super) fn take(facts: &FixtureFacts, mode: AccessMode) -> Result<Self, FenceError> {
        let mut snapshot = Self::default();
        let workspace = (mode == AccessMode::IsolatedWrite).then_some(facts.workspace.as_path());
        snapshot.walk(&facts.root, workspace)?;
        for (name, path) in SETTINGS {
            snapshot.settings.insert(name, fs::read(path).step_on("read", path)?);
        }
        let host_name = rustix::system::uname().nodename().to_bytes().to_vec();
        snapshot.settings.insert("the host name", host_name);
        let mounts = fs::read_to_string("/proc/self/mountinfo").step_on("read", "/proc/self/mountinfo")?;
        snapshot.mounted = mounts
            .lines()
            .filter_map(|line| line.split(' ').nth(4))
            .map(PathBuf::from)
            .filter(|path| path.starts_with(&facts.root))
            .collect();
        Ok(snapshot)
    }

    fn walk(&mut self, path: &Path, exempt: Option<&Path>) -> Result<(), FenceError> {
        let metadata = fs::symlink_metadata(path).step_on("lstat", path)?;
        if gives_privileges(path, &metadata) {
            self.privileged.push(path.to_owned());
        }
        let is_exempt = exempt.is_some_and(|folder| path.starts_with(folder) && path != folder.join(".git"));
        if !is_exempt {
            self.files.insert(path.to_owned(), Entry::of(path, &metadata)?);
        }
        if metadata.is_dir() {
            for entry in fs::read_dir(path).step_on("read", path)? {
                self.walk(&entry.step_on("read", path)?.path(), exempt)?;
            }
        }
        Ok(())
    }

    /// What is different now.
    pub(super) fn compare(&self, now: &Self, facts: &FixtureFacts, mode: AccessMode) -> Vec<Damage> {
        let counts = |path: &Path| {
            mode == AccessMode::ReadOnly
                || !path.starts_with(&facts.workspace)
                || path == facts.workspace.join(".git")
        };
        let mut damage = Vec::new();
        for (path, entry) in self.files.iter().filter(|(path, _)| counts(path)) {
            match now.files.get(path) {
                None => damage.push(Damage::Removed(path.clone())),
                Some(other) if other != entry => damage.push(Damage::Changed(path.clone())),
                Some(_) => {}
            }
        }
        // A pointer that was not there before is a file of the workspace like any other.
        let added = now.files.keys().filter(|path| !self.files.contains_key(*path));
        let added = added.filter(|path| mode == AccessMode::ReadOnly || !path.starts_with(&facts.workspace));
        damage.extend(added.cloned().map(Damage::Added));
        damage.extend(now.privileged.iter().cloned().map(Damage::Privileged));
        let settings = now.settings.iter().filter(|(name, value)| self.settings.get(*name) != Some(*value));
        damage.extend(settings.map(|(name, _)| Damage::Setting(name)));
        damage.extend(now.mounted.iter().cloned().map(Damage::Mounted));
        damage
    }
}

impl Entry {
    fn of(path: &Path, metadata: &Metadata) -> Result<Self, FenceError> {
        let kind = metadata.file_type();
        let content = if kind.is_symlink() {
            Some(fs::read_link(path).step_on("readlink", path)?.into_os_string().into_encoded_bytes())
        } else if kind.is_file() && metadata.len() <= CONTENT_LIMIT {
            Some(fs::read(path).step_on("read", path)?)
        } else {
            None
        };
        let changed =
            (!kind.is_dir() && !kind.is_socket()).then(|| (metadata.ctime(), metadata.ctime_nsec()));
        Ok(Self {
            mode: metadata.mode(),
            owner: (metadata.uid(), metadata.gid()),
            size: if kind.is_dir() { 0 } else { metadata.len() },
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed,
            content,
        })
    }
}

/// A setuid or setgid file, or one with capabilities.
fn gives_privileges(path: &Path, metadata: &Metadata) -> bool {
    let mut none = [0_u8; 0];
    metadata.is_file()
        && (metadata.mode() & 0o6000 != 0
            || rustix::fs::lgetxattr(path, "security.capability", &mut none).is_ok_and(|size| size > 0))
}
