//! `stockade receipt show`, `diff` and `verify`.

use serde_json::json;
use stockade_core::status::{Boundary, exit_code};
use stockade_journal::{
    State,
    receipts::{self, Standing, Target},
};

use stockade_lane::git::{self, DiffError};

use crate::{cli::ReceiptArgs, error::CliError, render, world::World};

/// The state directory if there is one, and what the user named: a run id, or a path to a receipt.
fn named(text: &str, world: &World) -> Result<(Option<State>, Target), CliError> {
    // A receipt can be read where no state directory is: it was brought along.
    let state = State::open(&world.state_root()?).ok();
    let here = std::path::absolute(".").map_err(|e| {
        CliError::usage(
            "cwd",
            format!("the current folder cannot be found: {e}"),
            "change to a folder that exists",
        )
    })?;
    let target = Target::parse(text.as_ref(), state.as_ref(), &here);
    Ok((state, target))
}

pub(crate) fn show(args: &ReceiptArgs, world: &World) -> Result<u8, CliError> {
    let (state, target) = named(&args.target, world)?;
    let shown = receipts::show(&target, state.as_ref())?;
    if let Some(path) = &shown.repaired {
        render::say(&format!("repaired: `{}` now holds the final receipt\n", path.display()));
    }
    if let Some(e) = &shown.not_repaired {
        render::say(&format!("the caller's file could not be repaired: {e}\n"));
    }
    if args.json {
        render::json(&shown.receipt)?;
    } else {
        let standing = match shown.standing {
            Standing::Running => Some("the run is still going on"),
            Standing::Interrupted => Some("the process that ran it is gone"),
            Standing::Final => None,
        };
        render::out(&render::receipt::summary(&shown.receipt, standing))?;
    }
    Ok(exit_code::OK)
}

/// The difference goes to standard output; with `--json` the list of changes does.
pub(crate) fn diff(args: &ReceiptArgs, world: &World) -> Result<u8, CliError> {
    let (state, target) = named(&args.target, world)?;
    let receipt = receipts::show(&target, state.as_ref())?.receipt;
    if args.json {
        render::json(&json!({ "git": receipt.git, "changes": receipt.changes }))?;
        return Ok(exit_code::OK);
    }
    match git::print_diff(&receipt, world.get("PATH").unwrap_or_default()) {
        Ok(()) => Ok(exit_code::OK),
        Err(e @ DiffError::NoRepository) => {
            render::say(&format!("{e}\n"));
            render::out(&render::receipt::changed_files(&receipt))?;
            Ok(exit_code::OK)
        }
        Err(e) => {
            Err(CliError::new(exit_code::CHECK_FAILED, "receipt-diff", Boundary::Workspace, e.to_string()))
        }
    }
}

pub(crate) fn verify(args: &ReceiptArgs, world: &World) -> Result<u8, CliError> {
    let (state, target) = named(&args.target, world)?;
    let verification = receipts::verify(&target, state.as_ref())?;
    let passed = verification.checks.iter().all(|c| c.passed);
    if args.json {
        let checks: Vec<_> = verification
            .checks
            .iter()
            .map(|c| json!({ "name": c.name, "passed": c.passed, "detail": c.detail }))
            .collect();
        render::json(&json!({ "passed": passed, "checks": checks }))?;
    } else {
        for c in &verification.checks {
            let word = if c.passed { "ok    " } else { "FAILED" };
            render::out(&format!("{word} {}: {}\n", c.name, c.detail))?;
        }
    }
    Ok(if passed { exit_code::OK } else { exit_code::VERIFICATION_FAILED })
}
