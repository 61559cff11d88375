//! `cargo xtask bench peers`: the same escape probes under other sandboxes, by hand. Writes docs/peers.md.
//!
//! Each peer gets what a lane gets: the linked worktree writable, no network, and nothing else. Needs npm, bubblewrap, and
//! for srt node, ripgrep and socat. `STOCKADE_BIN` names a binary in place of a fresh build.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use stockade_core::{guarantee::Guarantee, mode::AccessMode};
use stockade_fence::probes::{
    ARGUMENT, Attempt, Expected, FixtureFacts, Heard, Observed, PROBES, Probe, Said,
    host::{Host, HostRequest, WorkspaceIs},
};

use crate::{binary, repository, shell};

const FILE: &str = "docs/peers.md";
/// What npm is asked for.
const PACKAGES: [&str; 2] = ["@openai/codex@0.171.0", "@anthropic-ai/sandbox-runtime@0.0.83"];
const CODEX: &str = "node_modules/@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex";
/// What was observed under one sandbox, by probe.
type Seen = BTreeMap<String, Observed>;

pub(crate) fn run() -> Result<()> {
    let binary = match shell::variable("STOCKADE_BIN") {
        Some(path) => PathBuf::from(path),
        None => binary::build()?,
    };
    let peers = repository::target().join("peers");
    std::fs::create_dir_all(peers.join("home"))?;
    let mut npm = shell::command("npm");
    shell::run(npm.args(["install", "--no-audit", "--no-fund", "--prefix"]).arg(&peers).args(PACKAGES))?;
    let peer = |name: String, seen: Result<Seen>| -> Result<Column> {
        let seen = seen.with_context(|| format!("the probes under {name}"))?;
        Ok(Column { name, whose: Whose::Peers, seen })
    };
    let columns = [
        Column { name: "Stockade".to_owned(), whose: Whose::Ours, seen: stockade(&binary)? },
        peer(
            version("codex", &mut shell::command(peers.join(CODEX)))?,
            under(&binary, |_| Ok(codex(&peers))),
        )?,
        peer(srt_version(&peers)?, under(&binary, |facts| srt(&peers, facts)))?,
        peer(version("bwrap", &mut shell::command("bwrap"))?, under(&binary, |facts| Ok(bubblewrap(facts))))?,
    ];
    let page = page(&columns);
    std::fs::write(repository::root().join(FILE), &page).with_context(|| format!("writing {FILE}"))?;
    println!("{page}");
    Ok(())
}

fn version(name: &str, command: &mut Command) -> Result<String> {
    let told = shell::output(command.arg("--version"))?;
    Ok(format!("{name} {}", told.split_whitespace().last().unwrap_or("of an unknown version")))
}

fn srt_version(peers: &Path) -> Result<String> {
    let package = peers.join("node_modules/@anthropic-ai/sandbox-runtime/package.json");
    let package: Value = serde_json::from_str(&std::fs::read_to_string(package)?)?;
    Ok(format!("srt {}", package["version"].as_str().unwrap_or("of an unknown version")))
}

/// Ours, by the command that anybody can run.
fn stockade(binary: &Path) -> Result<Seen> {
    let mut command = shell::command(binary);
    let told = shell::output(command.args(["fence", "check", "--mode", "isolated-write", "--json"]))?;
    let report: Value = serde_json::from_str(&told)?;
    let probes = report["probes"].as_array().context("no probes")?;
    let seen = probes
        .iter()
        .filter_map(|p| Some((p["id"].as_str()?.to_owned(), Observed::from_text(p["observed"].as_str()?)?)));
    Ok(seen.collect())
}

/// The probe role, started by a sandbox.
fn under(binary: &Path, sandbox: impl Fn(&FixtureFacts) -> Result<Command>) -> Result<Seen> {
    let folder = PathBuf::from(format!("/var/tmp/stockade-peers-{}", std::process::id()));
    let program = |name| shell::find_on_path(name).with_context(|| format!("no `{name}` on PATH"));
    let request =
        HostRequest { folder, git: program("git")?, sleep: program("sleep")?, workspace: WorkspaceIs::Clean };
    let host = Host::start(&request)?;
    let mut command = sandbox(host.facts())?;
    command.arg(binary).arg(ARGUMENT);
    let mut attempt = Attempt::by(&host, command)?;
    let mut seen = Seen::new();
    loop {
        match attempt.next(Duration::from_secs(1))? {
            Heard::Said(Said::Observed(observation)) => {
                let observed = observation.seen();
                seen.insert(observation.id, observed);
            }
            Heard::Said(_) | Heard::Nothing => {}
            Heard::End => break,
        }
    }
    if seen.is_empty() {
        bail!("it did not start");
    }
    // Looked at so that a peer which leaves something is seen to.
    for damage in host.check(AccessMode::IsolatedWrite)? {
        println!("from outside: {damage}");
    }
    Ok(seen)
}

fn codex(peers: &Path) -> Command {
    let mut command = shell::command(peers.join(CODEX));
    command.env("HOME", peers.join("home")).args([
        "sandbox",
        "-c",
        "sandbox_mode=\"workspace-write\"",
        "-c",
        "sandbox_workspace_write.exclude_slash_tmp=true",
        "-c",
        "sandbox_workspace_write.exclude_tmpdir_env_var=true",
        "--",
    ]);
    command
}

fn srt(peers: &Path, facts: &FixtureFacts) -> Result<Command> {
    let home = facts.root.join("home");
    let hidden = [".ssh", ".aws", ".netrc", ".codex"].map(|name| home.join(name));
    let settings = json!({
        "network": { "allowedDomains": [], "deniedDomains": [] },
        "filesystem": { "denyRead": hidden, "allowWrite": [facts.workspace], "denyWrite": [] },
    });
    let file = peers.join("srt.json");
    std::fs::write(&file, settings.to_string())?;
    let mut command = shell::command("node");
    command.arg(peers.join("node_modules/.bin/srt")).arg("--settings").arg(file);
    Ok(command)
}

/// As it is usually called: everything read-only, the workspace writable, every namespace.
fn bubblewrap(facts: &FixtureFacts) -> Command {
    let mut command = shell::command("bwrap");
    command.args([
        "--unshare-all",
        "--die-with-parent",
        "--ro-bind",
        "/",
        "/",
        "--dev",
        "/dev",
        "--proc",
        "/proc",
    ]);
    command.args(["--tmpfs", "/tmp", "--bind"]).arg(&facts.workspace).arg(&facts.workspace).arg("--");
    command
}

/// Whether an action that should not work does. What an honest tool needs is none, nor are a temporary folder and a
/// network of its own; of the git folder only a lane has a copy.
fn is_hole(probe: &Probe, observed: &Observed, whose: Whose) -> bool {
    let is_copied = match whose {
        Whose::Ours => true,
        Whose::Peers => probe.guarantee != Guarantee::RepoMetadata,
    };
    let is_fine = match probe.isolated_write {
        Expected::Needed(_) => true,
        Expected::PrivateCopy(_) => is_copied,
        _ => false,
    };
    *observed == Observed::Allowed && !is_fine
}

/// The page, in Markdown.
fn page(columns: &[Column]) -> String {
    let mut page = format!(
        "# The same probes elsewhere\n\nWritten by `cargo xtask bench peers`, by hand, on kernel {} as user {}: the [escape \
         probes](probes.md), started by each sandbox from a process to which secrets were left, with one worktree of a \
         repository writable and no network. Listed are the probes that worked and should not have. Codex and srt are \
         called as their documentation says for such a workspace (srt with the credentials of the home hidden), \
         bubblewrap as it usually is. They are made for other purposes too; this compares only what these probes try. \
         Limits are what each sets by itself.\n\n| guarantee | probes |",
        rustix::system::uname().release().to_string_lossy(),
        rustix::process::geteuid().as_raw(),
    );
    // Writing to a String cannot fail.
    for column in columns {
        let _ = write!(page, " {} |", column.name);
    }
    page += "\n| --- | --- |";
    page += &" --- |".repeat(columns.len());
    page.push('\n');
    for guarantee in Guarantee::ALL {
        let rows: Vec<_> = PROBES.iter().filter(|probe| probe.guarantee == guarantee).collect();
        if !rows.is_empty() {
            let _ = write!(page, "| `{}` | {} |", guarantee.id(), rows.len());
            for column in columns {
                page += &column.cell(&rows);
            }
            page.push('\n');
        }
    }
    let all: Vec<_> = PROBES.iter().collect();
    let _ = write!(page, "| all | {} |", all.len());
    for column in columns {
        let _ = write!(page, " {} |", column.holes(&all).len());
    }
    page.push('\n');
    page
}

/// Whose sandbox it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Ours,
    Peers,
}

/// One sandbox and what worked under it.
struct Column {
    name: String,
    whose: Whose,
    seen: Seen,
}

impl Column {
    fn holes(&self, rows: &[&Probe]) -> Vec<&'static str> {
        let hole = |p: &&&Probe| self.seen.get(p.id).is_some_and(|observed| is_hole(p, observed, self.whose));
        rows.iter().filter(hole).map(|p| p.id).collect()
    }

    fn cell(&self, rows: &[&Probe]) -> String {
        match self.holes(rows).as_slice() {
            [] => " none |".to_owned(),
            holes => format!(" {}: {} |", holes.len(), holes.join(", ")),
        }
    }
}
