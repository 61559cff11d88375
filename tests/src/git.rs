//! Repositories for tests.

use std::{path::Path, process::Command};

/// Runs git as the owner of a folder would, without the machine's configuration.
#[track_caller]
pub fn git(folder: &Path, args: &[&str]) -> String {
    let out = Command::new("git")
        .current_dir(folder)
        .args(["-c", "user.name=t", "-c", "user.email=t@example.invalid", "-c", "safe.directory=*"])
        .args(args)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .expect("git is installed");
    assert!(out.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// Makes a repository with one commit.
pub fn repository(folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    git(folder, &["init", "-q", "-b", "main", "."]);
    std::fs::write(folder.join("f.txt"), "1\n").unwrap();
    git(folder, &["add", "."]);
    git(folder, &["commit", "-qm", "one"]);
}
