//! The feature `fault-points` is in no release: no default has it and no manifest or configuration turns it on.

use anyhow::Result;

use super::{Findings, House};
use crate::repository;

const FEATURE: &str = "fault-points";
const OWNER: &str = "stockade";

pub(super) fn check(house: &House, findings: &mut Findings) -> Result<()> {
    let mut owner_has_it = false;
    for package in house.metadata.workspace_packages() {
        owner_has_it |= package.name.as_str() == OWNER && package.features.contains_key(FEATURE);
        for (feature, enables) in &package.features {
            let spreads = enables.iter().any(|e| e == FEATURE || e.ends_with(&format!("/{FEATURE}")));
            if spreads && feature != FEATURE {
                findings.add(format!("{}: feature `{feature}` turns on `{FEATURE}`", package.name));
            }
        }
        for dependency in &package.dependencies {
            if dependency.features.iter().any(|f| f == FEATURE) {
                findings.add(format!("{}: turns on `{FEATURE}` of {}", package.name, dependency.name));
            }
        }
    }
    if !owner_has_it {
        findings.add(format!("{OWNER}: has no feature `{FEATURE}`, so the tests prove nothing about kills"));
    }
    for file in house.files.iter().filter(|f| f.starts_with(".cargo/") || f.starts_with(".ci/")) {
        if repository::read(file)?.contains(FEATURE) {
            findings.add(format!("{file}: names `{FEATURE}`; only `cargo xtask test` builds with it"));
        }
    }
    Ok(())
}
