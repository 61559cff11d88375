//! How much room a tree takes on disk, without remembering what is in it.

use std::{
    ffi::CString,
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{AtFlags, CWD, FileType, Statx, StatxAttributes},
    io::Errno,
};

use super::tree::{names, stat};
use crate::{
    error::JournalError,
    files::{self, CHUNK_BYTES},
};

/// Blocks are counted in these, whatever the file system uses (statx(2)).
const BLOCK_BYTES: u64 = 512;

/// How far a look goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsageBounds {
    /// Entries counted.
    pub entries: u64,
    /// Folders below each other. One descriptor is open for each.
    pub depth: usize,
}

impl Default for UsageBounds {
    fn default() -> Self {
        Self { entries: 2_000_000, depth: 256 }
    }
}

/// What a tree takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes on disk. A file with several names counts once, if all of them are in the tree.
    pub bytes: u64,
    /// Entries seen.
    pub entries: u64,
    /// Whether everything was seen.
    pub complete: bool,
}

/// Adds up what is at `root`, a folder or a file, which may be a link. Links below are not followed and other file
/// systems not entered. It ends early, and says so, when `goes_on` no longer holds.
pub fn disk_usage(
    root: &Path,
    bounds: &UsageBounds,
    goes_on: &dyn Fn() -> bool,
) -> Result<Usage, JournalError> {
    let fail = |e| JournalError::refused("walk", root, e);
    let top = stat(CWD.as_fd(), root, AtFlags::empty()).map_err(fail)?;
    let mut usage = Usage { bytes: 0, entries: 0, complete: true };
    usage.add(&top);
    if FileType::from_raw_mode(u32::from(top.stx_mode)) != FileType::Directory {
        return Ok(usage);
    }
    let folder = rustix::fs::openat(
        CWD,
        root,
        rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )
    .map_err(fail)?;
    let mut buffer = Vec::with_capacity(CHUNK_BYTES);
    let mut levels = vec![usage.list(folder, bounds, buffer.spare_capacity_mut())];
    loop {
        let depth = levels.len();
        let Some(level) = levels.last_mut() else { return Ok(usage) };
        let Some(name) = level.subfolders.pop() else {
            levels.pop();
            continue;
        };
        if !goes_on() {
            usage.complete = false;
            return Ok(usage);
        }
        match files::open_folder(&level.folder, &*name) {
            Ok(folder) if depth < bounds.depth => {
                levels.push(usage.list(folder, bounds, buffer.spare_capacity_mut()));
            }
            // It went since.
            Err(Errno::NOENT) => {}
            Ok(_) | Err(_) => usage.complete = false,
        }
    }
}

struct Level {
    folder: OwnedFd,
    subfolders: Vec<CString>,
}

impl Usage {
    fn add(&mut self, stat: &Statx) {
        self.entries += 1;
        let names = u64::from(stat.stx_nlink.max(1));
        let is_folder = FileType::from_raw_mode(u32::from(stat.stx_mode)) == FileType::Directory;
        // Each name takes its share, so that nothing has to be remembered. A folder has a name for each subfolder.
        let share = if is_folder { 1 } else { names };
        self.bytes = self.bytes.saturating_add(stat.stx_blocks.saturating_mul(BLOCK_BYTES) / share);
    }

    fn list(&mut self, folder: OwnedFd, bounds: &UsageBounds, buffer: &mut [MaybeUninit<u8>]) -> Level {
        let room = usize::try_from(bounds.entries.saturating_sub(self.entries)).unwrap_or(usize::MAX);
        let (names, all) = names(&folder, buffer, room);
        self.complete &= all;
        let mut subfolders = Vec::new();
        for name in names {
            match stat(folder.as_fd(), &*name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => {
                    let mounted = stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
                    if mounted {
                        continue;
                    }
                    self.add(&stat);
                    if FileType::from_raw_mode(u32::from(stat.stx_mode)) == FileType::Directory {
                        subfolders.push(name);
                    }
                }
                Err(Errno::NOENT) => {}
                Err(_) => self.complete = false,
            }
        }
        Level { folder, subfolders }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn usage(root: &Path) -> Usage {
        disk_usage(root, &UsageBounds::default(), &|| true).unwrap()
    }

    #[test]
    fn what_is_written_is_counted_and_what_is_only_named_is_not() {
        let t = tempfile::tempdir().unwrap();
        fs::create_dir(t.path().join("sub")).unwrap();
        let before = usage(t.path());
        assert_eq!((before.entries, before.complete), (2, true));

        fs::write(t.path().join("sub/f"), vec![7; 1 << 20]).unwrap();
        let file = fs::File::create(t.path().join("sparse")).unwrap();
        file.set_len(1 << 40).unwrap();
        let after = usage(t.path());
        let grown = after.bytes - before.bytes;
        assert!((1 << 20..=(1 << 20) + (64 << 10)).contains(&grown), "{grown}");

        // A second name takes no room, and a link to the outside is not followed.
        fs::hard_link(t.path().join("sub/f"), t.path().join("again")).unwrap();
        std::os::unix::fs::symlink("/usr", t.path().join("link")).unwrap();
        let named = usage(t.path());
        assert!(named.bytes - after.bytes <= 64 << 10, "{named:?} {after:?}");
        assert!(usage(&t.path().join("sub/f")).bytes > 0, "a file alone");
    }

    #[test]
    fn a_look_ends_at_its_bounds_and_says_so() {
        let t = tempfile::tempdir().unwrap();
        for n in 0..10 {
            fs::create_dir(t.path().join(n.to_string())).unwrap();
        }
        let few = disk_usage(t.path(), &UsageBounds { entries: 5, depth: 256 }, &|| true).unwrap();
        assert_eq!((few.entries, few.complete), (5, false));
        let flat = disk_usage(t.path(), &UsageBounds { entries: 100, depth: 1 }, &|| true).unwrap();
        assert!(!flat.complete);
        let stopped = disk_usage(t.path(), &UsageBounds::default(), &|| false).unwrap();
        assert!(!stopped.complete);
        assert!(disk_usage(&t.path().join("none"), &UsageBounds::default(), &|| true).is_err());
    }
}
