//! A sample repository with a linked worktree, made anew each time.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use crate::shell;

const FILES: [(&str, &str); 3] = [
    ("README.md", "# Sample\n\nCounts words. Usage: `count FILE`.\n"),
    ("count.sh", "#!/bin/sh\n# Counts words.\nwc -w < \"$1\"\n"),
    ("poem.txt", "so much depends\nupon\n"),
];

/// The sample.
pub(super) struct Sample {
    /// The linked worktree that the lanes work in.
    pub(super) worktree: PathBuf,
}

impl Sample {
    pub(super) fn make(folder: &Path) -> Result<Self> {
        if folder.exists() {
            fs::remove_dir_all(folder).with_context(|| format!("removing {}", folder.display()))?;
        }
        let main = folder.join("main");
        fs::create_dir_all(&main).with_context(|| format!("making {}", main.display()))?;
        for (name, text) in FILES {
            fs::write(main.join(name), text).with_context(|| format!("writing {name}"))?;
        }
        let worktree = folder.join("lane");
        for arguments in [
            &["init", "--quiet", "--initial-branch", "main"][..],
            &["add", "."],
            &["commit", "--quiet", "--message", "Add a sample"],
            &["worktree", "add", "--quiet", "-b", "lane", "../lane"],
        ] {
            shell::run(git(&main).args(arguments))?;
        }
        Ok(Self { worktree })
    }

    /// What the lane changed, as git shows it.
    pub(super) fn diff(&self) -> Result<String> {
        shell::run(git(&self.worktree).args(["add", "--intent-to-add", "."]))?;
        shell::output(git(&self.worktree).args(["--no-pager", "diff"]))
    }
}

/// git with an author of its own and none of the caller's configuration.
fn git(folder: &Path) -> Command {
    let mut command = shell::command("git");
    command.current_dir(folder).env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    for variable in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
        command.env_remove(variable);
    }
    command.args(["-c", "user.name=Sample", "-c", "user.email=sample@localhost"]);
    command
}
