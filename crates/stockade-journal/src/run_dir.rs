//! The private directory of one run: the record of what happened, kept on every ending.

mod events;
mod transcript;

use std::{
    collections::BTreeMap,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::{fs::FlockOperation, io::Errno};
use stockade_core::{event::Event, receipt::LauncherRecord};

use self::events::EventLog;
pub use self::transcript::{Stream, Transcript, TranscriptRecord};
use crate::{
    copy::{Copied, copy_into},
    digest,
    error::{ErrorKind, JournalError},
    files::{self, PRIVATE_FOLDER},
    remove,
};

/// Names of the files of a run directory.
pub mod file {
    /// One event a line.
    pub const EVENTS: &str = "events.ndjson";
    /// The launch plan.
    pub const PLAN: &str = "plan.json";
    /// What the agent wrote to standard output.
    pub const STDOUT: &str = "stdout";
    /// What the agent wrote to standard error.
    pub const STDERR: &str = "stderr";
    /// The answer.
    pub const ANSWER: &str = "answer";
    /// The event log of the agent's own session.
    pub const SESSION_EVENTS: &str = "session-events.jsonl";
    /// The receipt.
    pub const RECEIPT: &str = "receipt.json";
    /// Who runs it; locked for as long as that process lives.
    pub const LAUNCHER: &str = "launcher.json";
    /// A receipt that is being written.
    pub(crate) const RECEIPT_TEMPORARY: &str = ".receipt.json.tmp";
    /// A launcher's record that is not locked yet.
    pub(crate) const LAUNCHER_TEMPORARY: &str = ".launcher.json.tmp";

    /// The files whose digests a receipt names.
    pub const DIGESTED: &[&str] = &[EVENTS, PLAN, STDOUT, STDERR, ANSWER, SESSION_EVENTS];
}

/// Files of a run directory are bounded when written; whatever is larger was not written by this crate.
pub(crate) const DIGEST_LIMIT_BYTES: u64 = 4 * 1024 * 1024 * 1024;

/// A run directory that is being written.
#[derive(Debug)]
pub struct RunDir {
    id: String,
    path: PathBuf,
    runs: OwnedFd,
    folder: OwnedFd,
    events: EventLog,
    _launcher: OwnedFd,
}

impl RunDir {
    pub(crate) fn create(
        runs: &OwnedFd,
        runs_path: &Path,
        id: &str,
        launcher: &LauncherRecord,
    ) -> Result<Self, JournalError> {
        let path = runs_path.join(id);
        let fail = |errno| JournalError::refused("create", &path, errno);
        let runs = runs.try_clone().map_err(|e| fail(crate::state::errno_of(&e)))?;
        rustix::fs::mkdirat(&runs, id, PRIVATE_FOLDER).map_err(fail)?;
        let opened = files::open_folder(&runs, id).map_err(fail).and_then(|folder| {
            rustix::fs::fchmod(&folder, PRIVATE_FOLDER).map_err(fail)?;
            let launcher = write_launcher(&folder, &path, launcher)?;
            let events = EventLog::create(&folder, &path)?;
            Ok((folder, launcher, events))
        });
        match opened {
            Ok((folder, launcher, events)) => {
                Ok(Self { id: id.to_owned(), path, runs, folder, events, _launcher: launcher })
            }
            Err(e) => {
                // The first failure is the one to report; what stays is empty and found by `gc`.
                let _left = remove::remove_entry(&runs, id, &path);
                Err(e)
            }
        }
    }

    /// The run's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Its path, without links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends an event as one line in one write. When the log is full, one note says so and later events are only
    /// counted. A line that could not be written whole is reported, and the next one starts on a line of its own.
    pub fn append_event(&mut self, event: &Event) -> Result<(), JournalError> {
        self.events.append(event)
    }

    /// Events left out because the log was full.
    pub fn events_left_out(&self) -> u64 {
        self.events.left_out()
    }

    /// Writes the plan, once; gives its digest.
    pub fn write_plan(&self, bytes: &[u8]) -> Result<String, JournalError> {
        self.write_once(file::PLAN, bytes)
    }

    /// Writes the answer, once; gives its digest.
    pub fn write_answer(&self, bytes: &[u8]) -> Result<String, JournalError> {
        self.write_once(file::ANSWER, bytes)
    }

    /// Opens the transcript of a stream, once; it keeps the first `limit_bytes`.
    pub fn transcript(&self, stream: Stream, limit_bytes: u64) -> Result<Transcript, JournalError> {
        Transcript::create(&self.folder, &self.path, stream, limit_bytes)
    }

    /// Copies the session log that the agent left at `relative` below `folder`, `limit_bytes` at most, once. No
    /// component of `relative` may be a link.
    pub fn keep_session_events(
        &self,
        folder: &Path,
        relative: &Path,
        limit_bytes: u64,
    ) -> Result<Copied, JournalError> {
        let target = self.path.join(file::SESSION_EVENTS);
        copy_into(folder, relative, &self.folder, file::SESSION_EVENTS, &target, limit_bytes)
    }

    /// The digests of the files written so far, by name; to be asked after the last event. The receipt, the launcher
    /// and files that were never made are not among them.
    pub fn digests(&self) -> Result<BTreeMap<String, String>, JournalError> {
        digests_of(&self.folder, &self.path)
    }

    /// Writes the receipt that stands until the final one comes, whole or not at all. It survives the end of this
    /// process at any point; it is not synced, for a power failure before the end loses the run anyway.
    pub fn reserve_receipt(&self, bytes: &[u8]) -> Result<(), JournalError> {
        let staged = files::stage_file(&self.folder, file::RECEIPT_TEMPORARY, bytes);
        staged.map_err(|e| self.receipt_failed("write", e))?;
        self.publish_receipt()
    }

    /// Writes or replaces the receipt of the run directory: whole or not at all, and durable on return, name included.
    pub fn write_receipt(&self, bytes: &[u8]) -> Result<(), JournalError> {
        let staged = files::stage_durably(&self.folder, file::RECEIPT_TEMPORARY, bytes);
        staged.map_err(|e| self.receipt_failed("write", e))?;
        self.publish_receipt()?;
        files::sync_folder(&self.folder).map_err(|e| self.receipt_failed("sync", e))
    }

    fn publish_receipt(&self) -> Result<(), JournalError> {
        rustix::fs::renameat(&self.folder, file::RECEIPT_TEMPORARY, &self.folder, file::RECEIPT)
            .map_err(|e| self.receipt_failed("rename", e))
    }

    fn receipt_failed(&self, step: &'static str, errno: Errno) -> JournalError {
        JournalError::storage(step, &self.path.join(file::RECEIPT), errno)
    }

    /// Takes the whole directory away, for an order that turns out to be a usage error: nothing was created.
    pub fn discard(self) -> Result<(), JournalError> {
        remove::remove_entry(&self.runs, self.id.as_str(), &self.path)
    }

    fn write_once(&self, name: &'static str, bytes: &[u8]) -> Result<String, JournalError> {
        let path = self.path.join(name);
        let file = files::create_private(&self.folder, name)
            .map_err(|e| JournalError::storage("create", &path, e))?;
        files::write_all(file, bytes).map_err(|e| JournalError::storage("write", &path, e))?;
        Ok(digest::sha256_hex(bytes))
    }
}

/// Digests of the digested files that are there.
pub(crate) fn digests_of(folder: impl AsFd, path: &Path) -> Result<BTreeMap<String, String>, JournalError> {
    let mut digests = BTreeMap::new();
    for name in file::DIGESTED {
        let fail = |e| JournalError::storage("hash", &path.join(name), e);
        let file = match files::open_regular(&folder, *name) {
            Ok(file) => file,
            Err(Errno::NOENT) => continue,
            Err(e) => return Err(fail(e)),
        };
        let (hex, _) =
            digest::of_file(file, DIGEST_LIMIT_BYTES).map_err(fail)?.ok_or_else(|| fail(Errno::FBIG))?;
        digests.insert((*name).to_owned(), hex);
    }
    Ok(digests)
}

/// Records the launcher and holds its lock. The file gets its name when it is locked: nobody sees it otherwise.
fn write_launcher(folder: &OwnedFd, path: &Path, launcher: &LauncherRecord) -> Result<OwnedFd, JournalError> {
    let path = path.join(file::LAUNCHER);
    let fail = |e| JournalError::storage("write", &path, e);
    let bytes = serde_json::to_vec(launcher)
        .map_err(|e| JournalError::new(ErrorKind::Storage, "write", &path, e.to_string()))?;
    let file = files::stage_file(folder, file::LAUNCHER_TEMPORARY, &bytes).map_err(fail)?;
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(fail)?;
    rustix::fs::renameat(folder, file::LAUNCHER_TEMPORARY, folder, file::LAUNCHER).map_err(fail)?;
    Ok(file)
}

#[cfg(test)]
mod tests;
