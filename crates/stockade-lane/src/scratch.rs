//! A private folder that is removed again.

use std::{
    fs::DirBuilder,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use stockade_core::status::{Boundary, Cause, Refusal, Status};

/// A folder that exists only as long as this value.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes the folder (0700), which must not be there.
    pub(crate) fn make(path: PathBuf) -> Result<Self, Refusal> {
        DirBuilder::new().mode(0o700).create(&path).map_err(|e| {
            let reason = crate::admit::reason(&e);
            Refusal::new(
                Status::StorageFailed,
                Cause::new("scratch", Boundary::Storage, "mkdir", format!("`{}`: {reason}", path.display()))
                    .with_errno(e.raw_os_error().unwrap_or(0)),
            )
        })?;
        Ok(Self { path })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed is an almost empty folder that only its owner can read.
        drop(stockade_journal::remove_tree(&self.path));
    }
}
