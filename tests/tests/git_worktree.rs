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

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use rustix::process::Signal;
use serde_json::{Value, json};
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

#[test]
fn commit_branch_and_stash_work_and_arrive_as_references_alone() {
    for caller in Caller::both() {
        let world = scene(&caller);
        let agent = working_stub(&world, "works", WORK);
        let before = repository(&world, None);
        for (name, folder, choice, branch) in [
            ("main", "ws", "made", "main"),
            ("linked", "lane", "made", "lane"),
            ("sparse", "sparse", "made", "sparse"),
            ("named", "lane", "named", "lane"),
        ] {
            let before_run = files(&world.path(folder));
            let call = order(&world, name, folder, "isolated-write", &agent).args(&["--worktree", choice]);
            call.end().expect_code(0);
            let receipt = world.receipt(name);
            let said = said(&receipt);
            for word in ["committed", "stashed", "collected", "configured"] {
                assert!(said.contains(word), "{name} as {}: {said}", caller.name);
            }
            let refs = listed(&world, &receipt);
            let names: Vec<&str> = refs.keys().map(String::as_str).collect();
            assert_eq!(
                names,
                [&*format!("refs/heads/{branch}"), "refs/heads/topic", "refs/stash", "worktree"]
            );
            let show = |object: &str| git(&world.ws(), &["show", object]);
            let tip = format!("{}:a/1", refs[&format!("refs/heads/{branch}")]);
            assert_eq!(show(&tip), "a/1\nmore\n");
            assert_eq!(show(&format!("{}:a/left", refs["worktree"])), "left\n");
            let author = git(&world.ws(), &["log", "-1", "--format=%an <%ae>|%cn", &refs["worktree"]]);
            assert_eq!(author, "Ada <ada@example.invalid>|Ada\n");
            let changed: Vec<_> =
                receipt["changes"]["files"].as_array().unwrap().iter().map(|f| &f["path"]).collect();
            assert_eq!(changed, ["a/1", "a/left"], "{name}");
            assert_eq!(receipt["changes"]["commits"].as_array().unwrap().len(), 2);
            assert_eq!(receipt["changes"]["complete"], true);
            assert_same(&repository(&world, Some(&before)), &before, &format!("{name} as {}", caller.name));
            if choice == "made" {
                assert_same(&files(&world.path(folder)), &before_run, name);
            } else {
                assert_eq!(
                    status(&world.path(folder)),
                    " M a/1\n?? a/left\n",
                    "the files stay, the index does not move"
                );
            }
        }
        // In a sparse worktree nothing outside the cone was taken for deleted.
        let sparse = listed(&world, &world.receipt("sparse"));
        assert_eq!(git(&world.ws(), &["show", &format!("{}:b/1", sparse["worktree"])]), "b/1\n");
        git(&world.ws(), &["fsck", "--strict", "--no-dangling"]);
        if caller.uid != 0 {
            let foreign = outside::picture(&world.path("ws/.git"));
            let own = format!(" {0}:{0} ", caller.uid);
            assert!(foreign.values().all(|what| what.contains(&own)), "{foreign:#?}");
        }
    }
}

#[test]
fn hook_config_attributes_the_other_tree_and_the_home_do_not_change_and_the_key_is_not_readable() {
    for caller in Caller::both() {
        let world = scene(&caller);
        let ws = world.ws().display().to_string();
        let root = world.root().display().to_string();
        let body = format!(
            r"{{ cd {ws}
mkdir -p .git/hooks .git/info; printf '#!/bin/sh\ntouch {root}/marks/hook\n' > .git/hooks/post-commit; chmod +x .git/hooks/post-commit
git config core.fsmonitor 'touch {root}/marks/fsmonitor; false'; git config alias.x '!touch {root}/marks/alias'
echo '* filter=x' > .git/info/attributes; git config filter.x.clean 'touch {root}/marks/filter; cat'
git config diff.external 'touch {root}/marks/external'
mkdir -p .git/worktrees/lane; echo x > .git/worktrees/lane/index; echo x > {root}/lane/a/1
rm -rf .git/objects/pack; echo evil > .git/refs/heads/main; echo /etc > .git/objects/info/alternates
cat {root}/home/.ssh/id; cat .git/config; ls /repository/objects >/dev/null && echo objects
touch /repository/objects/x; echo done; }} >&2"
        );
        let agent = working_stub(&world, "reaches", &body);
        world.folder("marks");
        let (before, lane, home) = (
            repository(&world, None),
            outside::picture(&world.path("lane")),
            outside::picture(&world.home()),
        );
        for mode in ["isolated-write", "read-only"] {
            order(&world, mode, "ws", mode, &agent).end();
            let receipt = world.receipt(mode);
            let said = said(&receipt);
            assert!(said.contains("objects") && said.contains("done"), "{said}");
            assert!(!said.contains(KEY) && !said.contains("token-4711"), "{said}");
            assert_same(&repository(&world, Some(&before)), &before, mode);
            assert_same(&outside::picture(&world.path("lane")), &lane, mode);
            assert_same(&outside::picture(&world.home()), &home, mode);
            git(&world.ws(), &["fsck", "--strict", "--no-dangling"]);
        }
        let held = |receipt: &Value| {
            let all = receipt["guarantees"].as_array().unwrap();
            all.iter().find(|g| g["id"] == "repo-metadata").unwrap().clone()
        };
        let guarantee = held(&world.receipt("isolated-write"));
        assert_eq!((&guarantee["held"], &guarantee["proof"]), (&json!(true), &json!(["protected-write"])));
        assert_eq!(
            fs::read_dir(world.path("marks")).unwrap().count(),
            0,
            "a planted command ran on the host"
        );
    }
}

#[test]
fn a_planted_command_runs_nowhere_on_the_host() {
    for caller in Caller::both() {
        let world = scene(&caller);
        let marks = world.folder("marks");
        fs::set_permissions(&marks, fs::Permissions::from_mode(0o777)).unwrap();
        let mark = |name: &str| format!("{}/{name}", marks.display());
        // A nested repository, named by the index as a commit, with commands in its configuration; and attributes and
        // configuration for the tree itself.
        let body = format!(
            r#"{{ for name in sub 'sub two'; do git init -q "$name"; ( cd "$name"
git config core.fsmonitor 'touch {fsmonitor}; false'; git config filter.x.clean 'touch {filter}; cat'
echo '* filter=x' > .gitattributes; echo x > x; git add .gitattributes
git -c user.name=n -c user.email=e@x commit -qm nested ); done
git add sub; echo '* filter=y diff=y' > .gitattributes; git config filter.y.clean 'touch {clean}; cat'
git config diff.y.textconv 'touch {textconv}; cat'; git config diff.y.command 'touch {command}'
echo changed > top; git add top .gitattributes; git commit -qm planted; echo again > top; }} >&2"#,
            fsmonitor = mark("fsmonitor"),
            filter = mark("filter"),
            clean = mark("clean"),
            textconv = mark("textconv"),
            command = mark("command"),
        );
        let agent = working_stub(&world, "plants", &body);
        for (name, folder, choice) in [("made", "ws", "made"), ("named", "lane", "named")] {
            let call = order(&world, name, folder, "isolated-write", &agent).args(&["--worktree", choice]);
            call.end().expect_code(0);
            let receipt = world.receipt(name);
            let run = receipt["executionId"].as_str().unwrap().to_owned();
            assert!(receipt["git"]["result"].is_string(), "{:#}", receipt["git"]);
            assert!(
                receipt["notes"].to_string().contains("repositories inside the worktree"),
                "{:#}",
                receipt["notes"]
            );
            let diff = world.call(&["receipt", "diff", &run]).end().expect_code(0);
            assert!(diff.stdout.contains("+again"), "{}", diff.stdout);
            world.call(&["gc"]).end().expect_code(0);
        }
        assert_eq!(fs::read_dir(&marks).unwrap().count(), 0, "a planted command ran on the host");
    }
}

#[test]
fn a_pointer_or_link_that_leads_elsewhere_is_refused_before_start() {
    for caller in Caller::both() {
        type Tamper = fn(&World);
        let variants: [(&str, &str, Tamper); 6] = [
            ("git-pointer", "lane", |w| {
                let foreign = w.path("foreign");
                stockade_tests::git::repository(&foreign);
                w.write("lane/.git", format!("gitdir: {}/.git\n", foreign.display()));
            }),
            ("git-pointer", "lane", |w| {
                w.write("lane/.git", format!("gitdir: {}/ws/.git/worktrees/sparse\n", w.root().display()));
            }),
            ("git-commondir", "lane", |w| {
                w.write("ws/.git/worktrees/lane/commondir", format!("{}\n", w.home().display()));
            }),
            ("git-alternates", "lane", |w| {
                w.write("ws/.git/objects/info/alternates", format!("{}/.ssh\n", w.home().display()));
            }),
            ("git-objects-link", "ws", |w| {
                let objects = w.path("ws/.git/objects");
                fs::rename(&objects, w.path("kept")).unwrap();
                symlink(w.home().join(".ssh"), &objects).unwrap();
            }),
            ("git-is-link", "ws", |w| {
                fs::rename(w.path("ws/.git"), w.path("kept")).unwrap();
                symlink(w.path("kept"), w.path("ws/.git")).unwrap();
            }),
        ];
        for (code, folder, tamper) in variants {
            for mode in ["read-only", "isolated-write"] {
                let world = scene(&caller);
                tamper(&world);
                let agent = working_stub(&world, "starts", "touch started");
                let before = ["ws", "lane", "sparse"].map(|f| outside::picture(&world.path(f)));
                order(&world, "r", folder, mode, &agent).end().expect_code(66);
                let receipt = world.receipt("r");
                assert_eq!(
                    (&receipt["status"], &receipt["cause"]["code"]),
                    (&json!("workspace-refused"), &json!(code))
                );
                assert_eq!(receipt["processStarted"], false);
                assert!(receipt["cause"]["remedy"].is_string());
                let after = ["ws", "lane", "sparse"].map(|f| outside::picture(&world.path(f)));
                assert_eq!(after, before, "{code} {mode} as {}", caller.name);
                assert!(!world.state().join("worktrees").exists(), "a refused order made a worktree");
            }
        }
    }
}

#[test]
fn a_killed_lane_leaves_the_repository_as_it_was_and_its_tree_is_listed() {
    for caller in Caller::both() {
        for (folder, choice) in [("ws", "made"), ("lane", "named")] {
            let world = scene(&caller);
            let body = format!("{WORK}\necho ready > a/ready\nexec sleep 600");
            let agent = working_stub(&world, "sleeps", &body);
            let (before, clean) = (repository(&world, None), status(&world.ws()));
            let call =
                order(&world, "killed", folder, "isolated-write", &agent).args(&["--worktree", choice]);
            let started = call.start();
            let there = |relative: &str| {
                let made = fs::read_dir(world.state().join("worktrees")).into_iter().flatten().flatten();
                made.map(|e| e.path().join("tree").join(relative)).any(|p| p.exists())
                    || world.path(folder).join(relative).exists()
            };
            outside::wait_until("the agent has worked", || there("a/ready"));
            started.signal(Signal::KILL);
            let ended = started.wait(Duration::from_secs(10));
            assert_eq!(ended.status.code(), None);
            outside::wait_for_no_process_fenced_for(&world, Duration::from_secs(5));
            assert_same(&repository(&world, Some(&before)), &before, choice);
            assert_eq!(status(&world.ws()), clean);
            let after = if choice == "named" { " M a/1\n?? a/left\n?? a/ready\n" } else { "" };
            assert_eq!(status(&world.path("lane")), after);
            let leftovers = world.call(&["gc", "--remove", "--json"]).end().expect_code(0);
            let rows: Value = serde_json::from_str(&leftovers.stdout).unwrap();
            let trees: Vec<_> = rows.as_array().unwrap().iter().filter(|r| r["kind"] == "worktree").collect();
            assert_eq!(trees.len(), 1, "{rows:#}");
            assert_eq!((&trees[0]["safe"], &trees[0]["removed"]), (&json!(false), &json!(false)));
            assert!(trees[0]["why"].as_str().unwrap().contains("never taken out"), "{:#}", trees[0]);
            // The lock of a dead run holds nobody up.
            let agent = working_stub(&world, "nothing", "true");
            let call = order(&world, "next", folder, "isolated-write", &agent).args(&["--worktree", choice]);
            call.end().expect_code(0);
        }
    }
}

#[test]
fn git_outside_never_fails_because_of_a_lane_nor_the_lane_because_of_it() {
    let world = scene(&Caller::root());
    let body = "for i in 1 2 3 4 5 6 7 8 9 10; do echo $i >> a/1; git add a/1 && git commit -qm $i || exit 1; sleep 0.02; done >&2";
    let agent = working_stub(&world, "commits", body);
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Only one of them writes the configuration, which is one file.
        let write: &[&str] = &["config", "polled.at", "now"];
        let look: [&[&str]; 2] = [&["status", "--short"], &["log", "-1", "--format=%s"]];
        let polls = [("ws", Some(write)), ("lane", None)].map(|(folder, write)| {
            let (folder, ended) = (world.path(folder), &ended);
            scope.spawn(move || {
                let mut polls = 0;
                while !ended.load(Ordering::Relaxed) {
                    for args in write.into_iter().chain(look) {
                        git(&folder, args);
                    }
                    polls += 1;
                }
                polls
            })
        });
        for (name, folder, choice) in [("made", "ws", "made"), ("named", "lane", "named")] {
            let call = order(&world, name, folder, "isolated-write", &agent).args(&["--worktree", choice]);
            let done = call.end();
            if done.status.code() != Some(0) {
                ended.store(true, Ordering::Relaxed);
            }
            done.expect_code(0);
            assert_eq!(world.receipt(name)["changes"]["commits"].as_array().unwrap().len(), 10);
        }
        ended.store(true, Ordering::Relaxed);
        for poll in polls {
            assert!(poll.join().unwrap() > 2, "the repository was hardly polled");
        }
    });
}

#[test]
fn a_second_lane_on_the_same_tree_is_refused_with_the_owners_name() {
    for caller in Caller::both() {
        let world = scene(&caller);
        world.folder("plain");
        // In place the configuration would be seen.
        git(&world.ws(), &["config", "--unset", "remote.o.url"]);
        world.give("ws");
        let waits = working_stub(&world, "waits", "touch started\nuntil [ -e go ]; do sleep 0.01; done");
        let quick = working_stub(&world, "quick", "touch second");
        for (folder, flags) in
            [("lane", &["--worktree", "named"][..]), ("ws", &["--in-place"]), ("plain", &[])]
        {
            let first = order(&world, &format!("first-{folder}"), folder, "isolated-write", &waits)
                .args(flags)
                .start();
            outside::wait_until("the first lane works", || world.path(folder).join("started").exists());
            let second = format!("second-{folder}");
            order(&world, &second, folder, "isolated-write", &quick).args(flags).end().expect_code(66);
            let receipt = world.receipt(&second);
            let owner = world.receipt(&format!("first-{folder}"))["executionId"].as_str().unwrap().to_owned();
            assert_eq!(receipt["cause"]["code"], "workspace-in-use");
            assert!(receipt["cause"]["message"].as_str().unwrap().contains(&owner), "{:#}", receipt["cause"]);
            assert!(!world.path(folder).join("second").exists());
            // A lane that only looks, or works on a tree of its own, holds nobody up.
            order(&world, &format!("look-{folder}"), folder, "read-only", &quick).end().expect_code(0);
            world.write(&format!("{folder}/go"), "");
            first.wait(Duration::from_secs(20)).expect_code(0);
            order(&world, &format!("third-{folder}"), folder, "isolated-write", &quick)
                .args(flags)
                .end()
                .expect_code(0);
        }
    }
}

#[test]
fn clean_up_removes_only_clean_merged_unowned_trees_and_lists_the_rest() {
    for caller in Caller::both() {
        let world = scene(&caller);
        let nothing = working_stub(&world, "nothing", "git status >&2");
        order(&world, "nothing", "ws", "isolated-write", &nothing).end().expect_code(0);
        let receipt = world.receipt("nothing");
        assert_eq!((&receipt["git"]["refs"], &receipt["git"]["worktree"]), (&json!([]), &Value::Null));
        assert_eq!(receipt["changes"], json!({ "commits": [], "files": [], "complete": true }));
        assert_eq!(refs(&world), BTreeMap::new(), "a reference of a run that changed nothing");
        assert_eq!(fs::read_dir(world.state().join("worktrees")).unwrap().count(), 0);

        let commits =
            working_stub(&world, "commits", "echo w >> top; git commit -qam \"w $RANDOM $RANDOM\" >&2");
        let mut runs = BTreeMap::new();
        for name in ["merged", "dirty", "unmerged"] {
            order(&world, name, "ws", "isolated-write", &commits).end().expect_code(0);
            runs.insert(name, world.receipt(name)["executionId"].as_str().unwrap().to_owned());
        }
        for name in ["merged", "dirty"] {
            let tip = format!("refs/stockade/{}/heads/main", runs[name]);
            git(&world.ws(), &["branch", name, &tip]);
        }
        world.give("ws");
        let tree = world.state().join("worktrees").join(&runs["dirty"]).join("tree");
        fs::write(tree.join("note of a person"), "keep me").unwrap();
        let ended = world.call(&["gc", "--remove", "--json"]).end().expect_code(0);
        let rows: Value = serde_json::from_str(&ended.stdout).unwrap();
        let of =
            |name: &str| rows.as_array().unwrap().iter().find(|r| r["run"] == runs[name].as_str()).unwrap();
        for (name, removed, why) in [
            ("merged", true, "clean, merged"),
            ("dirty", false, "files changed in it"),
            ("unmerged", false, "not merged"),
        ] {
            assert_eq!(of(name)["removed"], removed, "{name}: {rows:#}");
            assert!(of(name)["why"].as_str().unwrap().contains(why), "{name}: {rows:#}");
            assert_eq!(world.state().join("worktrees").join(&runs[name]).exists(), !removed, "{name}");
        }
    }
}

#[test]
fn uncommitted_changes_stay_out_with_a_note_or_come_along_when_asked() {
    for caller in Caller::both() {
        let world = scene(&caller);
        world.write("ws/top", "mine\n");
        world.write("ws/new", "new\n");
        world.write("ws/ignored", "secret\n");
        let before = files(&world.ws());
        let look = "{ git status --short; cat top; ls; } >&2; echo more > more";
        let agent = working_stub(&world, "looks", look);
        order(&world, "without", "ws", "isolated-write", &agent).end().expect_code(0);
        let receipt = world.receipt("without");
        assert_eq!(said(&receipt).lines().next(), Some("top"), "{}", said(&receipt));
        let notes = receipt["notes"].to_string();
        assert!(notes.contains("2 uncommitted changes") && notes.contains("--include-dirty"), "{notes}");

        order(&world, "with", "ws", "isolated-write", &agent).args(&["--include-dirty"]).end().expect_code(0);
        let receipt = world.receipt("with");
        let said = said(&receipt);
        assert!(said.starts_with(" M top\n?? new\nmine\n"), "{said}");
        assert!(!said.contains("ignored"), "{said}");
        assert_eq!(receipt["changes"]["files"].as_array().unwrap().len(), 1, "{:#}", receipt["changes"]);
        assert_eq!(receipt["changes"]["files"][0]["path"], "more");
        let names: Vec<_> = listed(&world, &receipt).into_keys().collect();
        assert_eq!(names, ["start", "worktree"]);
        let run = receipt["executionId"].as_str().unwrap().to_owned();
        let diff = world.call(&["receipt", "diff", &run]).end().expect_code(0).stdout;
        assert!(diff.contains("+++ b/more") && !diff.contains("b/new"), "{diff}");
        assert_same(&files(&world.ws()), &before, caller.name);
        for wrong in [&["--mode", "read-only"][..], &["--in-place"], &["--worktree", "named"]] {
            let call = order(&world, "wrong", "lane", "isolated-write", &agent).args(&["--include-dirty"]);
            let call = if wrong[0] == "--mode" {
                order(&world, "wrong", "lane", "read-only", &agent).args(&["--include-dirty"])
            } else {
                call.args(wrong)
            };
            call.end().expect_code(64);
        }
    }
}

#[test]
fn log_and_diff_work_in_a_lane_that_only_looks() {
    for caller in Caller::both() {
        let world = scene(&caller);
        world.write("ws/top", "changed\n");
        world.write("lane/top", "changed\n");
        let agent = working_stub(
            &world,
            "looks",
            "{ git log --oneline; git diff; git status --short; git config -l; } >&2",
        );
        for folder in ["ws", "lane", "sparse"] {
            let before = ["ws", "lane", "sparse"].map(|f| outside::picture(&world.path(f)));
            order(&world, folder, folder, "read-only", &agent).end().expect_code(0);
            let receipt = world.receipt(folder);
            let said = said(&receipt);
            assert!(
                said.contains(" one\n") && !said.contains("fatal"),
                "{folder} as {}: {said}",
                caller.name
            );
            assert_eq!(said.contains("+changed"), folder != "sparse", "{said}");
            assert!(!said.contains("token-4711"), "{said}");
            assert_eq!(["ws", "lane", "sparse"].map(|f| outside::picture(&world.path(f))), before);
            assert_eq!(receipt["git"], Value::Null);
            assert_eq!(fs::read_dir(world.state().join("worktrees")).unwrap().count(), 0);
        }
    }
}

#[test]
fn git_in_a_made_worktree_knows_every_file_without_reading_it() {
    // A plain tree is written by Stockade, one whose contents are converted by git.
    for (name, attributes) in [("own", "* text=auto\n"), ("by-git", "*.txt eol=crlf\n")] {
        for caller in Caller::both() {
            let world = scene(&caller);
            world.write("ws/.gitattributes", attributes);
            world.write("ws/lines.txt", "one\ntwo\n");
            world.write("ws/deep/er/run", "#!/bin/sh\n");
            fs::set_permissions(world.path("ws/deep/er/run"), fs::Permissions::from_mode(0o755)).unwrap();
            symlink("a/1", world.path("ws/link")).unwrap();
            git(&world.ws(), &["add", "."]);
            git(&world.ws(), &["commit", "-qm", "kinds"]);
            world.give("ws");
            // What the kernel says of each file is all that `diff-files` looks at.
            let look = "{ git diff-files; echo looked; git status --short; stat -c '%A %u:%g %n' deep/er/run top .; } >&2";
            let agent = working_stub(&world, "looks", look);
            order(&world, name, "ws", "isolated-write", &agent).end().expect_code(0);
            let receipt = world.receipt(name);
            let expected =
                "looked\n-rwxr-xr-x 1000:1000 deep/er/run\n-rw-r--r-- 1000:1000 top\ndrwxr-xr-x 1000:1000 .";
            assert_eq!(said(&receipt).trim(), expected, "{name} as {}", caller.name);
            assert_eq!(receipt["changes"]["files"], json!([]), "{name}");
        }
    }
}

#[test]
fn a_worktree_that_cannot_be_filled_is_refused_and_nothing_is_left() {
    for caller in Caller::both() {
        let world = scene(&caller);
        let object = git(&world.ws(), &["rev-parse", "HEAD:b/1"]);
        let (folder, name) = object.trim().split_at(2);
        fs::remove_file(world.ws().join(".git/objects").join(folder).join(name)).unwrap();
        let before = outside::picture(&world.ws());
        let agent = working_stub(&world, "works", "touch started");
        order(&world, "broken", "ws", "isolated-write", &agent).end().expect_code(66);
        let receipt = world.receipt("broken");
        assert_eq!(receipt["cause"]["code"], "git-prepare", "{:#}", receipt["cause"]);
        // Git's own words.
        assert!(receipt["cause"]["evidence"].to_string().contains(object.trim()), "{:#}", receipt["cause"]);
        assert_eq!(receipt["processStarted"], false);
        let mut after = outside::picture(&world.ws());
        after.retain(|path, _| !path.starts_with(".git/refs/stockade"));
        assert_same(&after, &before, caller.name);
        assert_eq!(refs(&world), BTreeMap::new());
        assert_eq!(fs::read_dir(world.state().join("worktrees")).unwrap().count(), 0);
    }
}

#[test]
fn other_kinds_of_repositories_work_too() {
    for caller in Caller::both() {
        let world = World::new(&caller);
        let source = world.path("source");
        stockade_tests::git::repository(&source);
        for n in 2..4 {
            fs::write(source.join("f.txt"), format!("{n}\n")).unwrap();
            git(&source, &["commit", "-qam", "more"]);
        }
        let url = format!("file://{}", source.display());
        let root = world.root().to_owned();
        git(&root, &["clone", "-q", "--depth", "2", &url, "shallow"]);
        git(&root, &["clone", "-q", &url, "detached"]);
        git(&root.join("detached"), &["checkout", "-q", "HEAD~1"]);
        git(&root, &["clone", "-q", "--bare", &url, "bare.git"]);
        git(&root.join("bare.git"), &["worktree", "add", "-q", "-b", "w", "../of-bare"]);
        git(&root, &["init", "-q", "--object-format=sha256", "-b", "main", "sha256"]);
        fs::write(root.join("sha256/f.txt"), "1\n").unwrap();
        git(&root.join("sha256"), &["add", "."]);
        git(&root.join("sha256"), &["commit", "-qm", "one"]);
        for folder in ["shallow", "detached", "bare.git", "of-bare", "sha256"] {
            world.give(folder);
        }
        let agent = working_stub(
            &world,
            "works",
            "{ echo x > x; git add x; git commit -qm x && git log --oneline; echo y > y; } >&2",
        );
        for folder in ["shallow", "detached", "of-bare", "sha256"] {
            order(&world, folder, folder, "isolated-write", &agent).end().expect_code(0);
            let receipt = world.receipt(folder);
            let refs = receipt["git"]["refs"].as_array().unwrap();
            assert_eq!(refs.len(), 2, "{folder}: {refs:#?}");
            let result = receipt["git"]["result"].as_str().unwrap();
            assert_eq!(git(&world.path(folder), &["show", &format!("{result}:y")]), "y\n", "{folder}");
            git(&world.path(folder), &["fsck", "--no-dangling"]);
        }
        order(&world, "bare", "bare.git", "isolated-write", &agent).end().expect_code(66);
        assert_eq!(world.receipt("bare")["cause"]["code"], "git-folder");
    }
}

#[test]
fn work_that_would_be_lost_is_refused_by_name_and_a_look_is_not() {
    type Prepare = fn(&World);
    let variants: [(&str, Prepare); 5] = [
        ("git-filters", |w| {
            w.write("ws/a/.gitattributes", "*.bin filter=lfs diff=lfs\n");
            git(&w.ws(), &["add", "a/.gitattributes"]);
            git(&w.ws(), &["commit", "-qm", "filtered"]);
        }),
        ("git-submodules", |w| {
            w.write("ws/.gitmodules", "[submodule \"s\"]\n\tpath = s\n");
        }),
        ("git-partial-clone", |w| {
            git(&w.ws(), &["config", "remote.o.promisor", "true"]);
        }),
        ("git-no-commit", |w| {
            git(&w.ws(), &["checkout", "-q", "--orphan", "fresh"]);
        }),
        ("git-reftable", |w| {
            git(&w.ws(), &["config", "core.repositoryformatversion", "1"]);
            git(&w.ws(), &["config", "extensions.refStorage", "files"]);
            let config = fs::read_to_string(w.path("ws/.git/config")).unwrap();
            w.write("ws/.git/config", config.replace("= files", "= reftable"));
        }),
    ];
    for caller in Caller::both() {
        for (code, prepare) in variants {
            let world = scene(&caller);
            git(&world.ws(), &["config", "--unset", "remote.o.url"]);
            prepare(&world);
            world.give("ws");
            let agent = working_stub(&world, "works", "touch started");
            let before = outside::picture(&world.ws());
            order(&world, "work", "ws", "isolated-write", &agent).end().expect_code(66);
            let receipt = world.receipt("work");
            assert_eq!(receipt["cause"]["code"], code, "{:#}", receipt["cause"]);
            assert_eq!(receipt["processStarted"], false);
            order(&world, "look", "ws", "read-only", &agent).end().expect_code(0);
            let mut after = outside::picture(&world.ws());
            after.retain(|path, _| !path.starts_with(".git/refs/stockade"));
            assert_same(&after, &before, code);
            let left = fs::read_dir(world.state().join("worktrees")).map_or(0, Iterator::count);
            assert_eq!(left, 0, "{code} left a worktree");
        }
    }
}

#[test]
fn git_that_others_could_have_put_on_path_is_not_run() {
    let world = scene(&Caller::fresh_user());
    let marks = world.folder("marks");
    let planted = world.script("first/git", &format!("#!/bin/sh\ntouch {}/ran\n", marks.display()));
    let agent = working_stub(&world, "works", "echo x >> top");
    let only = planted.parent().unwrap().display().to_string();
    order(&world, "none", "ws", "isolated-write", &agent).env("PATH", &only).end().expect_code(66);
    assert_eq!(world.receipt("none")["cause"]["code"], "git-missing");
    let both = format!("{only}:/usr/local/bin:/usr/bin:/bin");
    order(&world, "passed-over", "ws", "isolated-write", &agent).env("PATH", &both).end().expect_code(0);
    assert_eq!(world.receipt("passed-over")["git"]["refs"].as_array().unwrap().len(), 1);
    assert_eq!(fs::read_dir(&marks).unwrap().count(), 0);
    // The control: it would have left its mark.
    assert!(Command::new(&planted).status().unwrap().success());
    assert_eq!(fs::read_dir(&marks).unwrap().count(), 1);
}
