//! What is refused before anything is made.

use std::{collections::BTreeMap, fs, os::unix::fs::symlink, process::Command, time::Duration};

use serde_json::json;
use stockade_tests::{Caller, World, git::git, outside};

use super::{assert_same, order, refs, scene, working_stub};

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
