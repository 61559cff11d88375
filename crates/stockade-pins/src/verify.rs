//! The proof, before every run, that an installed executable is the one its pin names.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, Stat};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use crate::beneath::Folder;
use crate::digest::Sha256Digest;
use crate::error::{PinError, PinErrorKind, Step};
use crate::install::read_some;
use crate::kind::{PinKind, RuntimeFacts};
use crate::record::{AGAIN, RECORD_NAME, Record, RecordedFile};
use crate::stamp::Stamp;
use crate::store::{Installed, Store};
use crate::{CHUNK_BYTES, MAX_FILE_BYTES};

const WRITABLE_BY_OTHERS: u32 = 0o022;
const RUNS_AS_SOMEBODY_ELSE: u32 = 0o6000;
const EXECUTABLE: u32 = 0o111;
const RECORD_MODE: Mode = Mode::from_raw_mode(0o644);

/// An executable whose digest is proven.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The provider's name.
    pub provider: String,
    /// The installed version; none for a file named by the caller.
    pub version: Option<String>,
    /// The executable; no part of this path below the state directory is a link.
    pub path: PathBuf,
    /// The folder to show to the agent; none for a file named by the caller.
    pub folder: Option<PathBuf>,
    /// The digest.
    pub sha256: Sha256Digest,
    /// The length in bytes.
    pub size: u64,
    /// Who vouches for the digest.
    pub pin: PinKind,
    /// How the file looked, for those who open it again.
    pub stamp: Stamp,
    /// Whether the digest was taken anew, rather than known from an unchanged file.
    pub hashed: bool,
}

impl Verified {
    /// What a receipt states about this executable.
    pub fn runtime(&self) -> RuntimeFacts {
        RuntimeFacts {
            name: self.provider.clone(),
            version: self.version.clone(),
            sha256: self.sha256,
            pin: self.pin,
        }
    }
}

/// When a digest is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    /// Only where device, inode, size, mtime or ctime differ from the record.
    WhereChanged,
    /// Always.
    Always,
}

impl Store {
    /// Proves that an installed version is what its pin names. Its digest is taken again only where the kernel says that a file
    /// has changed; the record is then brought up to date if it can be. Anything amiss is [`PinErrorKind::Refused`].
    pub fn verify(&self, installed: &Installed) -> Result<Verified, PinError> {
        self.check(installed, Effort::WhereChanged)
    }

    /// Like [`Store::verify`], taking every digest again.
    pub fn verify_fully(&self, installed: &Installed) -> Result<Verified, PinError> {
        self.check(installed, Effort::Always)
    }

    pub(crate) fn check(&self, installed: &Installed, effort: Effort) -> Result<Verified, PinError> {
        let pin = self.vouched_by(installed)?;
        let folder = self.open_version(&installed.provider, &installed.version)?;
        let mut record = installed.record.clone();
        let mut hashed = false;
        for file in installed.record.files() {
            let must_run = file.path == record.executable;
            let checked = check_file(&folder, &file, effort)?;
            if must_run && checked.mode & EXECUTABLE == 0 {
                return Err(refused(&folder.path().join(&file.path), "it is not executable".to_owned()));
            }
            record.set_stamp(&file.path, checked.stamp);
            hashed |= checked.hashed;
        }
        if record != installed.record {
            // A person who may only read the state directory pays with a digest per run.
            let _read_only = renew(&folder, &record);
        }
        Ok(Verified {
            provider: installed.provider.clone(),
            version: Some(installed.version.clone()),
            path: folder.path().join(&record.executable),
            folder: Some(folder.path().to_owned()),
            sha256: record.sha256,
            size: record.size,
            pin,
            stamp: record.stamp,
            hashed,
        })
    }

    /// Who vouches for the record, by the list of today: a record cannot claim Stockade's word for itself.
    fn vouched_by(&self, installed: &Installed) -> Result<PinKind, PinError> {
        let record = &installed.record;
        let Some(pin) = self.pins().find(&installed.provider, &installed.version) else {
            return match record.pin {
                PinKind::User => Ok(PinKind::User),
                PinKind::Stockade | PinKind::Retired => Ok(PinKind::Retired),
                PinKind::Unpinned => Err(refused(&installed.executable, "nobody vouches for it".to_owned())),
            };
        };
        let files = record.files();
        let same = files.len() == pin.files.len()
            && record.executable == pin.executable
            && pin.files.iter().all(|wanted| {
                files.iter().any(|file| {
                    file.path == wanted.to && file.sha256 == wanted.sha256 && file.size == wanted.size
                })
            });
        if same {
            return Ok(PinKind::Stockade);
        }
        Err(refused(
            &installed.executable,
            format!("it was installed as {}, which Stockade's pin does not name", record.sha256),
        ))
    }
}

struct Checked {
    stamp: Stamp,
    mode: u32,
    hashed: bool,
}

fn check_file(folder: &Folder, file: &RecordedFile, effort: Effort) -> Result<Checked, PinError> {
    let path = folder.path().join(&file.path);
    let open = folder.open_file(&file.path).map_err(|errno| {
        let hint = match errno {
            Errno::LOOP => {
                "a symbolic link stands where the file should be; install it again with `stockade provision`"
            }
            _ => AGAIN,
        };
        PinError::os(PinErrorKind::Refused, Step::OpenExecutable, &path, errno).hinted(hint)
    })?;
    let stat = stat(&open, &path)?;
    check_type(&stat, FileType::RegularFile, &path)?;
    check_owner(&stat, &path)?;
    let stamp = Stamp::of(&stat);
    let mode = stat.st_mode;
    if stamp.size != file.size {
        return Err(refused(&path, format!("it has changed: {} bytes instead of {}", stamp.size, file.size)));
    }
    if stamp == file.stamp && effort == Effort::WhereChanged {
        return Ok(Checked { stamp, mode, hashed: false });
    }
    let (sha256, stamp) = hash(&open, &path)?;
    if sha256 != file.sha256 {
        return Err(refused(&path, format!("it has changed: sha256 {sha256} instead of {}", file.sha256)));
    }
    Ok(Checked { stamp, mode, hashed: true })
}

/// Takes the digest of an open file; one that changes meanwhile is refused.
pub(crate) fn hash(file: &File, path: &Path) -> Result<(Sha256Digest, Stamp), PinError> {
    let before = Stamp::of(&stat(file, path)?);
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut done = 0_u64;
    let mut reader = file;
    loop {
        let count = read_some(&mut reader, &mut buffer)
            .map_err(|error| PinError::io(PinErrorKind::Refused, Step::HashExecutable, path, error))?;
        let chunk = buffer.get(..count).unwrap_or_default();
        if chunk.is_empty() {
            break;
        }
        done = done.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
        if done > MAX_FILE_BYTES {
            return Err(refused(path, format!("it is larger than the {MAX_FILE_BYTES} bytes it may have")));
        }
        hasher.update(chunk);
    }
    let after = Stamp::of(&stat(file, path)?);
    if before != after {
        return Err(refused(path, "it changes while it is read".to_owned()));
    }
    Ok((Sha256Digest::of(hasher), after))
}

/// Refuses a folder that somebody else may write or has made.
pub(crate) fn check_folder(folder: &Folder) -> Result<(), PinError> {
    let path = folder.path();
    let stat = folder
        .stat()
        .map_err(|errno| PinError::os(PinErrorKind::Refused, Step::CheckExecutable, path, errno))?;
    check_owner(&stat, path)
}

pub(crate) fn stat(file: &File, path: &Path) -> Result<Stat, PinError> {
    rustix::fs::fstat(file)
        .map_err(|errno| PinError::os(PinErrorKind::Refused, Step::CheckExecutable, path, errno))
}

pub(crate) fn check_type(stat: &Stat, wanted: FileType, path: &Path) -> Result<(), PinError> {
    if FileType::from_raw_mode(stat.st_mode) == wanted {
        return Ok(());
    }
    Err(refused(path, "it is not a regular file".to_owned()))
}

pub(crate) fn check_owner(stat: &Stat, path: &Path) -> Result<(), PinError> {
    let caller = rustix::process::geteuid().as_raw();
    if stat.st_uid != caller && stat.st_uid != 0 {
        return Err(refused(path, format!("it belongs to user {}, neither to you nor to root", stat.st_uid)));
    }
    if stat.st_mode & WRITABLE_BY_OTHERS != 0 {
        return Err(refused(path, format!("others may write it (mode {:04o})", stat.st_mode & 0o7777)));
    }
    if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        && stat.st_mode & RUNS_AS_SOMEBODY_ELSE != 0
    {
        return Err(refused(path, format!("it is setuid or setgid (mode {:04o})", stat.st_mode & 0o7777)));
    }
    Ok(())
}

pub(crate) fn refused(path: &Path, detail: String) -> PinError {
    PinError::new(PinErrorKind::Refused, Step::CheckExecutable, detail).at(path).hinted(AGAIN)
}

/// Replaces the record by one with the stamps of today.
fn renew(folder: &Folder, record: &Record) -> Result<(), Errno> {
    let json = record.to_json().map_err(|_| Errno::INVAL)?;
    let name = format!(".{RECORD_NAME}.{}", rustix::process::getpid().as_raw_pid());
    let mut file = folder.create_file(&name)?;
    let written = file
        .write_all(&json)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
        .and_then(|()| rustix::fs::fchmod(&file, RECORD_MODE))
        .and_then(|()| rustix::fs::fsync(&file))
        .and_then(|()| folder.rename(&name, folder, RECORD_NAME));
    written.inspect_err(|_| {
        let _left_over = folder.remove(name.as_ref());
    })
}
