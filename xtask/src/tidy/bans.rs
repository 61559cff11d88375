//! Crates that are not used here, and why: see `deny.toml`.

use anyhow::Result;

use super::{Findings, House, licences::deny_list};

/// An error type without variants: for tasks and tests, where a person reads every error.
const UNTYPED_ERRORS: &str = "anyhow";
const MAY_USE_UNTYPED_ERRORS: [&str; 2] = ["xtask", "stockade-tests"];

pub(super) fn check(house: &House, findings: &mut Findings) -> Result<()> {
    let banned = deny_list("bans", "deny")?;
    for package in house.metadata.packages.iter().filter(|p| banned.iter().any(|b| *b == *p.name)) {
        findings.add(format!("{} {} is built, and deny.toml bans it", package.name, package.version));
    }
    for package in house.metadata.workspace_packages() {
        let uses = package.dependencies.iter().any(|d| d.name == UNTYPED_ERRORS);
        if uses && !MAY_USE_UNTYPED_ERRORS.contains(&package.name.as_str()) {
            findings.add(format!("{}: uses {UNTYPED_ERRORS}; errors of a library are typed", package.name));
        }
    }
    Ok(())
}
