//! One writer for a folder: a lock in the state directory that names its owner.

use std::{
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, flock},
    io::Errno,
};

use crate::{digest, error::JournalError, files, state::State};

/// Names of these locks begin so.
const PREFIX: &str = "workspace-";
/// A run's id and a newline.
const OWNER_LIMIT_BYTES: usize = 256;
/// How often a lock that goes away while it is taken is tried again.
const ATTEMPTS: u32 = 16;

/// The lock of a folder, held until this value is dropped or the process ends, however it ends.
#[derive(Debug)]
pub struct WorkspaceLock {
    path: PathBuf,
    _file: OwnedFd,
}

/// Who has the folder.
#[derive(Debug)]
pub enum Writer {
    /// This run, from now on.
    Us(WorkspaceLock),
    /// Another run that lives, by its id.
    Other(String),
}

impl WorkspaceLock {
    /// Takes the lock of a canonical folder for a run. One that a dead run left is taken over.
    pub fn take(state: &State, folder: &Path, run: &str) -> Result<Writer, JournalError> {
        use std::os::unix::ffi::OsStrExt as _;
        let digest = digest::sha256_hex(folder.as_os_str().as_bytes());
        let name = format!("{PREFIX}{}", digest.get(..32).unwrap_or(&digest));
        let path = state.locks()?.join(name);
        let fail = |e| JournalError::storage("lock", &path, e);
        for _ in 0..ATTEMPTS {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = rustix::fs::openat(CWD, &path, flags, Mode::from_raw_mode(0o600)).map_err(fail)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => {
                    let owner = files::read_at(CWD, &path, OWNER_LIMIT_BYTES).unwrap_or_default();
                    return Ok(Writer::Other(String::from_utf8_lossy(&owner).trim().to_owned()));
                }
                Err(e) => return Err(fail(e)),
            }
            // Its owner may have removed it between the two calls.
            if files::identity_at(CWD, &path).map_err(fail)? != Some(files::identity(&file).map_err(fail)?) {
                continue;
            }
            rustix::fs::ftruncate(&file, 0).map_err(fail)?;
            files::write_all(&file, format!("{run}\n").as_bytes()).map_err(fail)?;
            return Ok(Writer::Us(Self { path, _file: file }));
        }
        Err(fail(Errno::AGAIN))
    }
}

impl Drop for WorkspaceLock {
    fn drop(&mut self) {
        // Removed while it is held, so that nobody else's is removed. One that stays is free and found by `gc`.
        let _left = rustix::fs::unlinkat(CWD, &self.path, AtFlags::empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(folder: &Path) -> State {
        State::create(&folder.join("state")).unwrap()
    }

    #[test]
    fn a_second_writer_is_told_who_the_first_is() {
        let folder = tempfile::tempdir().unwrap();
        let state = state(folder.path());
        let Writer::Us(lock) = WorkspaceLock::take(&state, Path::new("/ws"), "run-1").unwrap() else {
            panic!()
        };
        let Writer::Other(owner) = WorkspaceLock::take(&state, Path::new("/ws"), "run-2").unwrap() else {
            panic!()
        };
        assert_eq!(owner, "run-1");
        assert!(matches!(WorkspaceLock::take(&state, Path::new("/other"), "run-2").unwrap(), Writer::Us(_)));
        drop(lock);
        assert!(matches!(WorkspaceLock::take(&state, Path::new("/ws"), "run-2").unwrap(), Writer::Us(_)));
        assert_eq!(std::fs::read_dir(state.locks().unwrap()).unwrap().count(), 0);
    }

    #[test]
    fn a_lock_that_a_dead_run_left_is_taken_over() {
        let folder = tempfile::tempdir().unwrap();
        let state = state(folder.path());
        let Writer::Us(lock) =
            WorkspaceLock::take(&state, Path::new("/ws"), "a-dead-run-with-a-long-id").unwrap()
        else {
            panic!()
        };
        let path = lock.path.clone();
        drop(lock);
        // As a process that was killed leaves it: there, and locked by nobody.
        std::fs::write(&path, "a-dead-run-with-a-long-id\n").unwrap();
        let Writer::Us(_lock) = WorkspaceLock::take(&state, Path::new("/ws"), "r").unwrap() else { panic!() };
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "r\n");
    }
}
