//! Looking for leftovers.

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use rustix::{
    fs::{CWD, FlockOperation, flock},
    io::Errno,
};

use super::{GcPolicy, Leftover, LeftoverKind, directory_lives, groups};
use crate::{
    error::{ErrorKind, JournalError},
    files, receipts,
    remove::remove_tree,
    run_dir::file,
    state::{HOMES, LOCKS, PROVIDERS, RUNS, State},
    walk::{Bounds, Snapshot},
};

/// Names as the provisioning of providers uses them.
const STAGING: &str = ".staging";
const STAGING_DOOR: &str = ".lock";
const STAGING_ALIVE: &str = "alive";

/// A run directory without a launcher and a home without a run directory may belong to a run that is just being made;
/// after this time they do not.
const ORPHAN_AGE: Duration = Duration::from_secs(3600);

/// Entries of one folder of the state directory that are looked at.
const MAX_ENTRIES: usize = 100_000;

/// Finds what old runs left. `now` decides about ages; nothing is changed.
pub fn plan_gc(state: &State, now: SystemTime, policy: &GcPolicy) -> Result<Vec<Leftover>, JournalError> {
    let mut found = Vec::new();
    let run_ids = names(state, RUNS)?;
    for id in &run_ids {
        run(state, id, now, policy, &mut found);
    }
    let known: BTreeSet<&OsString> = run_ids.iter().collect();
    for id in names(state, HOMES)? {
        found.extend(home(state, &id, known.contains(&id), now));
    }
    staging(state, &mut found)?;
    for name in names(state, LOCKS)? {
        let path = state.root().join(LOCKS).join(&name);
        if lock_is_free(&path) {
            let why = "no process holds it";
            found.push(leftover(LeftoverKind::Lock, path, None, why, true));
        }
    }
    found.sort_by(|a, b| (a.kind, &a.path).cmp(&(b.kind, &b.path)));
    Ok(found)
}

pub(super) fn run_lives(state: &State, id: &str) -> bool {
    directory_lives(&state.root().join(RUNS).join(id))
}

fn run(state: &State, id: &OsStr, now: SystemTime, policy: &GcPolicy, found: &mut Vec<Leftover>) {
    let directory = state.root().join(RUNS).join(id);
    let unmade = rustix::fs::lstat(directory.join(file::LAUNCHER)).is_err()
        && age(&directory, now).is_none_or(|age| age < ORPHAN_AGE);
    if unmade || directory_lives(&directory) {
        return;
    }
    let id = id.to_string_lossy().into_owned();
    let receipt = receipts::read(&directory.join(file::RECEIPT)).ok().map(|f| f.receipt);
    let callers = receipt.as_ref().and_then(|r| r.receipt_path.as_deref()).map(PathBuf::from);
    let beside = callers.as_deref().filter(|p| is_reservation_of(p, &id)).and_then(receipts::torn_temporary);
    let own = Some(directory.join(file::RECEIPT_TEMPORARY)).filter(|p| rustix::fs::lstat(p).is_ok());
    for torn in own.into_iter().chain(beside) {
        let why = "its launcher died while writing it";
        found.push(leftover(LeftoverKind::TornReceipt, torn, Some(id.clone()), why, true));
    }
    let output =
        receipt.as_ref().filter(|r| receipts::is_reservation(r)).and_then(|r| r.output_path.as_deref());
    if let Some(output) = output.map(PathBuf::from).filter(|p| is_output_of(&directory, p)) {
        let why = "its launcher died before there was an answer";
        found.push(leftover(LeftoverKind::EmptyOutput, output, Some(id.clone()), why, true));
    }
    for (group, empty) in groups::left(&directory) {
        let why = if empty { "the run is over" } else { "the run is over, and something is still in it" };
        found.push(leftover(LeftoverKind::ControlGroup, group, Some(id.clone()), why, empty));
    }
    let ended = receipt.as_ref().is_some_and(|r| !receipts::is_reservation(r));
    let (kind, keep, what) = if ended {
        (LeftoverKind::OldRun, policy.keep_ended, "the run ended")
    } else {
        (LeftoverKind::InterruptedRun, policy.keep_interrupted, "its launcher died without an ending")
    };
    let old = age(&directory, now).is_some_and(|age| age >= keep);
    // Ended runs are no leftovers before their time.
    if old || !ended {
        let why = if old { what.to_owned() } else { format!("{what}; kept for {}", days(keep)) };
        found.push(leftover(kind, directory, Some(id), &why, old));
    }
}

fn home(state: &State, id: &OsStr, has_run: bool, now: SystemTime) -> Option<Leftover> {
    let path = state.root().join(HOMES).join(id);
    if has_run && directory_lives(&state.root().join(RUNS).join(id)) {
        return None;
    }
    let old = age(&path, now).is_some_and(|age| age >= ORPHAN_AGE);
    let why = match (has_run, old) {
        (true, _) => "the run is over",
        (false, true) => "there is no such run",
        (false, false) => "there is no such run; kept for an hour",
    };
    Some(leftover(LeftoverKind::Home, path, Some(id.to_string_lossy().into_owned()), why, has_run || old))
}

fn staging(state: &State, found: &mut Vec<Leftover>) -> Result<(), JournalError> {
    let Some(folder) = open_staging(state)? else { return Ok(()) };
    // While one is being made its lock is not there yet.
    let Some(_door) = door(&folder) else { return Ok(()) };
    let path = state.root().join(PROVIDERS).join(STAGING);
    for name in list(&folder, &path)? {
        let path = path.join(&name);
        if name != STAGING_DOOR && lock_is_free(&path.join(STAGING_ALIVE)) {
            let why = "no process installs it";
            found.push(leftover(LeftoverKind::Staging, path, None, why, true));
        }
    }
    Ok(())
}

pub(super) fn remove_staging(state: &State, path: &Path) -> Result<(), JournalError> {
    let in_use = || JournalError::new(ErrorKind::InUse, "remove", path, "something is being installed");
    let Some(folder) = open_staging(state)? else { return Ok(()) };
    let _door = door(&folder).ok_or_else(in_use)?;
    if !lock_is_free(&path.join(STAGING_ALIVE)) {
        return Err(in_use());
    }
    remove_tree(path)
}

/// Removes the reserved output of a dead run if it still is that.
pub(super) fn remove_output(state: &State, leftover: &Leftover) -> Result<(), JournalError> {
    let run = leftover.run.as_deref().unwrap_or_default();
    if is_output_of(&state.root().join(RUNS).join(run), &leftover.path) {
        return remove_tree(&leftover.path);
    }
    let reason = "something was written to it, or it was made anew";
    Err(JournalError::new(ErrorKind::InUse, "remove", &leftover.path, reason))
}

/// A final receipt that lies only in the run directory is the last word on a run: the caller's file gets it before the
/// directory goes.
pub(super) fn repair_callers_receipt(state: &State, leftover: &Leftover) -> Result<(), JournalError> {
    let Some(run) = leftover.run.clone() else { return Ok(()) };
    match receipts::show(&receipts::Target::Run(run), Some(state)).map(|s| s.not_repaired) {
        Ok(Some(e)) => Err(e),
        // A receipt that cannot be read cannot be kept.
        Ok(None) | Err(_) => Ok(()),
    }
}

/// Whether a file is as the run of this directory reserved it: empty, private, the caller's own, and no newer than the
/// run's receipt, which is written after it. A newer one was reserved at the same path by a later run.
fn is_output_of(directory: &Path, path: &Path) -> bool {
    let changed = |p: &Path| std::fs::symlink_metadata(p).and_then(|m| m.modified()).ok();
    let (output, receipt) = (changed(path), changed(&directory.join(file::RECEIPT)));
    rustix::fs::lstat(path).is_ok_and(|s| {
        s.st_mode == rustix::fs::FileType::RegularFile.as_raw_mode() | 0o600
            && s.st_size == 0
            && s.st_uid == rustix::process::geteuid().as_raw()
    }) && output.zip(receipt).is_some_and(|(output, receipt)| output <= receipt)
}

/// Removes a lock while holding it, so that nobody takes it in between.
pub(super) fn remove_lock(path: &Path) -> Result<(), JournalError> {
    let held = match files::open_regular(CWD, path) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(()),
        Err(e) => return Err(JournalError::storage("open", path, e)),
    };
    flock(&held, FlockOperation::NonBlockingLockExclusive)
        .map_err(|e| JournalError::refused_as(ErrorKind::InUse, "lock", path, e))?;
    remove_tree(path)
}

fn open_staging(state: &State) -> Result<Option<OwnedFd>, JournalError> {
    let Some(providers) = state.folder(PROVIDERS)? else { return Ok(None) };
    match files::open_folder(providers, STAGING) {
        Ok(folder) => Ok(Some(folder)),
        Err(Errno::NOENT) => Ok(None),
        Err(e) => Err(JournalError::storage("open", &state.root().join(PROVIDERS).join(STAGING), e)),
    }
}

/// Holds the door of the staging folder shut; `None` while somebody makes or clears something.
fn door(staging: impl AsFd) -> Option<OwnedFd> {
    let file = files::open_regular(staging, STAGING_DOOR).ok()?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok().then_some(file)
}

/// Whether nobody holds a lock file; true as well where there is none.
fn lock_is_free(path: &Path) -> bool {
    match files::open_regular(CWD, path) {
        Ok(file) => flock(&file, FlockOperation::NonBlockingLockShared).is_ok(),
        Err(e) => e == Errno::NOENT,
    }
}

fn is_reservation_of(path: &Path, run: &str) -> bool {
    receipts::read(path).is_ok_and(|f| receipts::is_reservation(&f.receipt) && f.receipt.execution_id == run)
}

pub(super) fn leftover(
    kind: LeftoverKind,
    path: PathBuf,
    run: Option<String>,
    why: &str,
    safe: bool,
) -> Leftover {
    let bytes = bytes_of(&path);
    Leftover { kind, path, run, bytes, why: why.to_owned(), safe }
}

pub(super) fn bytes_of(path: &Path) -> u64 {
    match rustix::fs::lstat(path) {
        Ok(s) if rustix::fs::FileType::from_raw_mode(s.st_mode) == rustix::fs::FileType::Directory => {
            Snapshot::take(path, &Bounds::default()).map_or(0, |s| s.file_bytes())
        }
        Ok(s) => u64::try_from(s.st_size).unwrap_or(0),
        Err(_) => 0,
    }
}

/// Time since the last change in a folder itself.
fn age(path: &Path, now: SystemTime) -> Option<Duration> {
    let changed = std::fs::symlink_metadata(path).ok()?.modified().ok()?;
    now.duration_since(changed).ok()
}

fn days(duration: Duration) -> String {
    let hours = duration.as_secs() / 3600;
    if hours < 48 { format!("{hours} hours") } else { format!("{} days", hours / 24) }
}

pub(super) fn names(state: &State, folder: &'static str) -> Result<Vec<OsString>, JournalError> {
    let path = state.root().join(folder);
    match state.folder(folder)? {
        Some(opened) => list(&opened, &path),
        None => Ok(Vec::new()),
    }
}

fn list(folder: &OwnedFd, path: &Path) -> Result<Vec<OsString>, JournalError> {
    use std::os::unix::ffi::OsStrExt as _;
    let fail = |e| JournalError::storage("list", path, e);
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(folder).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let name = entry.file_name();
        if name != c"." && name != c".." && names.len() < MAX_ENTRIES {
            names.push(OsStr::from_bytes(name.to_bytes()).to_owned());
        }
    }
    names.sort();
    Ok(names)
}
