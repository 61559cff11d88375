//! Folders below the state directory, opened so that no symbolic link is ever followed.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use rustix::path::Arg;

/// `openat2` asks to try again when a folder on its way was moved meanwhile.
const OPEN_ATTEMPTS: u32 = 8;
/// Entries read of one folder; nobody has this many providers or versions.
const MAX_ENTRIES: usize = 10_000;
/// Folders inside folders that are removed at most.
const MAX_DEPTH: u32 = 32;
/// Folders can be entered by everybody and written by their owner: the fence binds them for another user.
const FOLDER_MODE: Mode = Mode::from_raw_mode(0o755);

/// An open folder and the path it was opened by.
#[derive(Debug)]
pub(crate) struct Folder {
    fd: OwnedFd,
    path: PathBuf,
}

impl Folder {
    /// Opens the state directory itself; its own path may hold links, which are the person's choice.
    pub(crate) fn open_root(path: &Path) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
        Ok(Self { fd, path: path.to_owned() })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn stat(&self) -> Result<Stat, Errno> {
        rustix::fs::fstat(&self.fd)
    }

    pub(crate) fn open_folder(&self, name: &OsStr) -> Result<Self, Errno> {
        let fd = self.open(name, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        Ok(Self { fd, path: self.path.join(name) })
    }

    /// Opens the folder, making it if it is missing.
    pub(crate) fn ensure_folder(&self, name: &str) -> Result<Self, Errno> {
        let made = match rustix::fs::mkdirat(&self.fd, name, FOLDER_MODE) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            // A folder that exists already on a read-only disk is told as read-only, not as existing.
            Err(errno) => return self.open_folder(name.as_ref()).map_err(|_| errno),
        };
        let folder = self.open_folder(name.as_ref())?;
        if made {
            rustix::fs::fchmod(&folder.fd, FOLDER_MODE)?;
        }
        Ok(folder)
    }

    /// Makes a folder that must not exist yet.
    pub(crate) fn create_folder(&self, name: &str) -> Result<Self, Errno> {
        rustix::fs::mkdirat(&self.fd, name, FOLDER_MODE)?;
        let folder = self.open_folder(name.as_ref())?;
        rustix::fs::fchmod(&folder.fd, FOLDER_MODE)?;
        Ok(folder)
    }

    /// Opens a file below this folder for reading, without waiting where somebody has put a pipe.
    pub(crate) fn open_file(&self, path: impl AsRef<OsStr>) -> Result<File, Errno> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        self.open(path.as_ref(), flags, Mode::empty()).map(File::from)
    }

    /// Creates a file that must not exist yet, readable and writable by its owner alone until it is finished.
    pub(crate) fn create_file(&self, name: &str) -> Result<File, Errno> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        self.open(name.as_ref(), flags, Mode::from_raw_mode(0o600)).map(File::from)
    }

    /// Opens a lock file, creating it if it is missing.
    pub(crate) fn open_lock(&self, name: &str) -> Result<File, Errno> {
        let flags = OFlags::RDWR | OFlags::CREATE;
        self.open(name.as_ref(), flags, Mode::from_raw_mode(0o600)).map(File::from)
    }

    /// Opens a lock file that may be missing.
    pub(crate) fn open_lock_if_present(&self, name: &str) -> Result<Option<File>, Errno> {
        match self.open(name.as_ref(), OFlags::RDWR, Mode::empty()) {
            Ok(fd) => Ok(Some(fd.into())),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    pub(crate) fn exists(&self, name: &str) -> Result<bool, Errno> {
        match rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// Moves an entry of this folder to a name in another one.
    pub(crate) fn rename(&self, from: &str, folder: &Self, to: &str) -> Result<(), Errno> {
        rustix::fs::renameat(&self.fd, from, &folder.fd, to)
    }

    pub(crate) fn sync(&self) -> Result<(), Errno> {
        rustix::fs::fsync(&self.fd)
    }

    /// The names in this folder.
    pub(crate) fn entries(&self) -> Result<Vec<OsString>, Errno> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.fd)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(OsStr::from_bytes(name).to_owned());
            }
            if names.len() > MAX_ENTRIES {
                return Err(Errno::OVERFLOW);
            }
        }
        Ok(names)
    }

    /// Removes an entry and everything below it, following no link. A missing entry is fine.
    pub(crate) fn remove(&self, name: &OsStr) -> Result<(), Errno> {
        self.remove_below(name, MAX_DEPTH)
    }

    fn remove_below(&self, name: &OsStr, depth: u32) -> Result<(), Errno> {
        match rustix::fs::unlinkat(&self.fd, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(errno) => return Err(errno),
        }
        let depth = depth.checked_sub(1).ok_or(Errno::OVERFLOW)?;
        let folder = self.open_folder(name)?;
        for entry in folder.entries()? {
            folder.remove_below(&entry, depth)?;
        }
        rustix::fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR)
    }

    fn open(&self, path: &OsStr, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        open_resolved(self.fd.as_fd(), path, flags, mode, resolve)
    }
}

/// `openat2`, tried again a few times where the kernel asks for it.
pub(crate) fn open_resolved(
    folder: impl std::os::fd::AsFd,
    path: impl Arg + Copy,
    flags: OFlags,
    mode: Mode,
    resolve: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    let mut last = Errno::AGAIN;
    for _ in 0..OPEN_ATTEMPTS {
        match rustix::fs::openat2(&folder, path, flags | OFlags::CLOEXEC, mode, resolve) {
            Err(errno @ (Errno::AGAIN | Errno::INTR)) => last = errno,
            other => return other,
        }
    }
    Err(last)
}
