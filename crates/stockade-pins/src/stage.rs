//! A place for unfinished work that disappears with the work, whatever ends it.

use std::fs::File;

use rustix::io::Errno;

use crate::beneath::Folder;
use crate::error::{PinError, Step};
use crate::lock::{lock, try_lock};
use crate::progress::Watch;

/// The folder of all staging directories, below `providers/` so that a rename stays on one file system.
const STAGING: &str = ".staging";
/// Held while staging directories are made or cleared away, so that none is seen before it is locked.
const DOOR: &str = ".lock";
/// Held for the life of one staging directory; the kernel lets go of it when its process dies.
const ALIVE: &str = "alive";
/// Provisions running at the same time in one state directory.
const MAX_STAGES: u32 = 1000;

/// One staging directory, removed on drop.
#[derive(Debug)]
pub(crate) struct Stage {
    staging: Folder,
    name: String,
    folder: Folder,
    _alive: File,
}

impl Stage {
    /// Clears away what dead processes left and makes a new staging directory.
    pub(crate) fn begin(providers: &Folder, label: &str, watch: &mut Watch<'_>) -> Result<Self, PinError> {
        let staging = providers
            .ensure_folder(STAGING)
            .map_err(|errno| PinError::storage(Step::Stage, &providers.path().join(STAGING), errno))?;
        let path = staging.path().to_owned();
        let fail = |errno| PinError::storage(Step::Stage, &path, errno);

        let door = staging.open_lock(DOOR).map_err(fail)?;
        lock(&door, &path.join(DOOR), watch)?;
        sweep(&staging).map_err(fail)?;
        let (name, folder) = make(&staging, label).map_err(fail)?;
        let alive =
            folder.create_file(ALIVE).and_then(|alive| try_lock(&alive).map(|_| alive)).map_err(fail)?;
        Ok(Self { staging, name, folder, _alive: alive })
    }

    pub(crate) fn folder(&self) -> &Folder {
        &self.folder
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // What cannot be removed now is removed by the next provision.
        let _left_over = self.staging.remove(self.name.as_ref());
    }
}

fn make(staging: &Folder, label: &str) -> Result<(String, Folder), Errno> {
    for number in 0..MAX_STAGES {
        let name = format!("{label}-{number}");
        match staging.create_folder(&name) {
            Ok(folder) => return Ok((name, folder)),
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::EXIST)
}

fn sweep(staging: &Folder) -> Result<(), Errno> {
    for name in staging.entries()? {
        if name == DOOR {
            continue;
        }
        let alive = match staging.open_folder(&name) {
            Ok(folder) => match folder.open_lock_if_present(ALIVE)? {
                Some(file) => !try_lock(&file)?,
                None => false,
            },
            Err(_not_a_folder) => false,
        };
        if !alive {
            // Something odd left by another user must not keep this person from provisioning.
            let _left_over = staging.remove(&name);
        }
    }
    Ok(())
}
