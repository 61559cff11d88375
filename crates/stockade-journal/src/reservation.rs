//! The caller's own files, taken before anything starts: nobody else can take them, and what stands there is a valid
//! record from the first moment on.

mod place;

use std::{
    ffi::{OsStr, OsString},
    os::fd::{AsRawFd as _, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags},
    io::Errno,
};

use self::place::{MadeFolder, Place};
use crate::{
    error::{ErrorKind, JournalError},
    files::{self, FileId, PRIVATE_FILE},
};

/// A path to be reserved with what it holds until the run ends.
#[derive(Clone, Copy, Debug)]
pub struct ReservationRequest<'a> {
    /// An absolute path where nothing is yet.
    pub path: &'a Path,
    /// The content at once: the interrupted receipt, or nothing for an answer.
    pub initial: &'a [u8],
}

/// What became of a reservation that was let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// The file is gone.
    Removed,
    /// It was gone already, or another file stood at the path and was left alone.
    NotOurs,
}

/// What was placed at a reserved path and is not on disk yet.
#[derive(Debug)]
pub struct Placed {
    path: PathBuf,
    file: OwnedFd,
}

impl Placed {
    /// Waits until it is on disk.
    pub fn sync(&self) -> Result<(), JournalError> {
        rustix::fs::fsync(&self.file).map_err(|e| JournalError::storage("sync", &self.path, e))
    }
}

/// A file at the caller's path, exclusively created with mode 0600.
///
/// Dropping it leaves the file as it is: a run that dies leaves its interrupted receipt.
#[derive(Debug)]
pub struct Reservation {
    path: PathBuf,
    folder: OwnedFd,
    name: OsString,
    id: FileId,
    made: Vec<MadeFolder>,
}

impl Reservation {
    /// Reserves one path. Missing parent folders are made. Something at the path, a dangling link included, is
    /// [`ErrorKind::Exists`]; a path inside one of `writable_roots` is [`ErrorKind::InsideWritableRoot`]. On failure
    /// nothing is left behind.
    pub fn make(path: &Path, initial: &[u8], writable_roots: &[PathBuf]) -> Result<Self, JournalError> {
        let place = Place::resolve(path)?;
        place.require_outside(writable_roots)?;
        Self::take(place, initial)
    }

    /// Reserves several paths or none: different ones, compared without links. Where one fails, the earlier ones are
    /// rolled back.
    pub fn make_all(
        requests: &[ReservationRequest<'_>],
        writable_roots: &[PathBuf],
    ) -> Result<Vec<Self>, JournalError> {
        let places =
            requests.iter().map(|r| Place::resolve(r.path)).collect::<Result<Vec<_>, JournalError>>()?;
        for (i, place) in places.iter().enumerate() {
            place.require_outside(writable_roots)?;
            if places.iter().take(i).any(|other| other.path() == place.path()) {
                let reason = "another file of this order has the same path";
                return Err(JournalError::new(ErrorKind::SamePath, "reserve", &place.path(), reason));
            }
        }
        let mut taken: Vec<Self> = Vec::with_capacity(places.len());
        for (place, request) in places.into_iter().zip(requests) {
            match Self::take(place, request.initial) {
                Ok(reservation) => taken.push(reservation),
                Err(e) => {
                    for earlier in taken.into_iter().rev() {
                        // The failure that ends the order is the one to report.
                        let _left = earlier.roll_back();
                    }
                    return Err(e);
                }
            }
        }
        Ok(taken)
    }

    /// Takes over the reservation of a process that is gone, as it stands at `path`. The caller has made sure that it
    /// is one.
    pub(crate) fn adopt(path: &Path) -> Result<Self, JournalError> {
        let place = Place::resolve(path)?;
        let path = place.path();
        let (folder, made) = place.enter()?;
        let name = place.name;
        match files::identity_at(&folder, &*name) {
            Ok(Some(id)) => Ok(Self { path, folder, name, id, made }),
            Ok(None) => Err(JournalError::refused("stat", &path, Errno::NOENT)),
            Err(e) => Err(JournalError::storage("stat", &path, e)),
        }
    }

    /// The path without links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Puts `bytes` in place of the reserved content, whole or not at all. They are on disk before they get the name, so
    /// that a power failure leaves the old content or the new; the folder is not synced, for the run directory has the
    /// record and every sync waits for the disk. Where the file at the path is no longer the reserved one it is left
    /// alone: [`ErrorKind::Superseded`]. After a failure the reservation stands as it was and can be tried again.
    pub fn commit(&mut self, bytes: &[u8]) -> Result<(), JournalError> {
        self.require_ours()?;
        let temporary = temporary_name(self.id);
        let staged = files::stage_durably(&self.folder, &*temporary, bytes);
        self.publish(&temporary, staged).map(drop)
    }

    /// The same without waiting for the disk: for a copy of what the run directory holds durably, and for what is synced
    /// afterwards together with something else.
    pub fn place(&mut self, bytes: &[u8]) -> Result<Placed, JournalError> {
        self.require_ours()?;
        let temporary = temporary_name(self.id);
        let staged = files::stage_file(&self.folder, &*temporary, bytes);
        let file = self.publish(&temporary, staged)?;
        Ok(Placed { path: self.path.clone(), file })
    }

    /// Writes `bytes` onto the reserved file itself, and waits until they are on disk, for readers that remember which
    /// file it was. A reader in between sees a part.
    pub fn fill(&mut self, bytes: &[u8]) -> Result<(), JournalError> {
        let fail = |step, e| JournalError::storage(step, &self.path, e);
        self.require_ours()?;
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.folder, &*self.name, flags, Mode::empty())
            .map_err(|e| fail("open", e))?;
        if files::identity(&file).map_err(|e| fail("stat", e))? != self.id {
            let reason = "another file stands where it was reserved; it was left alone";
            return Err(JournalError::new(ErrorKind::Superseded, "open", &self.path, reason));
        }
        rustix::fs::ftruncate(&file, 0).map_err(|e| fail("truncate", e))?;
        files::write_all(&file, bytes).map_err(|e| fail("write", e))?;
        rustix::fs::fsync(&file).map_err(|e| fail("sync", e))
    }

    /// The reserved file: its device and its inode.
    pub fn device_and_inode(&self) -> (u64, u64) {
        (self.id.dev(), self.id.ino())
    }

    fn publish(
        &mut self,
        temporary: &OsStr,
        staged: Result<OwnedFd, Errno>,
    ) -> Result<OwnedFd, JournalError> {
        let fail = |step, e| JournalError::storage(step, &self.path, e);
        let staged = staged.map_err(|e| fail("write", e))?;
        let renamed = files::identity(&staged).map_err(|e| fail("stat", e)).and_then(|id| {
            self.require_ours()?;
            rustix::fs::renameat(&self.folder, temporary, &self.folder, &*self.name)
                .map(|()| id)
                .map_err(|e| fail("rename", e))
        });
        match renamed {
            Ok(id) => {
                self.id = id;
                Ok(staged)
            }
            Err(e) => {
                // The first failure is the one to report.
                let _left = files::unlink_if_present(&self.folder, temporary);
                Err(e)
            }
        }
    }

    /// Removes the file if it is still the reserved one: an output that will hold no answer.
    pub fn release(self) -> Result<Released, JournalError> {
        self.remove()
    }

    /// Removes the file and the parent folders made for it, for an order that turns out to be a usage error.
    pub fn roll_back(self) -> Result<Released, JournalError> {
        let released = self.remove()?;
        for folder in self.made.iter().rev() {
            folder.remove_if_empty();
        }
        Ok(released)
    }

    fn take(place: Place, initial: &[u8]) -> Result<Self, JournalError> {
        let path = place.path();
        let (folder, made) = place.enter()?;
        let name = place.name;
        match create_whole(&folder, &name, initial) {
            Ok(id) => Ok(Self { path, folder, name, id, made }),
            Err((step, errno)) => {
                for folder in made.iter().rev() {
                    folder.remove_if_empty();
                }
                Err(refused(&folder, &name, &path, step, errno))
            }
        }
    }

    fn remove(&self) -> Result<Released, JournalError> {
        match self.require_ours() {
            Ok(()) => {}
            Err(e) if e.kind() == ErrorKind::Superseded => return Ok(Released::NotOurs),
            Err(e) => return Err(e),
        }
        files::unlink_if_present(&self.folder, &*self.name)
            .map(|()| Released::Removed)
            .map_err(|e| JournalError::storage("remove", &self.path, e))
    }

    fn require_ours(&self) -> Result<(), JournalError> {
        let reason = match files::identity_at(&self.folder, &*self.name) {
            Ok(Some(id)) if id == self.id => return Ok(()),
            Ok(Some(_)) => "another file stands where it was reserved; it was left alone",
            Ok(None) => "the reserved file is gone",
            Err(e) => return Err(JournalError::storage("stat", &self.path, e)),
        };
        Err(JournalError::new(ErrorKind::Superseded, "check", &self.path, reason))
    }
}

/// The name of the file that will replace a reservation. It follows from the reserved file, so that one torn by a
/// crash can be found and removed.
pub(crate) fn temporary_name(id: FileId) -> OsString {
    format!(".stockade-{:x}.tmp", id.ino()).into()
}

/// Creates the file with its content in one step where the file system can: written without a name, then linked, which
/// never replaces anything. Elsewhere it is created empty and filled.
fn create_whole(folder: &OwnedFd, name: &OsStr, initial: &[u8]) -> Result<FileId, (&'static str, Errno)> {
    if initial.is_empty() {
        return create_and_fill(folder, name, initial);
    }
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let Ok(nameless) = rustix::fs::openat(folder, c".", flags, PRIVATE_FILE) else {
        return create_and_fill(folder, name, initial);
    };
    rustix::fs::fchmod(&nameless, PRIVATE_FILE).map_err(|e| ("create", e))?;
    fill(&nameless, initial)?;
    let source = format!("/proc/self/fd/{}", nameless.as_raw_fd());
    match rustix::fs::linkat(CWD, source, folder, name, AtFlags::SYMLINK_FOLLOW) {
        Ok(()) => files::identity(&nameless).map_err(|e| ("stat", e)),
        Err(Errno::EXIST) => Err(("create", Errno::EXIST)),
        // No hard links here, or no /proc.
        Err(_) => create_and_fill(folder, name, initial),
    }
}

fn create_and_fill(folder: &OwnedFd, name: &OsStr, initial: &[u8]) -> Result<FileId, (&'static str, Errno)> {
    let file = files::create_private(folder, name).map_err(|e| ("create", e))?;
    let filled = fill(&file, initial).and_then(|()| files::identity(&file).map_err(|e| ("stat", e)));
    if filled.is_err() {
        // The first failure is the one to report.
        let _left = files::unlink_if_present(folder, name);
    }
    filled
}

/// Not synced: what is reserved has to survive the end of this process at any point, and does. A power cut before the
/// end loses the run anyway, and a sync would hold up every start by a millisecond or more.
fn fill(file: &OwnedFd, bytes: &[u8]) -> Result<(), (&'static str, Errno)> {
    files::write_all(file, bytes).map_err(|e| ("write", e))
}

/// Says why the path could not be taken.
fn refused(folder: &OwnedFd, name: &OsStr, path: &Path, step: &'static str, errno: Errno) -> JournalError {
    if errno != Errno::EXIST {
        return JournalError::refused(step, path, errno);
    }
    let link = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|s| rustix::fs::FileType::from_raw_mode(s.st_mode) == rustix::fs::FileType::Symlink);
    let dangling = link && rustix::fs::statat(folder, name, AtFlags::empty()).is_err();
    let reason = match (link, dangling) {
        (true, true) => "a symbolic link to nothing is there already",
        (true, false) => "a symbolic link is there already",
        (false, _) => "something is there already",
    };
    JournalError::new(ErrorKind::Exists, step, path, reason)
}

/// Opens the folder of a place to be reserved.
fn open_parent(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, path, flags, Mode::empty())
}

#[cfg(test)]
mod tests;
