//! Stamps the binary with the commit it was built from, where that is known.

use std::{path::Path, process::Command};

fn main() {
    println!("cargo::rerun-if-env-changed=STOCKADE_BUILD_COMMIT");
    #[expect(clippy::disallowed_methods, reason = "a build script, not the product")]
    let given = std::env::var("STOCKADE_BUILD_COMMIT").ok().filter(|c| is_commit(c));
    let commit = given.or_else(from_git);
    if let Some(commit) = commit {
        println!("cargo::rustc-env=STOCKADE_COMMIT={commit}");
    }
}

fn is_commit(text: &str) -> bool {
    (7..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// The commit of this checkout. A source archive has none, and the binary says "unstamped" then.
fn from_git() -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let git = root.join(".git");
    if !git.exists() {
        return None;
    }
    for name in ["HEAD", "logs/HEAD"] {
        if git.join(name).exists() {
            println!("cargo::rerun-if-changed={}", git.join(name).display());
        }
    }
    #[expect(clippy::disallowed_methods, reason = "a build script, not the product")]
    let out = Command::new("git").arg("-C").arg(&root).args(["rev-parse", "HEAD"]).output().ok()?;
    let commit = String::from_utf8(out.stdout).ok()?.trim().to_owned();
    (out.status.success() && is_commit(&commit)).then_some(commit)
}
