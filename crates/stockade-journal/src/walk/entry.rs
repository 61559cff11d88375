//! One entry of a snapshot.

use std::cmp::Ordering;

use rustix::fs::{FileType, Statx, StatxTimestamp};

/// Seconds and nanoseconds since the epoch.
pub(super) type Stamp = (i64, u32);

/// What was recorded of one path.
#[derive(Debug)]
pub(super) struct Entry {
    /// Relative to the root; empty for the root itself.
    pub(super) path: Box<[u8]>,
    pub(super) kind: FileType,
    /// Permission bits only.
    pub(super) mode: u16,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) size: u64,
    pub(super) mtime: Stamp,
    pub(super) ctime: Stamp,
    pub(super) ino: u64,
    pub(super) device: (u32, u32),
    /// What a link points to.
    pub(super) target: Option<Box<[u8]>>,
    /// For a folder: whether all that is in it was recorded.
    pub(super) listed: bool,
}

impl Entry {
    pub(super) fn new(path: Vec<u8>, stat: &Statx, target: Option<Box<[u8]>>) -> Self {
        Self {
            path: path.into_boxed_slice(),
            kind: FileType::from_raw_mode(u32::from(stat.stx_mode)),
            mode: stat.stx_mode & 0o7777,
            uid: stat.stx_uid,
            gid: stat.stx_gid,
            size: stat.stx_size,
            mtime: stamp(&stat.stx_mtime),
            ctime: stamp(&stat.stx_ctime),
            ino: stat.stx_ino,
            device: (stat.stx_dev_major, stat.stx_dev_minor),
            target,
            listed: false,
        }
    }

    pub(super) fn is_file(&self) -> bool {
        self.kind == FileType::RegularFile
    }

    pub(super) fn is_folder(&self) -> bool {
        self.kind == FileType::Directory
    }

    pub(super) fn order(&self, other: &Self) -> Ordering {
        self.path.cmp(&other.path)
    }
}

fn stamp(time: &StatxTimestamp) -> Stamp {
    (time.tv_sec, time.tv_nsec)
}
