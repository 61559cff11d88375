//! Bounded copies of files that an agent left: never through a link, never from a pipe or device.

use std::{
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags},
    io::Errno,
};
use sha2::{Digest as _, Sha256};

use crate::{
    digest,
    error::{ErrorKind, JournalError},
    files::{self, CHUNK_BYTES},
};

/// What was copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    /// Bytes copied: the first ones.
    pub bytes: u64,
    /// Whether the file went on.
    pub cut: bool,
    /// SHA-256 of what was copied.
    pub sha256: String,
}

/// Copies the regular file at `relative` below `folder` to the new private file `into`, `limit_bytes` at most. No
/// component of `relative` may be a link, lead out of the folder or onto another file system. On failure `into` is not
/// left behind. A missing source is [`ErrorKind::NotFound`].
pub fn copy_bounded_nofollow(
    folder: &Path,
    relative: &Path,
    into: &Path,
    limit_bytes: u64,
) -> Result<Copied, JournalError> {
    let (Some(parent), Some(name)) = (into.parent(), into.file_name()) else {
        return Err(JournalError::new(ErrorKind::PathUnusable, "create", into, "no file name"));
    };
    let target = files::open_folder(CWD, parent).map_err(|e| JournalError::refused("open", parent, e))?;
    copy_into(folder, relative, target, name, into, limit_bytes)
}

pub(crate) fn copy_into(
    folder: &Path,
    relative: &Path,
    target: impl AsFd,
    name: impl rustix::path::Arg + Copy,
    target_path: &Path,
    limit: u64,
) -> Result<Copied, JournalError> {
    let source_path = folder.join(relative);
    let base = files::open_folder(CWD, folder).map_err(|e| JournalError::refused("open", folder, e))?;
    let source = open_below(base, relative).map_err(|e| JournalError::refused("open", &source_path, e))?;
    let to =
        files::create_private(&target, name).map_err(|e| JournalError::refused("create", target_path, e))?;
    let copied = pump(&source, &to, limit).map_err(|(reading, e)| {
        let (step, path) = if reading { ("read", source_path.as_path()) } else { ("write", target_path) };
        JournalError::storage(step, path, e)
    });
    if copied.is_err() {
        // The first failure is the one to report.
        let _left = files::unlink_if_present(target, name);
    }
    copied
}

/// Opens a regular file below a folder: no link, no way out, no other file system on the way.
pub(crate) fn open_below(base: impl AsFd, relative: impl rustix::path::Arg) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    let file = rustix::fs::openat2(base, relative, flags, Mode::empty(), resolve)?;
    files::require_regular(&file)?;
    Ok(file)
}

/// Moves bytes; the flag of an error says whether reading failed.
fn pump(from: &OwnedFd, to: &OwnedFd, limit: u64) -> Result<Copied, (bool, Errno)> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut bytes: u64 = 0;
    loop {
        let n = files::read_some(from, &mut buffer).map_err(|e| (true, e))?;
        let room = usize::try_from(limit.saturating_sub(bytes)).unwrap_or(usize::MAX);
        let piece = buffer.get(..n.min(room)).unwrap_or_default();
        files::write_all(to, piece).map_err(|e| (false, e))?;
        hasher.update(piece);
        bytes = bytes.saturating_add(piece.len() as u64);
        if n == 0 || piece.len() < n {
            return Ok(Copied { bytes, cut: piece.len() < n, sha256: digest::finish(hasher) });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn copies_the_head_and_says_that_it_is_cut() {
        let t = tempfile::tempdir().unwrap();
        fs::create_dir(t.path().join("a")).unwrap();
        fs::write(t.path().join("a/log"), b"0123456789").unwrap();
        let whole = copy_bounded_nofollow(t.path(), "a/log".as_ref(), &t.path().join("w"), 10).unwrap();
        assert_eq!((whole.bytes, whole.cut), (10, false));
        let head = copy_bounded_nofollow(t.path(), "a/log".as_ref(), &t.path().join("h"), 4).unwrap();
        assert_eq!(head, Copied { bytes: 4, cut: true, sha256: digest::sha256_hex(b"0123") });
        assert_eq!(fs::read(t.path().join("h")).unwrap(), b"0123");
    }

    #[test]
    fn links_ways_out_and_pipes_are_refused_without_waiting() {
        let t = tempfile::tempdir().unwrap();
        let dir = t.path().join("home");
        fs::create_dir(&dir).unwrap();
        fs::write(t.path().join("secret"), "s").unwrap();
        symlink("../secret", dir.join("link")).unwrap();
        symlink("..", dir.join("up")).unwrap();
        rustix::fs::mkfifoat(CWD, dir.join("pipe"), Mode::from_raw_mode(0o600)).unwrap();
        for hostile in ["link", "up/secret", "../secret", "/etc/hostname", "pipe", "."] {
            let into = t.path().join("into");
            assert!(copy_bounded_nofollow(&dir, hostile.as_ref(), &into, 10).is_err(), "{hostile}");
            assert!(!into.exists(), "{hostile}");
        }
        let missing = copy_bounded_nofollow(&dir, "none".as_ref(), &t.path().join("into"), 10).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
    }
}
