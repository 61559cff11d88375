//! Removing whole trees that an agent filled: links are never followed, unreadable folders are opened up, depth costs
//! neither stack nor descriptors.

use std::{
    ffi::{CStr, CString, OsStr},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::Path,
};

use rustix::{
    fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, ResolveFlags},
    io::Errno,
};

use crate::{
    error::{ErrorKind, JournalError},
    files::{self, CHUNK_BYTES, FileId, PRIVATE_FOLDER},
};

/// Subfolders remembered per level; more are found by reading the folder again.
const PENDING_FOLDERS: usize = 256;

/// How often a folder that fills up again while it is emptied is tried.
const ATTEMPTS: u32 = 8;

/// Removes a file, a link (not what it points to) or a folder with everything below it. What is gone already is fine.
/// Mount points are not emptied: they end it with an error.
pub fn remove_tree(path: &Path) -> Result<(), JournalError> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(JournalError::new(ErrorKind::PathUnusable, "remove", path, "no file name"));
    };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    match rustix::fs::openat(CWD, parent, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
    {
        Ok(folder) => remove_entry(&folder, name, path),
        Err(Errno::NOENT) => Ok(()),
        Err(e) => Err(JournalError::refused("open", parent, e)),
    }
}

/// The same for a name in an open folder.
pub(crate) fn remove_entry(
    folder: &OwnedFd,
    name: impl AsRef<OsStr>,
    path: &Path,
) -> Result<(), JournalError> {
    let fail = |e| JournalError::storage("remove", path, e);
    let name = CString::new(name.as_ref().as_bytes()).map_err(|_| fail(Errno::INVAL))?;
    let Some(top) = take_away(folder, &name, Rights::AsTheyAre).map_err(fail)? else { return Ok(()) };
    empty(top, path)?;
    match rustix::fs::unlinkat(folder, &*name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(e) => Err(fail(e)),
    }
}

/// A folder on the way down. Only the deepest is open: parents are reached again by `..` and recognised.
struct Level {
    name: CString,
    id: FileId,
    pending: Vec<CString>,
    attempts: u32,
}

/// Removes everything in a folder.
fn empty(top: OwnedFd, path: &Path) -> Result<(), JournalError> {
    let fail = |e| JournalError::storage("remove", path, e);
    let id = files::identity(&top).map_err(fail)?;
    let mut levels = vec![Level { name: CString::default(), id, pending: Vec::new(), attempts: 0 }];
    let mut current = top;
    let mut buffer = Vec::with_capacity(CHUNK_BYTES);
    while let Some(level) = levels.last_mut() {
        if level.pending.is_empty() {
            sweep(&current, &mut level.pending, buffer.spare_capacity_mut()).map_err(fail)?;
        }
        if let Some(name) = level.pending.pop() {
            if let Some(child) = take_away(&current, &name, Rights::MayBeGranted).map_err(fail)? {
                let id = files::identity(&child).map_err(fail)?;
                levels.push(Level { name, id, pending: Vec::new(), attempts: 0 });
                current = child;
            }
            continue;
        }
        let Some(done) = levels.pop() else { break };
        let Some(parent) = levels.last_mut() else { break };
        current = files::open_folder(&current, c"..").map_err(fail)?;
        if files::identity(&current).map_err(fail)? != parent.id {
            let reason = "a folder was moved while it was being emptied";
            return Err(JournalError::new(ErrorKind::Storage, "remove", path, reason));
        }
        match rustix::fs::unlinkat(&current, &*done.name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => parent.attempts = 0,
            // Somebody still writes here: look again, but not for ever.
            Err(Errno::NOTEMPTY | Errno::EXIST) if parent.attempts < ATTEMPTS => {
                parent.attempts += 1;
                parent.pending.push(done.name);
            }
            Err(e) => return Err(fail(e)),
        }
    }
    Ok(())
}

/// Removes everything in a folder that is no folder, and notes those (some, if there are many).
fn sweep(folder: &OwnedFd, found: &mut Vec<CString>, buffer: &mut [MaybeUninit<u8>]) -> Result<(), Errno> {
    rustix::fs::seek(folder, rustix::fs::SeekFrom::Start(0))?;
    let mut entries = RawDir::new(folder, buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        if matches!(entry.file_type(), FileType::Directory) || !unlink(folder, name, Rights::MayBeGranted)? {
            found.push(name.to_owned());
            if found.len() >= PENDING_FOLDERS {
                break;
            }
        }
    }
    Ok(())
}

/// Removes an entry if that takes one call; otherwise opens it, for it is a folder with something in it.
fn take_away(folder: &OwnedFd, name: &CStr, rights: Rights) -> Result<Option<OwnedFd>, Errno> {
    match with_access(folder, rights, || rustix::fs::unlinkat(folder, name, AtFlags::REMOVEDIR)) {
        Ok(()) | Err(Errno::NOENT) => Ok(None),
        Err(Errno::NOTDIR) => {
            if unlink(folder, name, rights)? {
                Ok(None)
            } else {
                Err(Errno::NOTDIR)
            }
        }
        Err(Errno::NOTEMPTY | Errno::EXIST) => open_for_emptying(folder, name).map(Some),
        Err(e) => Err(e),
    }
}

/// Removes anything but a folder; `false` if it is one.
fn unlink(folder: &OwnedFd, name: &CStr, rights: Rights) -> Result<bool, Errno> {
    match with_access(folder, rights, || rustix::fs::unlinkat(folder, name, AtFlags::empty())) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::ISDIR) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Whether the folder that holds an entry may be opened up to remove it: those inside the tree, not the one around it.
#[derive(Clone, Copy)]
enum Rights {
    AsTheyAre,
    MayBeGranted,
}

/// Tries again after giving the owner all rights to the folder, where the first try failed for want of them.
fn with_access(
    folder: &OwnedFd,
    rights: Rights,
    action: impl Fn() -> Result<(), Errno>,
) -> Result<(), Errno> {
    match action() {
        Err(Errno::ACCESS) if matches!(rights, Rights::MayBeGranted) => {
            rustix::fs::fchmod(folder, PRIVATE_FOLDER)?;
            action()
        }
        other => other,
    }
}

fn open_for_emptying(folder: &OwnedFd, name: &CStr) -> Result<OwnedFd, Errno> {
    let open = |flags: OFlags| {
        rustix::fs::openat2(
            folder,
            name,
            flags | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
            ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV,
        )
    };
    match open(OFlags::RDONLY) {
        Err(Errno::ACCESS) => {
            grant_to_owner(&open(OFlags::PATH)?)?;
            open(OFlags::RDONLY)
        }
        other => other,
    }
}

/// A folder that its owner cannot read can only be opened as a path, and such a descriptor has no `fchmod`; its name
/// in `/proc/self/fd` leads to exactly it.
fn grant_to_owner(folder: impl AsFd) -> Result<(), Errno> {
    use std::os::fd::AsRawFd as _;
    let path = format!("/proc/self/fd/{}", folder.as_fd().as_raw_fd());
    rustix::fs::chmodat(CWD, path, PRIVATE_FOLDER, AtFlags::empty())
}

#[cfg(test)]
mod tests;
