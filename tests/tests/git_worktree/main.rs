//! Git works in a lane, the host is safe, nothing stays behind.
//!
//! A repository with two linked worktrees, one of them sparse with configuration of its own. A stub commits, branches and
//! stashes, and reaches for hooks, configuration, attributes, another worktree and a key. The repository is compared byte
//! for byte from outside. Needs root, to become another user.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test: a panic is how it fails, and git is run from outside"
)]

mod host;
mod refused;
mod work;

use std::{collections::BTreeMap, fs, path::Path, path::PathBuf};

use serde_json::Value;
use stockade_tests::{Caller, World, git::git, outside, run::Call, stub};

/// An endpoint that nobody serves: the stub never asks.
const ENDPOINT: &str = "http://127.0.0.1:9/v1";

const KEY: &str = "KEY-decoy-4711";

/// A repository at `ws` with linked worktrees `lane` and `sparse`, and a key in the home.
fn scene(caller: &Caller) -> World {
    let world = World::new(caller);
    let ws = world.ws();
    git(&ws, &["init", "-q", "-b", "main", "."]);
    for name in ["a/1", "a/2", "b/1", "top"] {
        world.write(&format!("ws/{name}"), format!("{name}\n"));
    }
    world.write("ws/.gitignore", "ignored\n");
    git(&ws, &["add", "."]);
    git(&ws, &["commit", "-qm", "one"]);
    git(&ws, &["config", "user.name", "Ada"]);
    git(&ws, &["config", "user.email", "ada@example.invalid"]);
    git(&ws, &["config", "remote.o.url", "https://u:token-4711@example.invalid/x"]);
    git(&ws, &["worktree", "add", "-q", "-b", "lane", "../lane"]);
    git(&ws, &["worktree", "add", "-q", "-b", "sparse", "../sparse"]);
    git(&world.path("sparse"), &["sparse-checkout", "set", "a"]);
    git(&world.path("sparse"), &["config", "--worktree", "core.whitespace", "trailing-space"]);
    assert!(!world.path("sparse/b/1").exists(), "the worktree is not sparse");
    world.write("home/.ssh/id", KEY);
    for folder in ["ws", "lane", "sparse", "home"] {
        world.give(folder);
    }
    world
}

/// What the stub does in each place where git works.
const WORK: &str = r"{
git status --short; git log --oneline
echo more >> a/1; git add a/1; git commit -qm 'work of the agent' && echo committed
git checkout -q -b topic; echo t > a/topic; git add a/topic; git commit -qm topic; git checkout -q -
echo stashed >> a/2; git stash -q && echo stashed
echo left > a/left; mkdir -p a; echo x > a/ignored; mv a/ignored ignored
git gc -q && echo collected
git config some.key value && echo configured
} >&2";

fn order<'w>(world: &'w World, name: &str, folder: &str, mode: &str, agent: &Path) -> Call<'w> {
    let (agent, folder) = (agent.display().to_string(), world.path(folder).display().to_string());
    world.write("out/prompt.md", "Do it.\n");
    let out = |file: &str| world.path("out").join(file).display().to_string();
    world
        .call(&[
            "run",
            "--provider",
            "grok",
            "--provider-sandbox",
            "replace",
            "--model",
            "m",
            "--endpoint",
            ENDPOINT,
        ])
        .args(&["--executable", &agent, "--cwd", &folder, "--mode", mode, "--prompt", &out("prompt.md")])
        .args(&[
            "--receipt",
            &out(&format!("{name}.receipt.json")),
            "--output",
            &out(&format!("{name}.answer")),
        ])
}

fn working_stub(world: &World, name: &str, body: &str) -> PathBuf {
    world.stub(name, &format!("say '{}'\n{body}\nsay '{}'", stub::INIT, stub::success("done")))
}

fn said(receipt: &Value) -> String {
    fs::read_to_string(Path::new(receipt["runDirectory"].as_str().unwrap()).join("stderr")).unwrap()
}

/// Everything of a repository's folder but Stockade's references and objects that are new.
fn repository(world: &World, before: Option<&BTreeMap<PathBuf, String>>) -> BTreeMap<PathBuf, String> {
    let mut seen = outside::picture(&world.path("ws/.git"));
    seen.retain(|path, _| {
        let is_new = before.is_some_and(|b| !b.contains_key(path));
        !(path.starts_with("refs/stockade") || is_new && path.starts_with("objects"))
    });
    seen
}

/// Everything of a working tree but its git folder.
fn files(folder: &Path) -> BTreeMap<PathBuf, String> {
    let mut seen = outside::picture(folder);
    // The pointer of a linked worktree is one file.
    seen.retain(|path, what| {
        !path.starts_with(".git") || (path == Path::new(".git") && !what.ends_with("folder"))
    });
    seen
}

/// Compares two pictures, and shows only where they differ.
#[track_caller]
fn assert_same(now: &BTreeMap<PathBuf, String>, before: &BTreeMap<PathBuf, String>, what: &str) {
    let differs = |a: &BTreeMap<PathBuf, String>, b: &BTreeMap<PathBuf, String>| {
        a.iter()
            .filter(|(k, v)| b.get(*k) != Some(v))
            .map(|(k, v)| format!("{}: {v}", k.display()))
            .collect::<Vec<_>>()
    };
    assert_eq!(differs(now, before), differs(before, now), "{what}");
}

fn refs(world: &World) -> BTreeMap<String, String> {
    let all = git(&world.ws(), &["for-each-ref", "--format=%(refname) %(objectname)", "refs/stockade"]);
    all.lines().filter_map(|l| l.split_once(' ')).map(|(n, o)| (n.to_owned(), o.to_owned())).collect()
}

fn status(folder: &Path) -> String {
    git(folder, &["--no-optional-locks", "status", "--porcelain=v1"])
}

/// The references that a receipt lists are those of the repository; by their names inside.
fn listed(world: &World, receipt: &Value) -> BTreeMap<String, String> {
    let text = |v: &Value| v.as_str().unwrap().to_owned();
    let listed = receipt["git"]["refs"].as_array().unwrap();
    let by_name: BTreeMap<_, _> = listed.iter().map(|r| (text(&r["name"]), text(&r["object"]))).collect();
    let run = format!("refs/stockade/{}/", receipt["executionId"].as_str().unwrap());
    let there: BTreeMap<_, _> = refs(world).into_iter().filter(|(n, _)| n.starts_with(&run)).collect();
    assert_eq!(by_name, there);
    listed.iter().map(|r| (text(&r["inside"]), text(&r["object"]))).collect()
}
