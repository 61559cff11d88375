//! One file, written through to the disk while its digest is taken.

use std::fs::File;
use std::io::{self, Read, Write as _};
use std::path::Path;

use rustix::fs::Mode;
use sha2::{Digest as _, Sha256};

use crate::beneath::Folder;
use crate::digest::Sha256Digest;
use crate::error::{PinError, PinErrorKind, Step};
use crate::progress::{Phase, Watch};
use crate::record::RecordedFile;
use crate::stamp::Stamp;
use crate::target::TargetFile;
use crate::{CHUNK_BYTES, MAX_FILE_BYTES};

/// Executables are never writable, not even by their owner.
const EXECUTABLE_MODE: Mode = Mode::from_raw_mode(0o555);

/// Writes `reader` to the file's place below `folder`. A file larger than its pin is refused as soon as it is; one with another
/// digest is refused at the end, and the caller throws the folder away.
pub(crate) fn install_file(
    folder: &Folder,
    file: &TargetFile,
    reader: &mut dyn Read,
    watch: &mut Watch<'_>,
) -> Result<RecordedFile, PinError> {
    let path = folder.path().join(&file.to);
    let storage = |errno| PinError::storage(Step::Write, &path, errno);
    let out = create(folder, &file.to).map_err(storage)?;
    let (sha256, size) = copy(&out, &path, file, reader, watch)?;
    if file.size.is_some_and(|pinned| pinned != size) || sha256 != file.sha256 {
        let detail =
            format!("`{}` has the sha256 {sha256} and {size} bytes, pinned is {}", file.from, file.sha256);
        return Err(PinError::new(PinErrorKind::VerificationFailed, Step::CheckDigest, detail)
            .hinted("do not use this file: it is not the one the pin names"));
    }
    watch.report(Step::Write, Phase::Installing, 0, None)?;
    rustix::fs::fchmod(&out, EXECUTABLE_MODE).map_err(storage)?;
    rustix::fs::fsync(&out).map_err(storage)?;
    let stat = rustix::fs::fstat(&out).map_err(storage)?;
    Ok(RecordedFile { path: file.to.clone(), sha256, size, stamp: Stamp::of(&stat) })
}

fn create(folder: &Folder, place: &str) -> Result<File, rustix::io::Errno> {
    match place.split_once('/') {
        None => folder.create_file(place),
        Some((first, rest)) => create(&folder.ensure_folder(first)?, rest),
    }
}

fn copy(
    mut out: &File,
    path: &Path,
    file: &TargetFile,
    reader: &mut dyn Read,
    watch: &mut Watch<'_>,
) -> Result<(Sha256Digest, u64), PinError> {
    let limit = file.size.unwrap_or(MAX_FILE_BYTES);
    let mut hasher = Sha256::new();
    let mut done = 0_u64;
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        watch.report(Step::Unpack, Phase::Unpacking, done, file.size)?;
        let count = read_some(reader, &mut buffer).map_err(|error| broken(&file.from, error))?;
        let chunk = buffer.get(..count).unwrap_or_default();
        if chunk.is_empty() {
            return Ok((Sha256Digest::of(hasher), done));
        }
        done = done.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
        if done > limit {
            let detail = format!("`{}` is larger than the {limit} bytes it may have", file.from);
            return Err(PinError::new(PinErrorKind::VerificationFailed, Step::Unpack, detail));
        }
        hasher.update(chunk);
        out.write_all(chunk).map_err(|error| write_failed(path, &error))?;
    }
}

pub(crate) fn read_some(reader: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match reader.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// A read that failed: by the system, or because what was read is no such archive.
pub(crate) fn broken(name: &str, error: io::Error) -> PinError {
    let kind = match error.raw_os_error() {
        Some(_) => PinErrorKind::Storage,
        None => PinErrorKind::VerificationFailed,
    };
    let errno = error.raw_os_error();
    PinError::new(kind, Step::Unpack, format!("`{name}` is damaged: {error}"))
        .with_errno(errno)
        .caused_by(error)
}

/// A write below the state directory that failed.
pub(crate) fn write_failed(path: &Path, error: &io::Error) -> PinError {
    let errno = rustix::io::Errno::from_io_error(error).unwrap_or(rustix::io::Errno::IO);
    PinError::storage(Step::Write, path, errno)
}
