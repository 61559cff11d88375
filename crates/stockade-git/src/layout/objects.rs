//! The shape of a repository's folder: what is mounted and read from it has to be there itself, not through a link.

use std::path::Path;

use rustix::{fs::FileType, io::Errno};

use super::unreadable;
use crate::{
    files,
    obstacle::{Extent, Obstacle},
};

/// Lists of other object folders are short.
const ALTERNATES_LIMIT_BYTES: usize = 64 * 1024;
/// Packs and loose objects that are looked at in one folder.
const MOST_ENTRIES: usize = 1_000_000;

pub(super) fn check(common: &Path) -> Result<(), Obstacle> {
    for name in ["objects", "refs"] {
        folder(&common.join(name))?;
    }
    let objects = common.join("objects");
    for name in ["info", "pack"] {
        if files::kind(&objects.join(name)).map_err(|e| unreadable(&objects, e))?.is_some() {
            folder(&objects.join(name))?;
        }
    }
    // Loose objects lie one folder deeper: a link among these would show what it points to.
    no_links(&objects)?;
    no_links(&objects.join("pack"))?;
    for name in ["info/alternates", "info/http-alternates"] {
        alternates(&objects.join(name))?;
    }
    Ok(())
}

fn folder(path: &Path) -> Result<(), Obstacle> {
    match files::kind(path) {
        Ok(Some(FileType::Directory)) => Ok(()),
        Ok(Some(FileType::Symlink)) => Err(linked(path)),
        Ok(_) => Err(unreadable(path, Errno::NOTDIR)),
        Err(e) => Err(unreadable(path, e)),
    }
}

fn no_links(path: &Path) -> Result<(), Obstacle> {
    let entries = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(unreadable(path, Errno::from_io_error(&e).unwrap_or(Errno::IO))),
    };
    for entry in entries.take(MOST_ENTRIES) {
        let entry = entry.map_err(|e| unreadable(path, Errno::from_io_error(&e).unwrap_or(Errno::IO)))?;
        if entry.file_type().is_ok_and(|t| t.is_symlink()) {
            return Err(linked(&entry.path()));
        }
    }
    Ok(())
}

fn linked(path: &Path) -> Obstacle {
    Obstacle::new(
        "git-objects-link",
        Extent::Every,
        format!(
            "`{}` is a symbolic link: what it points to would be shown as a part of the repository",
            path.display()
        ),
        "put the real folder in its place (`git fsck` tells whether anything is missing)",
    )
    .seen_in(path.display().to_string())
}

fn alternates(path: &Path) -> Result<(), Obstacle> {
    let bytes =
        files::read(path, ALTERNATES_LIMIT_BYTES).map_err(|e| unreadable(path, e))?.unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let mut named = text.lines().filter(|l| !l.trim().is_empty() && !l.starts_with('#'));
    let Some(first) = named.next() else { return Ok(()) };
    Err(Obstacle::new(
        "git-alternates",
        Extent::Every,
        "the repository borrows objects of another one, which would have to be shown as well",
        "make it whole with `git repack -a -d`, then remove its `objects/info/alternates`",
    )
    .seen_in(format!("{}: {first}", path.display())))
}
