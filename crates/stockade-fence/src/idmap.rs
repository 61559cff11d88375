//! Whether the owners of a folder's files can be mapped, known before anything is planned.

use std::os::fd::AsFd;
use std::path::Path;

use crate::error::FenceError;
use crate::sys::files::{self, Seen};
use crate::sys::mounts::{self, Attributes, Reach};
use crate::sys::userns::OwnerMap;

/// Tries to map the owners of what lies at the path, with a user namespace that is there already or one made for it.
pub(crate) fn try_on(path: &Path, namespace: Option<impl AsFd>) -> Result<(), FenceError> {
    let fd = files::open_strict(path)?;
    let tree = mounts::clone_tree(&fd, Reach::Mount).map_err(|e| e.on(path))?;
    if let Some(namespace) = namespace {
        // Any pair of ids tells.
        return mounts::map_owners(&tree, namespace, Attributes::NO_SETUID).map_err(|e| e.on(path));
    }
    let map = OwnerMap::new(Seen::of(&fd)?.owner, PROBE)?;
    let result = mounts::map_owners(&tree, map.namespace(), Attributes::NO_SETUID).map_err(|e| e.on(path));
    map.leave();
    result
}

/// The kernel ids mapped to: no file is ever made with them.
const PROBE: (u32, u32) = (65_534, 65_534);
