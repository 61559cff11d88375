//! A profile's version counts up whenever its bytes change.

use std::{collections::BTreeMap, fmt::Write as _};

use anyhow::{Context, Result};
use sha2::{Digest as _, Sha256};
use toml::{Table, Value};

use super::Findings;
use crate::repository;

const FOLDER: &str = "crates/stockade-providers/profiles";

pub(super) fn check(findings: &mut Findings) -> Result<()> {
    let digests: Table = repository::read(&format!("{FOLDER}/digests.toml"))?.parse()?;
    let history = history(&digests)?;
    let folder = repository::root().join(FOLDER);
    for entry in std::fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_stem().and_then(|n| n.to_str()).unwrap_or_default().to_owned();
        if path.extension().is_none_or(|e| e != "toml") || name == "digests" {
            continue;
        }
        let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        for problem in problems(&name, &text, history.get(&name).map_or(&[], Vec::as_slice)) {
            findings.add(format!("{FOLDER}/{name}.toml: {problem}"));
        }
    }
    Ok(())
}

/// Versions and digests by profile, oldest first.
fn history(digests: &Table) -> Result<BTreeMap<String, Vec<(i64, String)>>> {
    let mut history = BTreeMap::<_, Vec<_>>::new();
    let entries = digests.get("profile").and_then(Value::as_array).context("digests.toml: no [[profile]]")?;
    for entry in entries {
        let text = |key: &str| entry.get(key).and_then(Value::as_str).map(str::to_owned);
        let version = entry.get("version").and_then(Value::as_integer);
        let (Some(name), Some(version), Some(digest)) = (text("name"), version, text("sha256")) else {
            anyhow::bail!("digests.toml: an entry without name, version and sha256");
        };
        history.entry(name).or_default().push((version, digest));
    }
    Ok(history)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        // Writing to a String cannot fail.
        let _ = write!(out, "{byte:02x}");
        out
    })
}

fn problems(name: &str, text: &str, history: &[(i64, String)]) -> Vec<String> {
    let digest = hex(&Sha256::digest(text.as_bytes()));
    let version = text.parse::<Table>().ok().and_then(|t| t.get("version").and_then(Value::as_integer));
    let mut found = Vec::new();
    if !history.is_sorted_by(|a, b| a.0 < b.0) {
        found.push(format!("the versions of `{name}` in digests.toml do not count up"));
    }
    match history.last() {
        None => found.push("has no entry in digests.toml".to_owned()),
        Some((_, known)) if *known != digest => {
            found.push(format!("changed; count `version` up and record {digest} in digests.toml"));
        }
        Some((last, _)) if Some(*last) != version => {
            found.push(format!("has version {version:?}, and its last entry in digests.toml is {last}"));
        }
        Some(_) => {}
    }
    found
}

#[cfg(test)]
mod tests {
    use super::problems;

    #[test]
    fn a_change_without_a_new_version_is_found() {
        let text = "version = 2\n";
        let digest = "4fb2d8c2ae0dd6dbb25a5ee2a6a1e64ab3b1cc2eca8ff08ca4cd9c7d4a2d0a5b";
        let changed = problems("p", text, &[(1, "old".to_owned()), (2, digest.to_owned())]);
        assert_eq!(changed.len(), 1, "{changed:?}");
        let real = changed[0].split("record ").nth(1).and_then(|r| r.split(' ').next()).unwrap().to_owned();
        assert_eq!(problems("p", text, &[(1, "old".to_owned()), (2, real.clone())]), [""; 0]);
        assert_eq!(problems("p", text, &[(3, real.clone())]).len(), 1, "a version that differs");
        assert_eq!(problems("p", text, &[(2, "x".to_owned()), (2, real)]).len(), 1, "a version twice");
        assert_eq!(problems("p", text, &[]).len(), 1, "no entry");
    }
}
