//! `stockade completions`.

use clap::CommandFactory as _;

use crate::{cli::Cli, error::CliError, render};

pub(crate) fn run(shell: clap_complete::Shell) -> Result<u8, CliError> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "stockade", &mut script);
    render::out(&String::from_utf8_lossy(&script))?;
    Ok(0)
}
