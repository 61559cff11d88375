//! `pin.json`: what was installed, vouched for by whom, and how the files looked when their digests were taken.

use std::io::Read as _;

use serde::{Deserialize, Serialize};

use crate::beneath::Folder;
use crate::digest::Sha256Digest;
use crate::error::{PinError, PinErrorKind, Step};
use crate::kind::PinKind;
use crate::list::is_plain_relative;
use crate::stamp::Stamp;
use crate::verify::{check_owner, stat};

/// The record's name in the folder of a version.
pub(crate) const RECORD_NAME: &str = "pin.json";
/// The remedy for a record or an executable that cannot be trusted.
pub(crate) const AGAIN: &str = "install it again with `stockade provision`";
const SCHEMA_VERSION: u32 = 1;
const MAX_RECORD_BYTES: u64 = 256 * 1024;

/// The record of one installed version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The version of this format.
    pub schema_version: u32,
    /// The provider's name.
    pub provider: String,
    /// The provider's version.
    pub version: String,
    /// The npm package it came in; none for a bare file adopted under the person's own pin.
    pub package: Option<String>,
    /// The executable, below the folder of the version.
    pub executable: String,
    /// The executable's digest.
    pub sha256: Sha256Digest,
    /// The executable's length in bytes.
    pub size: u64,
    /// Who vouched for it when it was installed.
    pub pin: PinKind,
    /// When it was installed, RFC 3339 in UTC.
    pub installed_at: String,
    /// How the executable looked when its digest was taken.
    pub stamp: Stamp,
    /// The files that the executable needs beside it.
    pub companions: Vec<RecordedFile>,
}

/// One file of an installed version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedFile {
    /// Its place below the folder of the version.
    pub path: String,
    /// Its digest.
    pub sha256: Sha256Digest,
    /// Its length in bytes.
    pub size: u64,
    /// How it looked when its digest was taken.
    pub stamp: Stamp,
}

/// The facts of a record that are not facts about its files.
#[derive(Debug)]
pub(crate) struct RecordHead {
    pub(crate) provider: String,
    pub(crate) version: String,
    pub(crate) package: Option<String>,
    pub(crate) pin: PinKind,
    pub(crate) installed_at: String,
}

impl Record {
    pub(crate) fn new(head: RecordHead, executable: RecordedFile, companions: Vec<RecordedFile>) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            provider: head.provider,
            version: head.version,
            package: head.package,
            executable: executable.path,
            sha256: executable.sha256,
            size: executable.size,
            pin: head.pin,
            installed_at: head.installed_at,
            stamp: executable.stamp,
            companions,
        }
    }

    /// Every file with its digest, the executable first.
    pub fn files(&self) -> Vec<RecordedFile> {
        let executable = RecordedFile {
            path: self.executable.clone(),
            sha256: self.sha256,
            size: self.size,
            stamp: self.stamp,
        };
        std::iter::once(executable).chain(self.companions.iter().cloned()).collect()
    }

    pub(crate) fn set_stamp(&mut self, path: &str, stamp: Stamp) {
        if path == self.executable {
            self.stamp = stamp;
        }
        for companion in self.companions.iter_mut().filter(|companion| companion.path == path) {
            companion.stamp = stamp;
        }
    }

    /// Reads the record of the version that the folder holds; a record that cannot be read or belongs elsewhere is refused.
    pub(crate) fn read(folder: &Folder, provider: &str, version: &str) -> Result<Self, PinError> {
        let path = folder.path().join(RECORD_NAME);
        let refuse = |detail: String| {
            PinError::new(PinErrorKind::Refused, Step::ReadRecord, detail).at(&path).hinted(AGAIN)
        };
        let file = folder.open_file(RECORD_NAME).map_err(|errno| {
            PinError::os(PinErrorKind::Refused, Step::ReadRecord, &path, errno).hinted(AGAIN)
        })?;
        check_owner(&stat(&file, &path)?, &path)?;
        let mut text = String::new();
        let read = file.take(MAX_RECORD_BYTES + 1).read_to_string(&mut text).map_err(|error| {
            PinError::io(PinErrorKind::Refused, Step::ReadRecord, &path, error).hinted(AGAIN)
        })?;
        if u64::try_from(read).is_ok_and(|read| read > MAX_RECORD_BYTES) {
            return Err(refuse("larger than any record".to_owned()));
        }
        let record: Self =
            serde_json::from_str(&text).map_err(|error| refuse(format!("not a record: {error}")))?;
        if record.schema_version != SCHEMA_VERSION {
            return Err(refuse(format!(
                "a record of format {}, not {SCHEMA_VERSION}",
                record.schema_version
            )));
        }
        if record.provider != provider || record.version != version {
            return Err(refuse(format!("the record of {}@{}", record.provider, record.version)));
        }
        if record.files().iter().any(|file| !is_plain_relative(&file.path)) {
            return Err(refuse("names a file outside its folder".to_owned()));
        }
        Ok(record)
    }

    pub(crate) fn to_json(&self) -> Result<Vec<u8>, PinError> {
        let mut json = serde_json::to_vec_pretty(self)
            .map_err(|error| PinError::new(PinErrorKind::Storage, Step::Write, error.to_string()))?;
        json.push(b'\n');
        Ok(json)
    }
}
