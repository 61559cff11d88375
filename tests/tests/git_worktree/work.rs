//! What an agent does with git works and comes out.

use std::{fs, os::unix::fs::PermissionsExt as _, os::unix::fs::symlink};

use serde_json::{Value, json};
use stockade_tests::{Caller, World, git::git, outside};

use super::{WORK, assert_same, files, listed, order, repository, said, scene, status, working_stub};

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
