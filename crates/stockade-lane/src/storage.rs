//! What a failure of Stockade's own files means for a run.

use stockade_core::status::{Refusal, Status};
use stockade_journal::{ErrorKind, JournalError};

/// A failure of the journal as a refusal: usage errors create nothing, the rest is `storage-failed`.
pub(crate) fn refusal(e: &JournalError) -> Refusal {
    let refusal = match e.kind() {
        ErrorKind::Exists
        | ErrorKind::SamePath
        | ErrorKind::InsideWritableRoot
        | ErrorKind::PathUnusable
        | ErrorKind::NotFound => Refusal::usage(e.cause()),
        ErrorKind::Storage
        | ErrorKind::Superseded
        | ErrorKind::StateRefused
        | ErrorKind::Malformed
        | ErrorKind::InUse => Refusal::new(Status::StorageFailed, e.cause()),
    };
    refusal.with_path(e.path())
}
