//! Walking a tree by descriptors.

use std::{
    ffi::{CStr, CString, OsStr},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::PathBuf,
};

use rustix::{
    fs::{AtFlags, FileType, RawDir, Statx, StatxAttributes, StatxFlags},
    io::Errno,
};

use super::{Bounds, entry::Entry};
use crate::{
    files::{self, CHUNK_BYTES},
    git_config,
};

/// How many finds of one sort are kept: enough for a message.
pub(super) const FINDS: usize = 5;

/// Git configuration files that are looked at, submodules' included.
const GIT_CONFIGS: usize = 1000;

/// What a walk found.
#[derive(Debug, Default)]
pub(super) struct Walked {
    /// Sorted by path.
    pub(super) entries: Vec<Entry>,
    pub(super) complete: bool,
    /// Relative paths, the first of each sort.
    pub(super) sockets: Vec<PathBuf>,
    pub(super) foreign_owners: Vec<PathBuf>,
    pub(super) submounts: Vec<PathBuf>,
    pub(super) unreadable: Vec<PathBuf>,
    pub(super) git_configs: Vec<PathBuf>,
}

/// A folder whose subfolders are being walked.
struct Level {
    folder: OwnedFd,
    /// Names with the index of their entry, in reverse order.
    subfolders: Vec<(CString, usize)>,
}

pub(super) struct Walker<'b> {
    bounds: &'b Bounds,
    owner: u32,
    device: (u32, u32),
    walked: Walked,
    buffer: Vec<u8>,
}

impl<'b> Walker<'b> {
    /// Walks everything below an open folder.
    pub(super) fn walk(root: &OwnedFd, bounds: &'b Bounds) -> Result<Walked, Errno> {
        let stat = stat(root, c"", AtFlags::EMPTY_PATH)?;
        let top = Entry::new(Vec::new(), &stat, None);
        let mut walker = Self {
            bounds,
            owner: top.uid,
            device: top.device,
            walked: Walked { entries: vec![top], complete: true, ..Walked::default() },
            buffer: Vec::with_capacity(CHUNK_BYTES),
        };
        let folder = files::open_folder(root, c".")?;
        let mut levels = vec![walker.list(folder, 0)];
        loop {
            let depth = levels.len();
            let Some(level) = levels.last_mut() else { break };
            let Some((name, index)) = level.subfolders.pop() else {
                levels.pop();
                continue;
            };
            if depth >= walker.bounds.depth {
                walker.miss(index);
                continue;
            }
            match files::open_folder(&level.folder, &*name) {
                Ok(folder) if walker.is_recorded(&folder, index) => levels.push(walker.list(folder, index)),
                // It went, or something else came in its place, or it cannot be read.
                Ok(_) | Err(_) => walker.miss(index),
            }
        }
        let mut walked = walker.walked;
        walked.entries.sort_unstable_by(Entry::order);
        Ok(walked)
    }

    /// Records everything in a folder; gives its subfolders for later.
    fn list(&mut self, folder: OwnedFd, index: usize) -> Level {
        let prefix: Vec<u8> = match self.walked.entries.get(index).map(|e| &*e.path) {
            None | Some([]) => Vec::new(),
            Some(path) => [path, b"/"].concat(),
        };
        let room = self.bounds.entries.saturating_sub(self.walked.entries.len());
        let (names, mut listed) = names(&folder, self.buffer.spare_capacity_mut(), room);
        let mut subfolders = Vec::new();
        for name in names {
            match stat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => {
                    if let Some(index) = self.record(&folder, &prefix, &name, &stat) {
                        subfolders.push((name, index));
                    }
                }
                // Gone since it was listed, as if it had never been.
                Err(Errno::NOENT) => {}
                Err(_) => {
                    listed = false;
                    let path = [prefix.as_slice(), name.to_bytes()].concat();
                    keep(&mut self.walked.unreadable, &path);
                }
            }
        }
        subfolders.reverse();
        if let Some(entry) = self.walked.entries.get_mut(index) {
            entry.listed = listed;
        }
        self.walked.complete &= listed;
        Level { folder, subfolders }
    }

    /// Records an entry; gives its index if it is a folder to be walked.
    fn record(&mut self, folder: &OwnedFd, prefix: &[u8], name: &CStr, stat: &Statx) -> Option<usize> {
        let path = [prefix, name.to_bytes()].concat();
        let kind = FileType::from_raw_mode(u32::from(stat.stx_mode));
        let target = (kind == FileType::Symlink)
            .then(|| rustix::fs::readlinkat(folder, name, Vec::new()).ok())
            .flatten()
            .map(|t| t.into_bytes().into_boxed_slice());
        let entry = Entry::new(path, stat, target);
        if kind == FileType::Socket {
            keep(&mut self.walked.sockets, &entry.path);
        }
        if entry.uid != self.owner {
            keep(&mut self.walked.foreign_owners, &entry.path);
        }
        if entry.is_file()
            && git_config::is_config_path(&entry.path)
            && self.walked.git_configs.len() < GIT_CONFIGS
        {
            self.walked.git_configs.push(OsStr::from_bytes(&entry.path).into());
        }
        let mounted = self.is_mount(stat, &entry);
        if mounted {
            keep(&mut self.walked.submounts, &entry.path);
        }
        let index = self.walked.entries.len();
        let walk_on = entry.is_folder() && !mounted;
        if entry.is_folder() && mounted {
            self.walked.complete = false;
        }
        self.walked.entries.push(entry);
        walk_on.then_some(index)
    }

    /// Whether another file system, or a part of one, is mounted here. It is not walked: it may hang, and what is in it
    /// is not the workspace's.
    fn is_mount(&self, stat: &Statx, entry: &Entry) -> bool {
        if stat.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) {
            stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
        } else {
            entry.device != self.device
        }
    }

    fn is_recorded(&self, folder: &OwnedFd, index: usize) -> bool {
        let Ok(stat) = stat(folder, c"", AtFlags::EMPTY_PATH) else { return false };
        self.walked
            .entries
            .get(index)
            .is_some_and(|e| e.ino == stat.stx_ino && e.device == (stat.stx_dev_major, stat.stx_dev_minor))
    }

    /// A folder that is not walked.
    fn miss(&mut self, index: usize) {
        self.walked.complete = false;
        if let Some(entry) = self.walked.entries.get(index) {
            keep(&mut self.walked.unreadable, &entry.path);
        }
    }
}

fn keep(found: &mut Vec<PathBuf>, path: &[u8]) {
    if found.len() < FINDS {
        found.push(OsStr::from_bytes(path).into());
    }
}

pub(super) fn stat(folder: impl AsFd, name: impl rustix::path::Arg, flags: AtFlags) -> Result<Statx, Errno> {
    rustix::fs::statx(folder, name, flags | AtFlags::NO_AUTOMOUNT, StatxFlags::BASIC_STATS)
}

/// The names in a folder, sorted, `room` at most; the flag says whether these are all.
pub(super) fn names(folder: &OwnedFd, buffer: &mut [MaybeUninit<u8>], room: usize) -> (Vec<CString>, bool) {
    let mut names = Vec::new();
    let mut entries = RawDir::new(folder, buffer);
    let mut all = true;
    while let Some(entry) = entries.next() {
        let Ok(entry) = entry else {
            all = false;
            break;
        };
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        if names.len() >= room {
            all = false;
            break;
        }
        names.push(name.to_owned());
    }
    names.sort_unstable();
    (names, all)
}
