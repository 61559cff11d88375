//! What a person sees. Everything reads without colour.

pub(crate) mod doctor;
pub(crate) mod fence;
pub(crate) mod plan;
pub(crate) mod progress;
pub(crate) mod receipt;
mod status_line;

use std::io::Write as _;

use serde::Serialize;
use stockade_core::status::{Boundary, exit_code};

use crate::error::CliError;

/// How much is said on standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verbosity {
    /// Errors only.
    Quiet,
    /// Endings, and progress on a terminal.
    Normal,
    /// Every event.
    Verbose,
}

impl Verbosity {
    /// From the flags.
    pub(crate) fn of(verbose: u8, quiet: bool) -> Self {
        match (quiet, verbose) {
            (true, _) => Self::Quiet,
            (false, 0) => Self::Normal,
            (false, _) => Self::Verbose,
        }
    }
}

/// Writes data to standard output. A reader that has gone away is no error.
pub(crate) fn out(text: &str) -> Result<(), CliError> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        Err(e) => Err(CliError::new(
            exit_code::STORAGE,
            "stdout",
            Boundary::Storage,
            format!("standard output cannot be written: {e}"),
        )),
    }
}

/// Writes a value to standard output as pretty JSON.
pub(crate) fn json(value: &impl Serialize) -> Result<(), CliError> {
    let text = serde_json::to_string_pretty(value).map_err(|e| {
        CliError::new(
            exit_code::STORAGE,
            "json",
            Boundary::Storage,
            format!("a value cannot be written as JSON: {e}"),
        )
    })?;
    out(&format!("{text}\n"))
}

/// Says something on standard error. Nobody listening is no error.
pub(crate) fn say(text: &str) {
    drop(anstream::stderr().lock().write_all(text.as_bytes()));
}

/// Shows an error: the message, its errno and path where it has them, and what to do.
pub(crate) fn error(e: &CliError, json: bool) {
    if json {
        // These are strings and numbers: they always serialise.
        let text = serde_json::to_string(&e.shown).unwrap_or_default();
        say(&format!("{text}\n"));
        return;
    }
    let s = &e.shown;
    let mut text = format!("error: {}\n", s.message);
    if let Some(errno) = s.errno {
        let name = stockade_fence::errno_name(errno);
        text.push_str(&format!(
            "  at: {} ({})\n",
            s.step,
            if name.is_empty() { errno.to_string() } else { name.to_owned() }
        ));
    }
    if let Some(path) = s.path.as_ref().filter(|p| !s.message.contains(&*p.to_string_lossy())) {
        text.push_str(&format!("  path: {}\n", path.display()));
    }
    if let Some(hint) = &s.hint {
        text.push_str(&format!("hint: {hint}\n"));
    }
    say(&text);
}

/// Whether standard error is a terminal.
pub(crate) fn is_terminal() -> bool {
    std::io::IsTerminal::is_terminal(&std::io::stderr())
}
