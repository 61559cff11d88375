//! `stockade version`.

use serde_json::json;

use crate::{cli::JsonArgs, error::CliError, render};

/// The commit this binary was built from; `None`: unstamped.
pub(crate) const COMMIT: Option<&str> = option_env!("STOCKADE_COMMIT");

pub(crate) fn run(args: &JsonArgs) -> Result<u8, CliError> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    if args.json {
        render::json(&json!({ "version": env!("CARGO_PKG_VERSION"), "commit": COMMIT, "target": target }))?;
    } else {
        render::out(&format!(
            "stockade {} ({}, {target})\n",
            env!("CARGO_PKG_VERSION"),
            COMMIT.unwrap_or("unstamped")
        ))?;
    }
    Ok(0)
}
