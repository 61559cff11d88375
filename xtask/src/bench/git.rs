//! A round trip through git: a worktree made, a commit and an uncommitted file taken out.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{
    measure::{Cost, median, timed},
    report::Row,
    setting::Setting,
};
use crate::shell;

/// What the whole way may add on a repository of this size.
const BUDGET_MS: f64 = 400.0;
const FOLDERS: usize = 100;
const FILES_IN_EACH: usize = 100;
const PAIRS: usize = 7;

/// A stub that commits one change and leaves another uncommitted.
const STUB: &str = r#"#!/bin/sh
printf '%s\n' '{"type":"system","subtype":"init","session_id":"stub","model":"grok-4.6","tools":[]}'
{ echo more >> 3/4 && git add 3/4 && git commit -qm work && echo left > "left-$$"; } >&2 || exit 1
printf '%s\n' '{"type":"result","subtype":"success","is_error":false,"num_turns":1,"result":"ok","stop_reason":"end_turn","session_id":"stub"}'
"#;

/// The row of the round trip.
pub(super) fn measure(setting: &Setting) -> Result<Row> {
    let repository = make_repository(setting)?;
    let stub = setting.folder.join("git-stub");
    fs::write(&stub, STUB).with_context(|| format!("writing {}", stub.display()))?;
    fs::set_permissions(&stub, fs::Permissions::from_mode(0o755))?;
    let (mut bare, mut fenced, mut made) = (Vec::new(), Vec::new(), Vec::new());
    // The first pair warms caches and is thrown away.
    for pair in 0..=PAIRS {
        let b = timed(&mut alone(setting, &stub), 0)?;
        let receipt = setting.folder.join(format!("git-{pair}.json"));
        let f = timed(&mut lane(setting, &repository, &stub, &receipt), 0)?;
        made.push(worktree(&receipt)?);
        if pair > 0 {
            bare.push(b);
            fenced.push(f);
        }
    }
    // Only now: where many files were just deleted, ext4 takes its time to make others.
    for folder in made {
        fs::remove_dir_all(&folder).with_context(|| format!("removing {}", folder.display()))?;
    }
    let differences = fenced.iter().zip(&bare).map(|(f, b)| f - b).collect();
    let cost = Cost { bare: median(bare), fenced: median(fenced), added: median(differences) };
    Ok(Row::added("git round trip, 10,000 files, 2 linked worktrees", &cost, BUDGET_MS))
}

fn linked(setting: &Setting, name: &str) -> PathBuf {
    setting.folder.join(format!("linked-{name}"))
}

/// Git with an author of its own and none of the caller's configuration.
fn git(folder: &Path) -> Command {
    let mut command = shell::command("git");
    command.current_dir(folder).env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    command.args(["-c", "gc.auto=0"]);
    command
}

/// A repository whose objects come in one pack: where loose ones were just deleted, ext4 takes its time to make files.
fn make_repository(setting: &Setting) -> Result<PathBuf> {
    let repository = setting.folder.join("repository");
    fs::create_dir_all(&repository).with_context(|| format!("making {}", repository.display()))?;
    for arguments in [
        &["init", "--quiet", "--initial-branch", "main"][..],
        &["config", "user.name", "Bench"],
        &["config", "user.email", "bench@localhost"],
    ] {
        shell::run(git(&repository).args(arguments))?;
    }
    let stream = setting.folder.join("repository.stream");
    fs::write(&stream, ten_thousand_files()).with_context(|| format!("writing {}", stream.display()))?;
    let input = fs::File::open(&stream).with_context(|| format!("reading {}", stream.display()))?;
    shell::run(git(&repository).args(["fast-import", "--quiet"]).stdin(input))?;
    let others = ["one", "two"].map(|name| linked(setting, name).display().to_string());
    for arguments in [
        &["reset", "--quiet", "--hard"][..],
        &["worktree", "add", "--quiet", "-b", "one", &others[0]],
        &["worktree", "add", "--quiet", "-b", "two", &others[1]],
    ] {
        shell::run(git(&repository).args(arguments))?;
    }
    Ok(repository)
}

/// One commit, as git-fast-import(1) reads it.
fn ten_thousand_files() -> String {
    let subject = "Ten thousand files";
    let mut stream = format!(
        "commit refs/heads/main\ncommitter Bench <bench@localhost> 1700000000 +0000\ndata {}\n{subject}\n",
        subject.len()
    );
    for folder in 0..FOLDERS {
        for file in 0..FILES_IN_EACH {
            let text = format!("file {file} of folder {folder}\n").repeat(20);
            stream.push_str(&format!("M 100644 inline {folder}/{file}\ndata {}\n{text}\n", text.len()));
        }
    }
    stream
}

/// The stub in a worktree of its own, without Stockade.
fn alone(setting: &Setting, stub: &Path) -> Command {
    let mut command = shell::command(stub);
    command
        .current_dir(linked(setting, "one"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

fn lane(setting: &Setting, repository: &Path, stub: &Path, receipt: &Path) -> Command {
    let mut command = shell::command(&setting.binary);
    command.args(["--quiet", "run", "--provider", "grok", "--mode", "isolated-write"]);
    command
        .args(["--provider-sandbox", "replace", "--endpoint", &setting.model.url, "--cwd"])
        .arg(repository);
    command.arg("--prompt").arg(setting.prompt()).arg("--executable").arg(stub);
    command.arg("--output").arg(receipt.with_extension("md")).arg("--receipt").arg(receipt);
    Setting::environment(&mut command).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Checks that the work arrived, and gives the folder of the worktree, which nobody will merge.
fn worktree(receipt: &Path) -> Result<PathBuf> {
    let text = fs::read(receipt).with_context(|| format!("reading {}", receipt.display()))?;
    let receipt: Value = serde_json::from_slice(&text)?;
    let refs = receipt.pointer("/git/refs").and_then(Value::as_array).map_or(0, Vec::len);
    ensure!(refs == 2, "the round trip made {refs} references, not two");
    let tree = receipt.pointer("/git/worktree").and_then(Value::as_str).context("no worktree is named")?;
    Ok(Path::new(tree).parent().context("a worktree without a folder")?.to_owned())
}
