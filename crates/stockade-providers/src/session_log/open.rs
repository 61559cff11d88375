//! Opening below a folder that is not ours to trust.

use std::{
    os::fd::OwnedFd,
    path::{Component, Path},
};

use rustix::{
    fs::{CWD, FileType, Mode, OFlags, ResolveFlags},
    io::Errno,
};

use super::SessionLogError;

/// Whether a path is relative and made of plain names only.
pub(super) fn is_below(path: &Path) -> bool {
    path.components().next().is_some() && path.components().all(|c| matches!(c, Component::Normal(_)))
}

/// Opens the home itself; the caller made it, so links above it are the caller's.
pub(super) fn home(home: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, home, flags, Mode::empty())
}

/// Opens the log below the home, following no link at all; `None` if it is not there yet.
pub(super) fn log(home: &OwnedFd, path: &Path) -> Result<Option<OwnedFd>, SessionLogError> {
    let at = || path.to_owned();
    // Without O_NONBLOCK a pipe in place of the log would hold up the run.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let file = match rustix::fs::openat2(home, path, flags, Mode::empty(), resolve) {
        Ok(file) => file,
        // EAGAIN: a rename raced with the look-up.
        Err(Errno::NOENT | Errno::AGAIN | Errno::INTR) => return Ok(None),
        Err(errno) => return Err(SessionLogError::Open { path: at(), errno }),
    };
    let stat = rustix::fs::fstat(&file).map_err(|errno| SessionLogError::Open { path: at(), errno })?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(SessionLogError::NotAFile { path: at() });
    }
    Ok(Some(file))
}
