//! Where the bytes come from: the registry, or a file of the caller's.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags};
use sha2::{Digest as _, Sha512};

use crate::beneath::Folder;
use crate::digest::Integrity;
use crate::error::{PinError, PinErrorKind, Step};
use crate::http::download;
use crate::install::{read_some, write_failed};
use crate::list::Transform;
use crate::network::Network;
use crate::progress::{Phase, Watch};
use crate::target::Target;
use crate::{CHUNK_BYTES, MAX_FILE_BYTES, MAX_TARBALL_BYTES};

/// The tarball's name in the staging directory.
const TARBALL_NAME: &str = "tarball";
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const ELF_MAGIC: [u8; 4] = *b"\x7fELF";

/// Bytes ready to be installed.
#[derive(Debug)]
pub(crate) enum Source {
    /// A tarball of the package.
    Tarball(File),
    /// The executable alone, perhaps still compressed.
    Bare { file: File, name: String, transform: Transform },
}

/// Downloads the tarball into the staging directory and checks the registry's digest of it.
pub(crate) fn from_registry(
    target: &Target,
    network: &Network,
    stage: &Folder,
    watch: &mut Watch<'_>,
) -> Result<Source, PinError> {
    let agent = network.agent()?;
    let mut copy = TarballCopy::create(stage)?;
    let url = network.url(&target.registry_path);
    download(agent, &url, target.tarball_size, watch, &mut |chunk| copy.write(chunk))?;
    copy.finish(target.integrity.as_ref(), &url).map(Source::Tarball)
}

/// Opens the caller's file. What it is, is told by its first bytes, and for brotli, which has no mark, by its name.
pub(crate) fn from_file(
    path: &Path,
    target: &Target,
    stage: &Folder,
    watch: &mut Watch<'_>,
) -> Result<Source, PinError> {
    let mut file = open_source(path)?;
    let mut start = [0; 4];
    let _short = file.read_at(&mut start, 0).map_err(|error| unreadable(path, error))?;
    if start.starts_with(&GZIP_MAGIC) {
        return copy_tarball(&mut file, path, target, stage, watch).map(Source::Tarball);
    }
    if target.sole_file().is_none() {
        let detail = format!("{} consists of several files: its tarball is needed", target.name());
        return Err(PinError::new(PinErrorKind::Usage, Step::ReadSource, detail).at(path));
    }
    let brotli = path.extension().is_some_and(|extension| extension == "br") && start != ELF_MAGIC;
    let transform = if brotli { Transform::Brotli } else { Transform::None };
    Ok(Source::Bare { file, name: path.display().to_string(), transform })
}

fn open_source(path: &Path) -> Result<File, PinError> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let refuse = |errno| PinError::os(PinErrorKind::Usage, Step::ReadSource, path, errno);
    let file = File::from(rustix::fs::openat(CWD, path, flags, Mode::empty()).map_err(refuse)?);
    let stat = rustix::fs::fstat(&file).map_err(refuse)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(PinError::new(PinErrorKind::Usage, Step::ReadSource, "not a regular file").at(path));
    }
    if u64::try_from(stat.st_size).is_ok_and(|size| size > MAX_FILE_BYTES) {
        let detail = format!("larger than the {MAX_FILE_BYTES} bytes it may have");
        return Err(PinError::new(PinErrorKind::VerificationFailed, Step::ReadSource, detail).at(path));
    }
    Ok(file)
}

/// Copies the tarball, so that what is checked is what is unpacked even if the caller's file changes meanwhile.
fn copy_tarball(
    file: &mut File,
    path: &Path,
    target: &Target,
    stage: &Folder,
    watch: &mut Watch<'_>,
) -> Result<File, PinError> {
    let limit = target.tarball_size.unwrap_or(MAX_TARBALL_BYTES);
    let mut copy = TarballCopy::create(stage)?;
    let mut reader = file.take(limit.saturating_add(1));
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut done = 0_u64;
    loop {
        watch.report(Step::ReadSource, Phase::Reading, done, target.tarball_size)?;
        let count = read_some(&mut reader, &mut buffer).map_err(|error| unreadable(path, error))?;
        done = done.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
        if done > limit {
            let detail = format!("larger than the {limit} bytes it may have");
            return Err(PinError::new(PinErrorKind::VerificationFailed, Step::ReadSource, detail).at(path));
        }
        match buffer.get(..count) {
            Some(chunk) if !chunk.is_empty() => copy.write(chunk)?,
            _ => return copy.finish(target.integrity.as_ref(), &path.display().to_string()),
        }
    }
}

fn unreadable(path: &Path, error: std::io::Error) -> PinError {
    PinError::io(PinErrorKind::Usage, Step::ReadSource, path, error)
}

/// A tarball being written to the staging directory and hashed on the way.
struct TarballCopy {
    file: File,
    path: std::path::PathBuf,
    hasher: Sha512,
}

impl TarballCopy {
    fn create(stage: &Folder) -> Result<Self, PinError> {
        let path = stage.path().join(TARBALL_NAME);
        let file =
            stage.create_file(TARBALL_NAME).map_err(|errno| PinError::storage(Step::Write, &path, errno))?;
        Ok(Self { file, path, hasher: Sha512::new() })
    }

    fn write(&mut self, chunk: &[u8]) -> Result<(), PinError> {
        self.hasher.update(chunk);
        self.file.write_all(chunk).map_err(|error| write_failed(&self.path, &error))
    }

    fn finish(mut self, expected: Option<&Integrity>, name: &str) -> Result<File, PinError> {
        let found = Integrity::of(self.hasher);
        if let Some(expected) = expected.filter(|expected| **expected != found) {
            let detail = format!("{name} has the integrity {found}, pinned is {expected}");
            return Err(PinError::new(PinErrorKind::VerificationFailed, Step::CheckIntegrity, detail)
                .hinted("a proxy or mirror may have answered instead of the registry; try again, or use `--from FILE`"));
        }
        self.file.seek(SeekFrom::Start(0)).map_err(|error| write_failed(&self.path, &error))?;
        Ok(self.file)
    }
}
