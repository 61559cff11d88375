//! Opening below a folder that is not ours to trust.

use std::{os::fd::OwnedFd, path::Path};

use rustix::{
    fs::{CWD, Dir, FileType, Mode, OFlags, ResolveFlags},
    io::Errno,
};

use super::SessionLogError;

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

/// The names in a folder below the home, `limit` at most, in their order; none where there is no such folder.
pub(super) fn names(home: &OwnedFd, folder: &Path, limit: usize) -> Vec<String> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let Ok(folder) = rustix::fs::openat2(home, folder, flags, Mode::empty(), resolve) else {
        return Vec::new();
    };
    let Ok(entries) = Dir::new(folder) else { return Vec::new() };
    let mut names: Vec<String> = entries
        .take(limit)
        .filter_map(|entry| entry.ok()?.file_name().to_str().ok().map(str::to_owned))
        .filter(|name| name != "." && name != "..")
        .collect();
    names.sort_unstable();
    names
}
