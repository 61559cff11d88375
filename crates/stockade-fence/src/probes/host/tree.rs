//! The files: a home with decoys and a repository with two linked worktrees.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::error::{FenceError, Step};
use crate::probes::fixture::SECRET;

use super::{finish, program};

/// Files with a secret, each private to its owner.
const DECOYS: [&str; 6] = [
    "home/.ssh/id_ed25519",
    "home/.aws/credentials",
    "home/.netrc",
    "home/.codex/auth.json",
    "vault/token",
    "secret",
];

/// Files that a program starts from or that a probe would change.
const ORDINARY: [&str; 6] =
    ["home/.bashrc", "home/.profile", "home/.zshrc", "home/.delme", "tmp/hostfile", "log.txt"];

const FOLDERS: [&str; 7] = ["run", "run/user", "tmp/ssh-x", "tmp/tmux-x", "home/.docker/run", "wt", "plain"];

/// Makes the home and everything beside it but the repository.
pub(super) fn make_home(root: &Path) -> Result<(), FenceError> {
    for folder in FOLDERS {
        let path = root.join(folder);
        fs::create_dir_all(&path).step_on("mkdir", path)?;
    }
    for (files, mode) in [(&DECOYS, 0o600), (&ORDINARY, 0o644)] {
        for file in files {
            let path = root.join(file);
            let text = if mode == 0o600 { format!("{SECRET} {file}\n") } else { format!("# {file}\n") };
            write(&path, &text, mode).step_on("write", path)?;
        }
    }
    Ok(())
}

fn write(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(path, text)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// A repository with one commit and the worktrees `lane` and `sib`, each on a branch of its own.
pub(super) fn make_repository(root: &Path, git: &Path) -> Result<(), FenceError> {
    let repository = root.join("repo");
    fs::create_dir(&repository).step_on("mkdir", &repository)?;
    let run = |arguments: &[&str]| {
        let mut command = program(git);
        command
            .current_dir(&repository)
            .args(["-c", "user.name=probe", "-c", "user.email=probe@localhost", "-c", "commit.gpgsign=false"])
            .args(arguments)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("HOME", root);
        finish(&mut command, "git")
    };
    run(&["init", "-q", "-b", "main", "."])?;
    let file = repository.join("f.txt");
    fs::write(&file, "1\n").step_on("write", &file)?;
    run(&["add", "."])?;
    run(&["commit", "-q", "-m", "1"])?;
    run(&["worktree", "add", "-q", "../wt/lane", "-b", "lane"])?;
    run(&["worktree", "add", "-q", "../wt/sib", "-b", "sib"])
}
