//! `receipt verify`: whether a receipt and the files it speaks of still say the same.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use rustix::fs::CWD;
use stockade_core::receipt::{Receipt, SCHEMA_VERSION};

use super::{
    Found, Target,
    find::{file_of, run_directories},
    is_reservation, read, read_bytes, schema_version,
};
use crate::{
    error::JournalError,
    files,
    run_dir::{digests_of, file},
    state::State,
};

/// One thing that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What: `schema-version`, `schema`, `finished`, `run-directory`, `same-receipt`, `digest NAME`.
    pub name: String,
    /// Whether it holds.
    pub passed: bool,
    /// What was seen.
    pub detail: String,
}

impl Check {
    fn new(name: impl Into<String>, passed: bool, detail: impl Into<String>) -> Self {
        Self { name: name.into(), passed, detail: detail.into() }
    }
}

/// Everything that was checked about a receipt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verification {
    /// The receipt's file.
    pub path: PathBuf,
    /// The checks, in order. A check that a failed one rules out is left out.
    pub checks: Vec<Check>,
}

impl Verification {
    /// Whether every check holds.
    pub fn passed(&self) -> bool {
        self.checks.iter().all(|c| c.passed)
    }
}

/// Checks a receipt. An error means that there is nothing to check: no such file or run.
pub fn verify(target: &Target, state: Option<&State>) -> Result<Verification, JournalError> {
    let path = file_of(target, state)?;
    let bytes = read_bytes(&path)?;
    let mut checks = Vec::new();
    let version = schema_version(&bytes);
    checks.push(match version {
        Some(v) => {
            Check::new("schema-version", v == SCHEMA_VERSION, format!("{v}; known is {SCHEMA_VERSION}"))
        }
        None => Check::new("schema-version", false, "no JSON object with a `schemaVersion`"),
    });
    if version == Some(SCHEMA_VERSION) {
        match serde_json::from_slice::<Receipt>(&bytes) {
            Ok(receipt) => {
                checks.push(Check::new("schema", true, "every field is as the schema says"));
                content(&Found { path: path.clone(), bytes, receipt }, state, &mut checks);
            }
            Err(e) => checks.push(Check::new("schema", false, e.to_string())),
        }
    }
    Ok(Verification { path, checks })
}

fn content(found: &Found, state: Option<&State>, checks: &mut Vec<Check>) {
    let finished = !is_reservation(&found.receipt);
    let status = found.receipt.status.id();
    let detail = if finished { status.to_owned() } else { format!("{status}: no ending was written here") };
    checks.push(Check::new("finished", finished, detail));

    let Some(directory) = directory_of(found, state) else {
        checks.push(Check::new(
            "run-directory",
            false,
            format!("`{}` is not there", found.receipt.run_directory),
        ));
        return;
    };
    checks.push(Check::new("run-directory", true, directory.display().to_string()));
    same_receipt(found, &directory, checks);
    digests(&found.receipt, &directory, checks);
}

fn directory_of(found: &Found, state: Option<&State>) -> Option<PathBuf> {
    let own = found.path.parent().filter(|p| p.join(file::LAUNCHER).exists()).map(Path::to_owned);
    own.or_else(|| {
        run_directories(&found.receipt, state).into_iter().find(|d| d.join(file::RECEIPT).exists())
    })
}

/// Compares the two copies, whichever was named.
fn same_receipt(found: &Found, directory: &Path, checks: &mut Vec<Check>) {
    let own = directory.join(file::RECEIPT);
    let is_own = std::fs::canonicalize(&found.path).ok() == std::fs::canonicalize(&own).ok();
    let other = match (is_own, &found.receipt.receipt_path) {
        (false, _) => own,
        (true, Some(callers)) => PathBuf::from(callers),
        (true, None) => return,
    };
    let check = match read(&other) {
        Ok(o) if o.bytes == found.bytes => Check::new("same-receipt", true, other.display().to_string()),
        Ok(_) => Check::new("same-receipt", false, format!("`{}` says something else", other.display())),
        Err(e) => Check::new("same-receipt", false, e.to_string()),
    };
    checks.push(check);
}

fn digests(receipt: &Receipt, directory: &Path, checks: &mut Vec<Check>) {
    let measured = files::open_folder(CWD, directory)
        .map_err(|e| JournalError::storage("open", directory, e))
        .and_then(|folder| digests_of(folder, directory));
    let measured = match measured {
        Ok(m) => m,
        Err(e) => return checks.push(Check::new("digests", false, e.to_string())),
    };
    let stated = |name: &str| receipt.digests.get(name);
    let names: BTreeSet<&str> = file::DIGESTED
        .iter()
        .copied()
        .filter(|n| stated(n).is_some() || (measured.contains_key(*n) && !is_reservation(receipt)))
        .collect();
    for name in names {
        let (passed, detail) = match (stated(name), measured.get(name)) {
            (Some(s), Some(m)) if s == m => (true, m.clone()),
            (Some(s), Some(m)) => (false, format!("the receipt says {s}, the file has {m}")),
            (Some(_), None) => (false, "the file is gone".to_owned()),
            (None, _) => (false, "the receipt does not name this file".to_owned()),
        };
        checks.push(Check::new(format!("digest {name}"), passed, detail));
    }
}
