//! Bounded transcripts of what the agent wrote.

use std::{
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use sha2::{Digest as _, Sha256};

use super::file;
use crate::{digest, error::JournalError, files};

/// Which stream of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl Stream {
    /// The name of its file in the run directory.
    pub const fn file_name(self) -> &'static str {
        match self {
            Self::Stdout => file::STDOUT,
            Self::Stderr => file::STDERR,
        }
    }
}

/// A transcript that is being written.
#[derive(Debug)]
pub struct Transcript {
    path: PathBuf,
    file: OwnedFd,
    hasher: Sha256,
    limit: u64,
    seen: u64,
    kept: u64,
}

/// What became of a transcript.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TranscriptRecord {
    /// Bytes that the agent wrote.
    pub bytes_seen: u64,
    /// Bytes in the file: the first ones.
    pub bytes_kept: u64,
    /// Whether bytes are missing at the end.
    pub cut: bool,
    /// SHA-256 of what is in the file.
    pub sha256: String,
}

impl Transcript {
    pub(super) fn create(
        folder: &OwnedFd,
        path: &Path,
        stream: Stream,
        limit: u64,
    ) -> Result<Self, JournalError> {
        let path = path.join(stream.file_name());
        let file = files::create_private(folder, stream.file_name())
            .map_err(|e| JournalError::storage("create", &path, e))?;
        Ok(Self { path, file, hasher: Sha256::new(), limit, seen: 0, kept: 0 })
    }

    /// Appends bytes as they came; what is over the limit is counted only.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), JournalError> {
        self.seen = self.seen.saturating_add(bytes.len() as u64);
        let room = usize::try_from(self.limit.saturating_sub(self.kept)).unwrap_or(usize::MAX);
        let mut rest = bytes.get(..room.min(bytes.len())).unwrap_or_default();
        while !rest.is_empty() {
            // Piece by piece, so that the digest is that of the file even when the disk is full half-way.
            let n = match rustix::io::write(&self.file, rest) {
                Ok(0) => Err(rustix::io::Errno::IO),
                Err(rustix::io::Errno::INTR) => continue,
                other => other,
            }
            .map_err(|e| JournalError::storage("write", &self.path, e))?;
            let (written, later) = rest.split_at_checked(n).unwrap_or((rest, &[]));
            self.hasher.update(written);
            self.kept = self.kept.saturating_add(written.len() as u64);
            rest = later;
        }
        Ok(())
    }

    /// Whether the limit was reached and bytes are missing.
    pub fn is_cut(&self) -> bool {
        self.kept < self.seen
    }

    /// Bytes that the agent wrote so far.
    pub fn bytes_seen(&self) -> u64 {
        self.seen
    }

    /// Ends the transcript.
    pub fn finish(self) -> TranscriptRecord {
        TranscriptRecord {
            bytes_seen: self.seen,
            bytes_kept: self.kept,
            cut: self.is_cut(),
            sha256: digest::finish(self.hasher),
        }
    }
}
