//! Reading and writing small files, never through a link at their end.

use std::{fs::File, io::Write, os::fd::OwnedFd, path::Path};

use rustix::{
    fs::{CWD, FileType, Mode, OFlags},
    io::Errno,
};

use crate::error::GitError;

/// What a path is, links not followed; `None`: nothing is there.
pub(crate) fn kind(path: &Path) -> Result<Option<FileType>, Errno> {
    match rustix::fs::lstat(path) {
        Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Opens a regular file, which must not be a link; `None`: nothing is there.
pub(crate) fn open(path: &Path) -> Result<Option<OwnedFd>, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(CWD, path, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        Err(e) => return Err(e),
    };
    match FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) {
        FileType::RegularFile => Ok(Some(file)),
        _ => Err(Errno::INVAL),
    }
}

/// Reads a regular file of at most `limit` bytes (`EFBIG`); `None`: nothing is there.
pub(crate) fn read(path: &Path, limit: usize) -> Result<Option<Vec<u8>>, Errno> {
    use std::io::Read as _;
    let Some(file) = open(path)? else { return Ok(None) };
    let mut bytes = Vec::new();
    let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    File::from(file)
        .take(most)
        .read_to_end(&mut bytes)
        .map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
    if bytes.len() > limit { Err(Errno::FBIG) } else { Ok(Some(bytes)) }
}

/// Makes a private folder, which must not be there.
pub(crate) fn make_folder(path: &Path) -> Result<(), GitError> {
    rustix::fs::mkdir(path, Mode::from_raw_mode(0o700)).map_err(|e| GitError::kernel("mkdir", path, e))
}

/// Creates a file, which must not be there.
pub(crate) fn create(path: &Path) -> Result<File, GitError> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, path, flags, Mode::from_raw_mode(0o600))
        .map(File::from)
        .map_err(|e| GitError::kernel("create", path, e))
}

/// Creates a file with this content.
pub(crate) fn write(path: &Path, content: &[u8]) -> Result<(), GitError> {
    create(path)?.write_all(content).map_err(|e| GitError::io("write", path, &e))
}
