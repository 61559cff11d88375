//! Opening a path so that nothing it goes through can be a link, and telling whether a thing is still the same.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat};

use serde::{Deserialize, Serialize};

use crate::error::{FenceError, Step};

/// Opens a path with no rights but to be named (`O_PATH`), refusing symbolic and magic links anywhere in it.
///
/// `O_NOFOLLOW` is left out on purpose: with it and `O_PATH` a trailing symbolic link is opened, not refused.
pub(crate) fn open_strict(path: &Path) -> Result<OwnedFd, FenceError> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    retry(|| rustix::fs::openat2(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve))
        .step_on("openat2", path)
}

/// `openat2` gives EAGAIN when a rename elsewhere on the host raced with it. Bounded, because an attacker can rename all day.
fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    for _ in 0..32 {
        match call() {
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            other => return other,
        }
    }
    call()
}

/// What a path was when it was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seen {
    device: u64,
    inode: u64,
    size: i64,
    changed: (i64, i64),
    /// The owner and the group on disk.
    pub(crate) owner: (u32, u32),
    /// Type and permission bits.
    pub(crate) mode: u32,
}

impl Seen {
    /// Looks at an open descriptor.
    pub(crate) fn of(fd: impl AsFd) -> Result<Self, FenceError> {
        Ok(Self::from_stat(&rustix::fs::fstat(fd).step("fstat")?))
    }

    #[expect(clippy::cast_possible_wrap, reason = "nanoseconds are below 10^9")]
    fn from_stat(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: stat.st_size,
            changed: (stat.st_ctime, stat.st_ctime_nsec as i64),
            owner: (stat.st_uid, stat.st_gid),
            mode: stat.st_mode,
        }
    }

    /// The kind of file.
    pub(crate) fn file_type(&self) -> FileType {
        FileType::from_raw_mode(self.mode)
    }

    /// Whether everybody on the host may read (and, a directory, search) it.
    pub(crate) fn is_world_readable(&self) -> bool {
        let wanted = if self.file_type() == FileType::Directory { 0o005 } else { 0o004 };
        self.mode & wanted == wanted
    }

    /// Whether two looks saw the same thing. Directories and devices are compared by device and inode only: the times
    /// of a directory move with every file made in it. A file must also have the same size and change time, because an
    /// inode number is reused.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let same_inode = (self.device, self.inode) == (other.device, other.inode);
        let same_type = self.file_type() == other.file_type();
        let same_content = self.file_type() != FileType::RegularFile
            || (self.size, self.changed) == (other.size, other.changed);
        same_inode && same_type && same_content
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn scratch(name: &str) -> std::path::PathBuf {
        let dir = std::env::temp_dir().join(format!("stockade-files-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }

    #[test]
    fn a_trailing_link_and_a_link_on_the_way_are_refused() {
        let dir = scratch("links");
        std::fs::create_dir(dir.join("real")).unwrap();
        symlink("real", dir.join("link")).unwrap();
        for path in [dir.join("link"), dir.join("link/."), "/proc/self/root".into(), "/proc/self/cwd".into()]
        {
            let refused = open_strict(&path).unwrap_err();
            assert_eq!(refused.errno(), libc::ELOOP, "{path:?}");
            assert_eq!(refused.path(), Some(path.as_path()));
        }
        assert!(open_strict(&dir.join("real")).is_ok());
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_directory_stays_the_same_when_filled_and_a_file_does_not_when_written() {
        let dir = scratch("same");
        let before = Seen::of(open_strict(&dir).unwrap()).unwrap();
        std::fs::write(dir.join("f"), "1").unwrap();
        assert!(before.is_same(&Seen::of(open_strict(&dir).unwrap()).unwrap()));
        let file = Seen::of(open_strict(&dir.join("f")).unwrap()).unwrap();
        assert!(file.is_same(&file));
        std::fs::write(dir.join("f"), "12").unwrap();
        assert!(!file.is_same(&Seen::of(open_strict(&dir.join("f")).unwrap()).unwrap()));
        assert!(!file.is_same(&before));
        std::fs::remove_dir_all(dir).unwrap();
    }
}
