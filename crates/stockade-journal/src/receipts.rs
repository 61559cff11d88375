//! Finding, healing and verifying receipts.

mod find;
mod verify;

use std::path::{Path, PathBuf};

use stockade_core::{
    receipt::{LauncherRecord, Receipt, SCHEMA_VERSION},
    status::Status,
};

pub(crate) use self::find::torn_temporary;
pub use self::{
    find::{Shown, Standing, Target, show},
    verify::{Check, Verification, verify},
};
use crate::{
    error::{ErrorKind, JournalError},
    launcher,
    run_dir::file,
};

/// A receipt with all its lists at their bounds is about 4 MB.
pub(crate) const RECEIPT_LIMIT_BYTES: usize = 32 * 1024 * 1024;

/// Whether a receipt is the one written before anything started.
pub fn is_reservation(receipt: &Receipt) -> bool {
    receipt.status == Status::Interrupted && receipt.completed_at.is_none()
}

/// Whether the launcher of a run still lives: by its process, or by the lock it holds in the run directory (which is
/// seen across pid namespaces, too).
pub fn is_running(run_directory: &Path, launcher: &LauncherRecord) -> bool {
    launcher::is_alive(launcher) || holds_lock(run_directory)
}

pub(crate) fn holds_lock(run_directory: &Path) -> bool {
    use rustix::{
        fs::{CWD, FlockOperation, flock},
        io::Errno,
    };
    crate::files::open_regular(CWD, run_directory.join(file::LAUNCHER))
        .is_ok_and(|f| flock(&f, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK))
}

/// A receipt as found at a path.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) path: PathBuf,
    pub(crate) bytes: Vec<u8>,
    pub(crate) receipt: Receipt,
}

/// Reads a receipt, which must be of a known version.
pub(crate) fn read(path: &Path) -> Result<Found, JournalError> {
    let bytes = read_bytes(path)?;
    let receipt = parse(path, &bytes)?;
    Ok(Found { path: path.to_owned(), bytes, receipt })
}

pub(crate) fn read_bytes(path: &Path) -> Result<Vec<u8>, JournalError> {
    crate::files::read_at(rustix::fs::CWD, path, RECEIPT_LIMIT_BYTES)
        .map_err(|e| JournalError::refused("read", path, e))
}

fn parse(path: &Path, bytes: &[u8]) -> Result<Receipt, JournalError> {
    let malformed = |reason: String| JournalError::new(ErrorKind::Malformed, "parse", path, reason);
    match schema_version(bytes) {
        Some(SCHEMA_VERSION) => {}
        Some(other) => {
            return Err(malformed(format!(
                "its schema version is {other}, this version reads {SCHEMA_VERSION}"
            )));
        }
        None => return Err(malformed("no JSON object with a `schemaVersion`".to_owned())),
    }
    serde_json::from_slice(bytes).map_err(|e| malformed(e.to_string()))
}

/// The version a receipt states, if it is one at all.
pub(crate) fn schema_version(bytes: &[u8]) -> Option<u32> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Versioned {
        schema_version: u32,
    }
    serde_json::from_slice::<Versioned>(bytes).ok().map(|v| v.schema_version)
}

#[cfg(test)]
mod tests;
