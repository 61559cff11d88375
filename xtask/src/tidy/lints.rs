//! Every crate takes the lints of the workspace, or names its own.

use anyhow::{Context, Result};
use toml::Table;

use super::{Findings, House};

/// Names its own lints: they are the workspace's, save that `unsafe` is not denied.
const OWN_LINTS: &str = "stockade-fence";

pub(super) fn check(house: &House, findings: &mut Findings) -> Result<()> {
    for package in house.metadata.workspace_packages() {
        let path = package.manifest_path.as_std_path();
        let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        let manifest: Table = text.parse().with_context(|| format!("reading {}", path.display()))?;
        let lints = manifest.get("lints").and_then(|l| l.as_table());
        let shared = lints.and_then(|l| l.get("workspace")).and_then(toml::Value::as_bool) == Some(true);
        let own = package.name.as_str() == OWN_LINTS && lints.is_some_and(|l| l.contains_key("clippy"));
        if !shared && !own {
            findings.add(format!("{}: takes no lints; add `[lints] workspace = true`", package.name));
        }
    }
    Ok(())
}
