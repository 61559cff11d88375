//! `stockade rehearse`.

use std::{fs::OpenOptions, io::Write as _, os::unix::fs::OpenOptionsExt, path::Path};

use stockade_core::{
    mode::AccessMode,
    status::{Boundary, exit_code},
};
use stockade_rehearsal::{Check, CheckStatus, RehearsalError, RehearsalOutcome, RehearsalRequest, rehearse};

use crate::{
    cli::RehearseArgs,
    config::Config,
    error::CliError,
    limits,
    order::{self, Basics},
    render,
    render::Verbosity,
    signals,
    world::World,
};

pub(crate) fn run(args: RehearseArgs, world: &World, verbosity: Verbosity) -> Result<u8, CliError> {
    let config = Config::read(world)?;
    let basics = Basics {
        provider: args.provider,
        mode: args.mode,
        provider_sandbox: args.provider_sandbox,
        fence: args.fence,
        executable: args.executable,
    };
    let mut ordered = order::of_basics(basics, &config, world)?;
    limits::apply(&args.limits, &config, &mut ordered.settings, &mut ordered.request)?;
    let own = std::env::current_exe().map_err(|e| broken(format!("this program cannot be found: {e}")))?;
    let request = RehearsalRequest {
        lane: ordered.request,
        modes: args.mode.map(AccessMode::from).into_iter().collect(),
        scenario: args.scenario,
        stockade: own,
        scratch_parent: super::TEMPORARY.into(),
    };
    let outcome = play(&request, args.json, verbosity)?;
    if let Some(path) = &args.report {
        write_report(path, &outcome)?;
    }
    if args.json {
        render::json(&outcome.reports)?;
    } else if let Some(refusal) = &outcome.refusal {
        render::error(&CliError::from(refusal.clone()), false);
    } else if verbosity > Verbosity::Quiet
        && let Some(report) = outcome.reports.first()
    {
        let lines = report.unproven.iter().map(|what| format!("unproven {what}\n"));
        // As above: nothing depends on it.
        drop(render::out(&lines.collect::<String>()));
    }
    Ok(outcome.exit_code())
}

fn broken(message: impl Into<String>) -> CliError {
    CliError::new(exit_code::CHECK_FAILED, "rehearsal", Boundary::Host, message)
}

fn play(request: &RehearsalRequest, json: bool, verbosity: Verbosity) -> Result<RehearsalOutcome, CliError> {
    let mut show = |mode: AccessMode, check: &Check| {
        if !json && verbosity > Verbosity::Quiet {
            let word = if check.status == CheckStatus::Passed { "passed" } else { "FAILED" };
            let line = format!(
                "{word} {:<14} {:<24} {:>5} ms  {}\n",
                mode.id(),
                check.name,
                check.elapsed_ms,
                check.evidence
            );
            // The last line of defence is the exit code; a reader that went away is not told more.
            drop(render::out(&line));
        }
    };
    let runtime = signals::runtime().map_err(|e| broken(e.to_string()))?;
    runtime.block_on(async {
        let mut stops = signals::stop_requests().map_err(|e| broken(e.to_string()))?;
        rehearse(request, &mut show, &mut stops).await.map_err(|e| of_error(&e))
    })
}

fn of_error(e: &RehearsalError) -> CliError {
    if let RehearsalError::Order { refusal } = e {
        return CliError::from(refusal.clone());
    }
    let mut message = e.to_string();
    let mut source = std::error::Error::source(e);
    while let Some(s) = source {
        message = format!("{message}: {s}");
        source = s.source();
    }
    CliError::new(e.exit_code(), "rehearsal", Boundary::Host, message)
}

fn write_report(path: &Path, outcome: &RehearsalOutcome) -> Result<(), CliError> {
    let fail = |e: std::io::Error| {
        CliError::usage(
            "report-path",
            format!("`{}` cannot be written: {e}", path.display()),
            "name a file that is not there yet, in a folder that is",
        )
    };
    let mut text = serde_json::to_vec_pretty(&outcome.reports).map_err(|e| broken(e.to_string()))?;
    text.push(b'\n');
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(fail)?;
    file.write_all(&text).map_err(fail)
}
