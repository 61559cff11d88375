//! `receipt show`: the receipt of a run, by the caller's path or by the run's id, healed from the run directory where
//! the launcher died between the two.

use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use stockade_core::receipt::Receipt;

use super::{Found, is_reservation, is_running, read};
use crate::{
    error::{ErrorKind, JournalError},
    files,
    reservation::{Reservation, temporary_name},
    run_dir::file,
    state::{State, canonical, is_run_id},
};

/// What the user named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A run id.
    Run(String),
    /// The path of a receipt or of a run directory.
    Path(PathBuf),
}

impl Target {
    /// A word that is the id of a run in this state directory means that run; anything else is a path, relative ones
    /// below `cwd`.
    pub fn parse(word: &std::ffi::OsStr, state: Option<&State>, cwd: &Path) -> Self {
        match (word.to_str(), state) {
            (Some(id), Some(state)) if is_run_id(id) && state.run_path(id).is_dir() => {
                Self::Run(id.to_owned())
            }
            _ => Self::Path(cwd.join(word)),
        }
    }
}

/// How a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It ended; the receipt is the last word.
    Final,
    /// Its launcher still lives.
    Running,
    /// Its launcher is gone and wrote no ending.
    Interrupted,
}

/// A receipt to be shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Shown {
    /// The receipt.
    pub receipt: Receipt,
    /// Its bytes as they stand in the file.
    pub bytes: Vec<u8>,
    /// The file they were read from.
    pub path: PathBuf,
    /// How the run stands.
    pub standing: Standing,
    /// The caller's file, where it was still the reservation and now holds this receipt.
    pub repaired: Option<PathBuf>,
    /// Why the caller's file could not be repaired, where it should have been.
    pub not_repaired: Option<JournalError>,
}

/// Finds a receipt. A final one in the run directory wins over a reservation at the caller's path, which is then
/// repaired if it is still the reservation of that run.
pub fn show(target: &Target, state: Option<&State>) -> Result<Shown, JournalError> {
    let named = read(&file_of(target, state)?)?;
    let directories = run_directories(&named.receipt, state);
    if !is_reservation(&named.receipt) {
        // A copy somewhere else is shown, but nothing is repaired from it.
        let is_own = directories.iter().any(|d| d.join(file::RECEIPT) == named.path);
        let repair = if is_own { callers_reservation(&named) } else { None };
        return Ok(shown(named, Standing::Final, repair));
    }
    if let Some(own) = final_of_run(&named.receipt, &directories) {
        let repair = if named.path == own.path { callers_reservation(&own) } else { Some(named.path) };
        return Ok(shown(own, Standing::Final, repair));
    }
    let alive = directories.iter().any(|d| is_running(d, &named.receipt.launcher));
    let standing = if alive { Standing::Running } else { Standing::Interrupted };
    Ok(shown(named, standing, None))
}

pub(super) fn file_of(target: &Target, state: Option<&State>) -> Result<PathBuf, JournalError> {
    match (target, state) {
        (Target::Run(id), Some(state)) if is_run_id(id) => Ok(state.run_path(id).join(file::RECEIPT)),
        (Target::Run(id), _) => {
            Err(JournalError::new(ErrorKind::NotFound, "find", Path::new(id), "there is no such run"))
        }
        (Target::Path(path), _) => {
            let path = canonical("find", path)?;
            Ok(if path.is_dir() { path.join(file::RECEIPT) } else { path })
        }
    }
}

/// Where the run's directory can be: where this state directory has it, and where the receipt says. Others' folders
/// are not believed.
pub(super) fn run_directories(receipt: &Receipt, state: Option<&State>) -> Vec<PathBuf> {
    let here = state.filter(|_| is_run_id(&receipt.execution_id)).map(|s| s.run_path(&receipt.execution_id));
    let stated = Some(PathBuf::from(&receipt.run_directory)).filter(|p| p.is_absolute());
    let mut paths: Vec<PathBuf> = here.into_iter().chain(stated).collect();
    paths.dedup();
    paths.retain(|p| {
        files::open_folder(rustix::fs::CWD, p)
            .and_then(rustix::fs::fstat)
            .is_ok_and(|s| s.st_uid == geteuid().as_raw() || s.st_uid == 0)
    });
    paths
}

fn final_of_run(receipt: &Receipt, directories: &[PathBuf]) -> Option<Found> {
    directories
        .iter()
        .filter_map(|d| read(&d.join(file::RECEIPT)).ok())
        .find(|f| f.receipt.execution_id == receipt.execution_id && !is_reservation(&f.receipt))
}

/// The caller's file of a run whose final receipt is known, if that file is still its reservation.
fn callers_reservation(own: &Found) -> Option<PathBuf> {
    let path = PathBuf::from(own.receipt.receipt_path.as_ref()?);
    let there = read(&path).ok()?;
    (path != own.path
        && is_reservation(&there.receipt)
        && there.receipt.execution_id == own.receipt.execution_id)
        .then_some(path)
}

fn shown(found: Found, standing: Standing, repair: Option<PathBuf>) -> Shown {
    let (repaired, not_repaired) = match repair.map(|path| (repaired(&path, &found.bytes), path)) {
        None => (None, None),
        Some((Ok(()), path)) => (Some(path), None),
        Some((Err(e), _)) => (None, Some(e)),
    };
    Shown { receipt: found.receipt, bytes: found.bytes, path: found.path, standing, repaired, not_repaired }
}

fn repaired(path: &Path, bytes: &[u8]) -> Result<(), JournalError> {
    Reservation::adopt(path)?.commit(bytes)
}

/// The torn temporary file that a launcher left beside a reservation when it died while writing; `None` if there is
/// none.
pub(crate) fn torn_temporary(reservation: &Path) -> Option<PathBuf> {
    let stat = rustix::fs::lstat(reservation).ok()?;
    let torn = reservation.with_file_name(temporary_name(files::FileId::of(&stat)));
    rustix::fs::lstat(&torn).is_ok().then_some(torn)
}
