//! `cargo xtask fuzz`: the readers of what an agent may send, under libFuzzer; and the part of the tests that replays the
//! corpus and mutates it without libFuzzer.

use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::{repository, shell};

const FOLDER: &str = "fuzz";
const CORPUS: &str = "fuzz/corpus";
const DEFAULT_SECONDS: &str = "60";

/// Runs one target, or each in turn.
pub(crate) fn run(arguments: &[&str]) -> Result<()> {
    let (chosen, seconds) = match arguments {
        [] => (None, DEFAULT_SECONDS),
        ["--seconds", seconds] => (None, *seconds),
        [target] => (Some(*target), DEFAULT_SECONDS),
        [target, "--seconds", seconds] => (Some(*target), *seconds),
        _ => bail!("fuzz [TARGET] [--seconds N]"),
    };
    let seconds: u32 = seconds.parse().context("the seconds are no number")?;
    let targets = targets()?;
    let names = targets.join(", ");
    ensure!(chosen.is_none_or(|t| targets.iter().any(|known| known == t)), "no such target; one of: {names}");
    ensure!(
        shell::find_on_path("cargo-fuzz").is_some(),
        "`cargo-fuzz` is missing: install it with `cargo install cargo-fuzz --locked`"
    );
    // The versions of the workspace; only what libFuzzer needs is added to them.
    let lock = repository::root().join(FOLDER).join("Cargo.lock");
    std::fs::copy(repository::root().join("Cargo.lock"), &lock)
        .with_context(|| lock.display().to_string())?;
    for target in targets.iter().filter(|t| chosen.is_none_or(|chosen| chosen == t.as_str())) {
        println!("\n=== {target}");
        // What it finds on its way is kept from run to run, apart from what was chosen by hand.
        let found = repository::target().join("fuzz").join(target);
        std::fs::create_dir_all(&found).with_context(|| found.display().to_string())?;
        let mut fuzz = cargo_fuzz();
        fuzz.args(["run", target]).arg(&found).arg(repository::root().join(CORPUS).join(target));
        shell::run(fuzz.args(["--", &format!("-max_total_time={seconds}")]))?;
    }
    Ok(())
}

/// `cargo fuzz` by a nightly compiler where there is one, else by this one told to take unstable flags.
fn cargo_fuzz() -> Command {
    let toolchains = shell::output(shell::command("rustup").args(["toolchain", "list"])).unwrap_or_default();
    let mut cargo = shell::command("cargo");
    cargo.current_dir(repository::root());
    if toolchains.lines().any(|line| line.starts_with("nightly")) {
        cargo.arg("+nightly");
    } else {
        cargo.env("RUSTC_BOOTSTRAP", "1");
    }
    cargo.arg("fuzz");
    cargo
}

/// The targets, which are named after the folders of the corpus.
fn targets() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(repository::root().join(CORPUS)).context(CORPUS)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// The part of the tests: the corpus, then blind mutation for some seconds, all targets at once.
pub(crate) fn replay() -> Command {
    let mut cargo = repository::cargo("run");
    cargo.args(["--locked", "--quiet", "--profile", "ci", "-p", "stockade-tests", "--example", "fuzz", "--"]);
    cargo.args(["--corpus", CORPUS, "--seconds", "10"]);
    cargo
}
