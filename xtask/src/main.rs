//! Tasks of this repository: `cargo xtask TASK`.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a task talks to the person who started it")]

mod bench;
mod binary;
mod demo;
mod fuzz;
mod prerequisites;
mod repository;
mod scripted;
mod shell;
mod test;
mod tidy;

use std::process::ExitCode;

use anyhow::{Result, bail};

const USAGE: &str = "\
Usage: cargo xtask TASK

Tasks:
  try                     build, provision Grok, and watch it work in a sample repository; no account needed
  test [--budget MINUTES] install what the tests need and run everything [default: 50 minutes]
  tidy [--fix]            check the rules of the house; --fix rewrites generated files
  fuzz [TARGET] [--seconds N]
                          fuzz by libFuzzer (needs cargo-fuzz, and a nightly compiler or RUSTC_BOOTSTRAP) [default: all, 60 s]
  bench [--gate]          measure what a run costs and write docs/benchmarks.md; --gate only checks
  bench peers             take the escape probes under other sandboxes, from npm, and write docs/peers.md";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match task(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn task(arguments: &[String]) -> Result<()> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["try"] => demo::run(),
        ["test"] => test::run(test::DEFAULT_BUDGET_MINUTES),
        ["test", "--budget", minutes] => test::run(minutes.parse()?),
        ["tidy"] => tidy::run(tidy::Generated::Compare),
        ["tidy", "--fix"] => tidy::run(tidy::Generated::Rewrite),
        ["fuzz", more @ ..] => fuzz::run(more),
        ["bench"] => bench::run(bench::Purpose::Record),
        ["bench", "peers"] => bench::peers::run(),
        ["bench", "--gate"] => bench::run(bench::Purpose::Gate),
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            Ok(())
        }
        _ => bail!("no such task\n\n{USAGE}"),
    }
}
