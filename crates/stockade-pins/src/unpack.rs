//! Takes the named files out of a tarball, and nothing else.
//!
//! Names in the tarball are only ever compared, never used as paths, so nothing can be written elsewhere; an archive that tries
//! is refused all the same. Names in extension headers are not honoured: npm's are short enough to need none.

use std::fs::File;
use std::io::Read;

use brotli_decompressor::Decompressor;
use flate2::read::GzDecoder;
use tar::{Archive, EntryType};

use crate::beneath::Folder;
use crate::error::{PinError, PinErrorKind, Step};
use crate::install::{broken, install_file};
use crate::list::Transform;
use crate::progress::Watch;
use crate::record::RecordedFile;
use crate::target::TargetFile;

/// Entries read of one tarball.
const MAX_ENTRIES: usize = 50_000;
/// Bytes unpacked of one tarball, entries that are not wanted included.
const MAX_UNPACKED_BYTES: u64 = 4 << 30;
const BROTLI_BUFFER_BYTES: usize = 64 * 1024;
/// Named in messages about the tarball as a whole.
const TARBALL: &str = "the tarball";

/// Installs `files` from the tarball into `folder`, in the order of `files`.
pub(crate) fn unpack(
    tarball: File,
    files: &[TargetFile],
    folder: &Folder,
    watch: &mut Watch<'_>,
) -> Result<Vec<RecordedFile>, PinError> {
    let mut archive = Archive::new(GzDecoder::new(tarball).take(MAX_UNPACKED_BYTES));
    let entries = archive.entries().map_err(|error| broken(TARBALL, error))?;
    let mut taken: Vec<Option<RecordedFile>> = files.iter().map(|_| None).collect();
    for (number, entry) in entries.raw(true).enumerate() {
        let mut entry = entry.map_err(|error| broken(TARBALL, error))?;
        if number >= MAX_ENTRIES {
            return Err(unsafe_tarball(&format!("it has more than {MAX_ENTRIES} entries")));
        }
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        if name.starts_with('/') || name.split('/').any(|part| part == "..") {
            return Err(unsafe_tarball(&format!("`{}` would leave its folder", name.escape_debug())));
        }
        let wanted = files.iter().zip(taken.iter_mut()).find(|(file, _)| file.from == name);
        let Some((file, place)) = wanted else { continue };
        if !matches!(entry.header().entry_type(), EntryType::Regular | EntryType::Continuous) {
            return Err(unsafe_tarball(&format!("`{name}` is not a regular file")));
        }
        if place.is_some() {
            return Err(unsafe_tarball(&format!("`{name}` is in it twice")));
        }
        *place = Some(transform(file, &mut entry, folder, watch)?);
    }
    files
        .iter()
        .zip(taken)
        .map(|(file, found)| found.ok_or_else(|| unsafe_tarball(&format!("`{}` is missing", file.from))))
        .collect()
}

/// Installs one file, decompressing it on the way where its transformation says so.
pub(crate) fn transform(
    file: &TargetFile,
    reader: &mut dyn Read,
    folder: &Folder,
    watch: &mut Watch<'_>,
) -> Result<RecordedFile, PinError> {
    match file.transform {
        Transform::None => install_file(folder, file, reader, watch),
        Transform::Brotli => {
            install_file(folder, file, &mut Decompressor::new(reader, BROTLI_BUFFER_BYTES), watch)
        }
    }
}

fn unsafe_tarball(detail: &str) -> PinError {
    PinError::new(PinErrorKind::VerificationFailed, Step::Unpack, format!("{TARBALL} is refused: {detail}"))
}
