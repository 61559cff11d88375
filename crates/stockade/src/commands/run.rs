//! `stockade run`.

use std::{
    fs::OpenOptions,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use stockade_core::{
    receipt::Receipt,
    status::{Boundary, exit_code},
};
use stockade_lane::{LaneOutcome, LaneRequest};

use crate::{
    cli::RunArgs,
    error::CliError,
    order, render,
    render::{
        Verbosity,
        progress::{EventSink, Live},
    },
    signals,
    world::World,
};

pub(crate) fn run(args: RunArgs, world: &World, verbosity: Verbosity) -> Result<u8, CliError> {
    let to_stdout = args.events.as_deref() == Some(Path::new("-"));
    if args.json && args.output.is_none() {
        return Err(CliError::usage(
            "json-needs-output",
            "`--json` prints the receipt on standard output, so that the answer needs a place of its own",
            "add `--output FILE`",
        ));
    }
    if args.json && to_stdout {
        return Err(CliError::usage(
            "json-and-events",
            "`--json` and `--events -` both want standard output",
            "write the events to a file",
        ));
    }
    let mut ordered = order::of_args(args.order, world)?;
    ordered.request.output = args.output;
    ordered.request.receipt = args.receipt;
    arm_fault(world);
    let mut live = Live::new(verbosity, sink(args.events.as_ref(), to_stdout)?);
    let outcome = carry_out(&ordered.request, &mut live)?;
    drop(live);
    deliver(&ordered.request, &outcome, args.json, to_stdout, verbosity)?;
    Ok(outcome.receipt.status.exit_code())
}

fn carry_out(request: &LaneRequest, live: &mut Live) -> Result<LaneOutcome, CliError> {
    let broken = |e: std::io::Error| {
        CliError::new(
            exit_code::CHECK_FAILED,
            "runtime",
            Boundary::Host,
            format!("the runtime cannot be started: {e}"),
        )
    };
    let runtime = signals::runtime().map_err(broken)?;
    runtime.block_on(async {
        let mut stops = signals::stop_requests().map_err(broken)?;
        Ok(stockade_lane::run(request, live, &mut stops).await?)
    })
}

fn sink(events: Option<&PathBuf>, to_stdout: bool) -> Result<EventSink, CliError> {
    let Some(path) = events else { return Ok(EventSink::None) };
    if to_stdout {
        return Ok(EventSink::Stdout(std::io::stdout()));
    }
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map(EventSink::File).map_err(|e| {
        CliError::usage(
            "events-path",
            format!("`{}` cannot be made for events: {e}", path.display()),
            "name a file that is not there yet, in a folder that is",
        )
        .about(path)
    })
}

fn deliver(
    request: &LaneRequest,
    outcome: &LaneOutcome,
    json: bool,
    events_on_stdout: bool,
    verbosity: Verbosity,
) -> Result<(), CliError> {
    let receipt = &outcome.receipt;
    if json {
        render::json(receipt)?;
    } else if request.output.is_none()
        && !events_on_stdout
        && let Some(answer) = &outcome.answer
    {
        let end = if answer.ends_with('\n') { "" } else { "\n" };
        render::out(&format!("{answer}{end}"))?;
    }
    match &receipt.cause {
        // A program that reads the receipt reads errors in the one form that errors have.
        Some(cause) if json => {
            let mut error = CliError::of_cause(receipt.status.exit_code(), cause);
            error.shown.path.clone_from(&outcome.path);
            render::error(&error, true);
        }
        Some(_) => render::say(&ending(receipt)),
        None if verbosity > Verbosity::Quiet => render::say(&ending(receipt)),
        None => {}
    }
    Ok(())
}

/// The ending in a few lines.
fn ending(r: &Receipt) -> String {
    let partial = if r.partial { ", the answer is only a part" } else { "" };
    let mut text = format!("{}: exit {}{partial}\n", r.status.id(), r.status.exit_code());
    if let Some(c) = &r.cause {
        text.push_str(&format!("  cause: {}\n", c.message));
        for line in &c.evidence {
            text.push_str(&format!("  because: {line}\n"));
        }
        if let Some(remedy) = &c.remedy {
            text.push_str(&format!("hint: {remedy}\n"));
        }
    }
    let at = r.receipt_path.clone().unwrap_or_else(|| format!("{}/receipt.json", r.run_directory));
    text.push_str(&format!("receipt: {at}\n"));
    text
}

#[cfg(feature = "fault-points")]
fn arm_fault(world: &World) {
    if let Some(point) = world.get("STOCKADE_FAULT_POINT") {
        stockade_lane::fault::arm(point);
    }
}

#[cfg(not(feature = "fault-points"))]
const fn arm_fault(_world: &World) {}
