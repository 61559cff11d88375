//! `cargo xtask test`: everything, within one budget.

mod part;
mod reach;
mod tally;

use std::{path::Path, process::Command, time::Duration};

use anyhow::{Result, bail, ensure};

use crate::{binary, fuzz, prerequisites, repository, shell, tidy};
use part::Parts;

/// The whole must be done within this time on a machine with two cores and nothing built.
pub(crate) const DEFAULT_BUDGET_MINUTES: u64 = 50;

/// The agents that the end-to-end tests and benchmarks run for real.
pub(crate) const PROVIDERS: [&str; 4] =
    ["claude@2.1.332", "codex@0.171.0", "grok@1.0.41", "opencode@1.18.33"];

pub(crate) fn run(budget_minutes: u64) -> Result<()> {
    if let Some(elsewhere) = reach::other_target()? {
        println!(
            "building in {}: other users, as whom tests run, cannot reach this folder",
            elsewhere.display()
        );
        let mut again = shell::command(std::env::current_exe()?);
        again.args(["test", "--budget", &budget_minutes.to_string()]).env("CARGO_TARGET_DIR", &elsewhere);
        return shell::run(&mut again);
    }
    let mut parts = Parts::within(Duration::from_secs(budget_minutes * 60));
    parts.call("prerequisites", prerequisites::install)?;
    parts.call("tidy", || tidy::run(tidy::Generated::Compare))?;
    let binary = parts.call("build", || {
        let release = binary::build()?;
        let tests = binary::build_for_tests()?;
        // The build without the feature came first, so it is looked at where it would be installed from.
        shell::run(repository::cargo("build").args(["--locked", "--profile", "ci", "-p", "stockade"]))?;
        binary::check_fault_points(&release, &tests)?;
        Ok(tests)
    })?;
    let mut clippy = repository::cargo("clippy");
    clippy.args(["--locked", "--profile", "ci", "--workspace", "--all-targets", "--", "-D", "warnings"]);
    parts.start("clippy", &mut clippy)?;
    let state = repository::target().join("test-state");
    for provider in PROVIDERS {
        let mut provision = shell::command(&binary);
        parts.start("provision", provision.args(["provision", provider]).env("XDG_STATE_HOME", &state))?;
    }
    let state = state.join("stockade");
    parts.tests("unit tests", tests(&["--workspace", "--exclude", "stockade-tests"], &binary, &state))?;
    parts.tests("end-to-end tests", tests(&["-p", "stockade-tests"], &binary, &state))?;
    parts.start("fuzz", &mut fuzz::replay())?;
    let mut bench = shell::command(std::env::current_exe()?);
    parts.start("bench gate", bench.args(["bench", "--gate"]))?;
    let failed = parts.summary();
    ensure!(!failed, "something failed");
    Ok(())
}

/// A run of cargo's tests that goes on after a failure and never accepts a snapshot.
fn tests(what: &[&str], binary: &Path, state: &Path) -> Command {
    let mut cargo = repository::cargo("test");
    cargo.args(["--locked", "--profile", "ci", "--no-fail-fast"]).args(what);
    cargo.env("STOCKADE_BIN", binary).env("STOCKADE_TEST_STATE", state).env("INSTA_UPDATE", "no");
    cargo
}

/// Ends everything once the budget is used up.
fn over_budget(name: &str, budget: Duration) -> Result<()> {
    bail!("{name}: over the budget of {} minutes for the whole", budget.as_secs() / 60)
}
