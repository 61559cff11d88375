//! The repository and the host stay as they were.

use std::{
    collections::BTreeMap, fs, os::unix::fs::PermissionsExt as _, sync::atomic::AtomicBool,
    sync::atomic::Ordering, time::Duration,
};

use rustix::process::Signal;
use serde_json::{Value, json};
use stockade_tests::{Caller, git::git, outside};

use super::{KEY, WORK, assert_same, order, refs, repository, said, scene, status, working_stub};

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
