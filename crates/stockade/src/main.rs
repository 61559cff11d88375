//! The `stockade` command: arguments in, library calls, rendering out.

mod cli;
mod commands;
mod compat;
mod config;
mod error;
mod limits;
mod order;
mod render;
mod signals;
mod world;

use std::process::ExitCode;

use clap::Parser as _;
use stockade_core::status::exit_code;

use crate::{
    cli::{Cli, Command, FenceCommand, ReceiptCommand},
    error::CliError,
    world::World,
};

fn main() -> ExitCode {
    // The fence starts this binary again as its helper, and inside as its prober. Both have to come before anything
    // else: they run without a runtime, without threads and without this process's arguments.
    stockade_fence::helper::enter_if_asked();
    if let Some(code) = stockade_fence::probes::enter_if_asked() {
        return code;
    }
    if let Some(arguments) = compat::pstack::asked(std::env::args_os()) {
        return ExitCode::from(compat::pstack::run(&arguments, &World::read()));
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => return usage(&e),
    };
    let world = World::read();
    let json = wants_json(&cli.command);
    match dispatch(cli, &world) {
        Ok(code) => ExitCode::from(code),
        Err(e) => {
            render::error(&e, json);
            ExitCode::from(e.exit)
        }
    }
}

/// Help and version go to standard output and are no errors; everything else is a usage error, in the form of every other
/// error where `--json` was among the arguments.
fn usage(e: &clap::Error) -> ExitCode {
    if e.use_stderr() && std::env::args_os().any(|a| a == "--json") {
        let text = e.render().to_string();
        let (message, hint) = text.split_once("\n\n").unwrap_or((&text, ""));
        let message = message.trim_start_matches("error: ").split_whitespace().collect::<Vec<_>>().join(" ");
        render::error(&CliError::usage("arguments", message, hint.trim()), true);
        return ExitCode::from(exit_code::USAGE);
    }
    // A closed pipe is no reason to fail a help text.
    drop(e.print());
    if e.use_stderr() { ExitCode::from(exit_code::USAGE) } else { ExitCode::SUCCESS }
}

fn dispatch(cli: Cli, world: &World) -> Result<u8, CliError> {
    let verbosity = render::Verbosity::of(cli.verbose, cli.quiet);
    match cli.command {
        Command::Run(args) => commands::run::run(args, world, verbosity),
        Command::Plan(args) => commands::plan::run(args, world),
        Command::Receipt(ReceiptCommand::Show(args)) => commands::receipt::show(&args, world),
        Command::Receipt(ReceiptCommand::Diff(args)) => commands::receipt::diff(&args, world),
        Command::Receipt(ReceiptCommand::Verify(args)) => commands::receipt::verify(&args, world),
        Command::Doctor(args) => commands::doctor::run(args, world),
        Command::Rehearse(args) => commands::rehearse::run(args, world, verbosity),
        Command::Fence(FenceCommand::Check(args)) => commands::fence::check(&args, world, verbosity),
        Command::Provision(args) => commands::provision::run(&args, world, verbosity),
        Command::Gc(args) => commands::gc::run(&args, world),
        Command::Version(args) => commands::version::run(&args),
        Command::Completions { shell } => commands::completions::run(shell),
        Command::Help { topic } => commands::help::run(topic),
        Command::ScriptedModel(args) => commands::scripted_model::run(args),
        Command::Generate { what } => commands::generate::run(what),
    }
}

fn wants_json(command: &Command) -> bool {
    match command {
        Command::Run(a) => a.json,
        Command::Plan(a) => a.json,
        Command::Receipt(ReceiptCommand::Show(a) | ReceiptCommand::Diff(a) | ReceiptCommand::Verify(a)) => {
            a.json
        }
        Command::Doctor(a) => a.json,
        Command::Rehearse(a) => a.json,
        Command::Fence(FenceCommand::Check(a)) => a.json,
        Command::Provision(a) => a.json,
        Command::Gc(a) => a.json,
        Command::Version(a) => a.json,
        Command::Completions { .. }
        | Command::Help { .. }
        | Command::ScriptedModel(_)
        | Command::Generate { .. } => false,
    }
}
