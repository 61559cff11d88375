//! Starting programs, with errors that name the program and what it said.

use std::{ffi::OsStr, process::Command};

use anyhow::{Context, Result, ensure};

/// A program to be started. Tasks build, test and measure from outside, so they start programs themselves.
#[expect(
    clippy::disallowed_methods,
    reason = "a task starts cargo, git and the built binary; none of it is a run"
)]
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    Command::new(program)
}

/// A variable of the caller's environment, if it is set and not empty.
#[expect(clippy::disallowed_methods, reason = "the edge of this program")]
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Runs a program with this process's own output; anything but success is an error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("starting {}", shown(command)))?;
    ensure!(status.success(), "{} ended with {status}", shown(command));
    Ok(())
}

/// Runs a program and gives its standard output; anything but success is an error with its standard error.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("starting {}", shown(command)))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{} ended with {}\n{}",
        shown(command),
        output.status,
        stderr.trim_end()
    );
    String::from_utf8(output.stdout).with_context(|| format!("the output of {} is no text", shown(command)))
}

/// A command line for people.
pub(crate) fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|w| w.to_string_lossy()).collect();
    format!("`{}`", words.join(" "))
}

/// The first executable file of a name on PATH.
pub(crate) fn find_on_path(name: &str) -> Option<std::path::PathBuf> {
    use std::os::unix::fs::PermissionsExt as _;
    let is_program = |path: &std::path::PathBuf| {
        path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(&variable("PATH")?).map(|folder| folder.join(name)).find(is_program)
}
