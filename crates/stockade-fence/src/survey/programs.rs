//! Programs on PATH. They are looked up, not run.

use std::ffi::OsStr;
use std::path::PathBuf;

use rustix::fs::Access;

/// Finds the first executable file of this name in the absolute folders of `path`.
///
/// Relative and empty entries name the current folder, which may be a workspace: they are passed over.
pub(super) fn first(name: &str, path: Option<&OsStr>) -> Option<PathBuf> {
    let folders = path.into_iter().flat_map(std::env::split_paths).filter(|folder| folder.is_absolute());
    folders.map(|folder| folder.join(name)).find(|candidate| {
        std::fs::metadata(candidate).is_ok_and(|metadata| metadata.is_file())
            && rustix::fs::access(candidate, Access::EXEC_OK).is_ok()
    })
}
