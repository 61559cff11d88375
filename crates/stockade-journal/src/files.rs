//! The few file operations everything here is made of: relative to an open folder, never through a link.

use std::os::fd::{AsFd, OwnedFd};

use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, Stat},
    io::Errno,
    path::Arg,
};

/// How much is read at once.
pub(crate) const CHUNK_BYTES: usize = 64 * 1024;

/// Mode of every file of a run.
pub(crate) const PRIVATE_FILE: Mode = Mode::from_raw_mode(0o600);

/// Mode of every private folder.
pub(crate) const PRIVATE_FOLDER: Mode = Mode::from_raw_mode(0o700);

/// Which file an open descriptor or a path is, whatever it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileId {
    dev: u64,
    ino: u64,
}

impl FileId {
    pub(crate) fn of(stat: &Stat) -> Self {
        Self { dev: stat.st_dev, ino: stat.st_ino }
    }

    pub(crate) fn dev(self) -> u64 {
        self.dev
    }

    pub(crate) fn ino(self) -> u64 {
        self.ino
    }
}

/// Asks which file a descriptor is.
pub(crate) fn identity(file: impl AsFd) -> Result<FileId, Errno> {
    rustix::fs::fstat(file).map(|s| FileId::of(&s))
}

/// Asks which file a name in a folder is, links not followed; `None` if nothing is there.
pub(crate) fn identity_at(folder: impl AsFd, name: impl Arg) -> Result<Option<FileId>, Errno> {
    match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(FileId::of(&stat))),
        Err(Errno::NOENT) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Opens a folder by name, which must not be a link.
pub(crate) fn open_folder(at: impl AsFd, name: impl Arg) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(at, name, flags, Mode::empty())
}

/// Makes a folder if nothing is there and opens it.
pub(crate) fn ensure_folder(at: impl AsFd, name: impl Arg + Copy, mode: Mode) -> Result<OwnedFd, Errno> {
    match rustix::fs::mkdirat(&at, name, mode) {
        Ok(()) => {
            let folder = open_folder(at, name)?;
            // The umask may have taken bits away.
            rustix::fs::fchmod(&folder, mode)?;
            Ok(folder)
        }
        Err(Errno::EXIST) => open_folder(at, name),
        // On a read-only file system the folder may be there all the same.
        Err(e) => open_folder(at, name).map_err(|_| e),
    }
}

/// Creates a private file that must not exist; for appending, so that two writers cannot overwrite each other.
pub(crate) fn create_private(at: impl AsFd, name: impl Arg) -> Result<OwnedFd, Errno> {
    let flags = OFlags::WRONLY
        | OFlags::APPEND
        | OFlags::CREATE
        | OFlags::EXCL
        | OFlags::NOFOLLOW
        | OFlags::CLOEXEC
        | OFlags::NOCTTY;
    let file = rustix::fs::openat(at, name, flags, PRIVATE_FILE)?;
    rustix::fs::fchmod(&file, PRIVATE_FILE)?;
    Ok(file)
}

/// Opens an existing regular file for reading; a link, a pipe or a device is refused without waiting for it.
pub(crate) fn open_regular(at: impl AsFd, name: impl Arg) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(at, name, flags, Mode::empty())?;
    require_regular(&file)?;
    Ok(file)
}

/// Gives `EINVAL` for anything but a regular file.
pub(crate) fn require_regular(file: impl AsFd) -> Result<Stat, Errno> {
    let stat = rustix::fs::fstat(file)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(stat),
        FileType::Directory => Err(Errno::ISDIR),
        _ => Err(Errno::INVAL),
    }
}

/// Reads once, starting again when a signal came between.
pub(crate) fn read_some(file: impl AsFd, buffer: &mut [u8]) -> Result<usize, Errno> {
    loop {
        match rustix::io::read(&file, &mut *buffer) {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

/// Reads to the end. A file of more than `limit` bytes gives `EFBIG`.
pub(crate) fn read_bounded(file: impl AsFd, limit: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = Vec::new();
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        let n = read_some(&file, &mut buffer)?;
        if n == 0 {
            return Ok(bytes);
        }
        if bytes.len() + n > limit {
            return Err(Errno::FBIG);
        }
        bytes.extend_from_slice(buffer.get(..n).unwrap_or_default());
    }
}

/// Opens a regular file and reads all of it, `limit` bytes at most.
pub(crate) fn read_at(at: impl AsFd, name: impl Arg, limit: usize) -> Result<Vec<u8>, Errno> {
    read_bounded(open_regular(at, name)?, limit)
}

/// Writes all of `bytes`; in one system call unless the kernel takes less.
pub(crate) fn write_all(file: impl AsFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(&file, bytes) {
            Ok(0) => return Err(Errno::IO),
            Ok(n) => bytes = bytes.get(n..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Makes the names in a folder durable. File systems that cannot sync a folder say `EINVAL`; there is no more to do.
pub(crate) fn sync_folder(folder: impl AsFd) -> Result<(), Errno> {
    match rustix::fs::fsync(folder) {
        Err(Errno::INVAL) => Ok(()),
        other => other,
    }
}

/// Removes a file that may be gone already.
pub(crate) fn unlink_if_present(at: impl AsFd, name: impl Arg) -> Result<(), Errno> {
    match rustix::fs::unlinkat(at, name, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}

/// Writes a new file under a temporary name, ready to be renamed. A torn one of an earlier attempt under that name is
/// replaced; on failure nothing is left.
pub(crate) fn stage_file(
    folder: impl AsFd,
    temporary: impl Arg + Copy,
    bytes: &[u8],
) -> Result<OwnedFd, Errno> {
    unlink_if_present(&folder, temporary)?;
    let file = create_private(&folder, temporary)?;
    match write_all(&file, bytes) {
        Ok(()) => Ok(file),
        Err(e) => Err(unstaged(folder, temporary, e)),
    }
}

/// The same, with the content on disk on return.
pub(crate) fn stage_durably(
    folder: impl AsFd,
    temporary: impl Arg + Copy,
    bytes: &[u8],
) -> Result<OwnedFd, Errno> {
    let file = stage_file(&folder, temporary, bytes)?;
    match rustix::fs::fsync(&file) {
        Ok(()) => Ok(file),
        Err(e) => Err(unstaged(folder, temporary, e)),
    }
}

/// Removes what was staged; the failure that led to it is the one to report.
fn unstaged(folder: impl AsFd, temporary: impl Arg, error: Errno) -> Errno {
    let _left = unlink_if_present(folder, temporary);
    error
}
