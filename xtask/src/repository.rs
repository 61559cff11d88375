//! Where things are in this repository.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::shell;

/// The root of the working tree.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new(".")).to_owned()
}

/// The build folder.
pub(crate) fn target() -> PathBuf {
    shell::variable("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |d| root().join(d))
}

/// A command of the cargo that started this task, in the root.
pub(crate) fn cargo(subcommand: &str) -> std::process::Command {
    let program = shell::variable("CARGO").unwrap_or_else(|| "cargo".to_owned());
    let mut command = shell::command(program);
    command.arg(subcommand).current_dir(root());
    command
}

/// Every file that is tracked, or would be: what a clone of the next commit holds. Relative to the root, sorted.
pub(crate) fn files() -> Result<Vec<String>> {
    let mut git = shell::command("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(root());
    let listed = shell::output(&mut git)?;
    let mut files: Vec<String> = listed.split('\0').filter(|f| !f.is_empty()).map(str::to_owned).collect();
    files.retain(|f| root().join(f).is_file());
    files.sort();
    files.dedup();
    Ok(files)
}

/// The text of a file, relative to the root.
pub(crate) fn read(file: &str) -> Result<String> {
    std::fs::read_to_string(root().join(file)).with_context(|| format!("reading {file}"))
}
