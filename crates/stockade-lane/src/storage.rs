//! What a failure of Stockade's own files means for a run.

use stockade_core::status::{Boundary, Cause, Refusal, Status};
use stockade_journal::{ErrorKind, JournalError};

/// A failure of the journal as a refusal: usage errors create nothing, the rest is `storage-failed`.
pub(crate) fn refusal(e: &JournalError) -> Refusal {
    let cause = |code: &str, boundary| {
        let cause = Cause::new(code, boundary, e.step(), e.to_string())
            .with_errno(e.errno().unwrap_or(0))
            .with_evidence(e.path().display().to_string());
        match e.hint() {
            Some(hint) => cause.with_remedy(hint),
            None => cause,
        }
    };
    let code = e.kind().code();
    match e.kind() {
        ErrorKind::Exists
        | ErrorKind::SamePath
        | ErrorKind::InsideWritableRoot
        | ErrorKind::PathUnusable
        | ErrorKind::NotFound => Refusal::usage(cause(code, Boundary::Order)),
        ErrorKind::Storage
        | ErrorKind::Superseded
        | ErrorKind::StateRefused
        | ErrorKind::Malformed
        | ErrorKind::InUse => Refusal::new(Status::StorageFailed, cause(code, Boundary::Storage)),
    }
}
