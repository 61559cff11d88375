//! Whether the owners of a folder's files can be mapped, known before anything is planned.

use std::path::Path;

use crate::error::FenceError;
use crate::sys::files::{self, Seen};
use crate::sys::mounts::{self, Attributes, Reach};
use crate::sys::userns::OwnerMap;

/// Tries to map the owners of what lies at the path. Works on root hosts only.
///
/// An error of kind [`CannotIdmap`](crate::FenceErrorKind::CannotIdmap) says that the file system does not take part;
/// every other kind, that the attempt itself was refused.
pub fn can_idmap(path: &Path) -> Result<(), FenceError> {
    let fd = files::open_strict(path)?;
    let seen = Seen::of(&fd)?;
    let tree = mounts::clone_tree(&fd, Reach::Mount).map_err(|e| e.on(path))?;
    // Any pair of ids tells; these are those of the owner, so that the map is as in a fence.
    let map = OwnerMap::new(seen.owner, PROBE)?;
    let result = mounts::map_owners(&tree, map.namespace(), Attributes::NO_SETUID).map_err(|e| e.on(path));
    map.leave();
    result
}

/// The kernel ids mapped to: no file is ever made with them.
const PROBE: (u32, u32) = (65_534, 65_534);
