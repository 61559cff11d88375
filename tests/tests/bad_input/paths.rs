//! Folders and files that are worked in and written.

use std::{fs, os::unix::fs::symlink, path::Path, path::PathBuf, time::Duration};

use rustix::mount::MountFlags;
use serde_json::{Value, json};
use stockade_tests::{Caller, World, git, outside, stub};

use super::{mistake, order, refused, refused_with_receipt, shown, state_entries, with_errno};

#[test]
fn a_working_folder_that_is_none() {
    for caller in Caller::both() {
        let world = World::new(&caller);
        let missing = world.path("missing");
        let message = format!("`{}` cannot be used: no such file or directory", missing.display());
        let error = mistake("cwd-missing", "cwd", Some(&missing), &message, "check the path");
        refused(&world, order(&world, &[("--cwd", missing.to_str())]), 64, &with_errno(error, libc::ENOENT));

        let file = world.path("ws/README.md");
        let message = format!("`{}` is not a folder", file.display());
        let error =
            mistake("cwd-no-folder", "cwd", Some(&file), &message, "name the folder the agent is to work in");
        refused(&world, order(&world, &[("--cwd", file.to_str())]), 64, &error);
    }
}

/// A refusal of the workspace itself.
fn no_workspace(code: &str, message: &str, hint: &str) -> Value {
    let mut error = mistake(code, "workspace", None, message, hint);
    error["boundary"] = json!("workspace");
    error
}

#[test]
fn a_home_or_the_root_as_working_folder_is_refused_with_a_receipt() {
    for caller in Caller::both() {
        for mode in ["read-only", "isolated-write"] {
            let world = World::new(&caller);
            let home = world.home();
            let message = format!("`{0}` is or holds the home `{0}`", home.display());
            let error = no_workspace("workspace-is-home", &message, "use a folder of its own");
            let call = order(&world, &[("--cwd", home.to_str()), ("--mode", Some(mode))]);
            refused_with_receipt(&world, call, 66, "workspace-refused", &error);

            let world = World::new(&caller);
            let error =
                no_workspace("workspace-is-root", "`/` cannot be a workspace", "use a folder of its own");
            let call = order(&world, &[("--cwd", Some("/")), ("--mode", Some(mode))]);
            refused_with_receipt(&world, call, 66, "workspace-refused", &error);
        }
    }
}

#[test]
fn a_path_to_write_that_must_not_be_written() {
    for caller in Caller::both() {
        let world = World::new(&caller);
        let home = world.home();
        let state = world.state();
        let own = "name another folder, or move the state directory";
        symlink(world.ws(), world.path("out/link")).unwrap();
        let link = world.path("out/link");
        world.write("home/.ssh/id", "a key");
        world.give("home");
        let shown = |path: &Path| format!("`{}`", path.display());
        let one_by_one = "name the folders of the home that are needed, one by one";
        let narrower = "name narrower paths, such as ~/.cargo/bin, ~/.cargo/registry or ~/.rustup";
        for (path, code, message, hint) in [
            (
                "/".into(),
                "path-is-root",
                "`/` would show the whole host".into(),
                "name the folder that is needed".into(),
            ),
            (
                home.clone(),
                "path-is-home",
                format!("{0} is or holds the home {0}", shown(&home)),
                one_by_one.into(),
            ),
            (
                home.join(".ssh"),
                "path-holds-credentials",
                format!("{0} shows the credentials in {0}", shown(&home.join(".ssh"))),
                narrower.into(),
            ),
            (
                state.clone(),
                "path-holds-state",
                format!("{} holds or lies in Stockade's own state", shown(&state)),
                own.into(),
            ),
            (
                link.clone(),
                "path-is-link",
                format!("{} is a symbolic link", shown(&link)),
                format!("name what it points to: {}", shown(&world.ws())),
            ),
            (
                "/var/tmp".into(),
                "path-is-system",
                "`/var/tmp` is a folder of the system".to_owned(),
                "name a folder of its own".to_owned(),
            ),
        ] {
            let path: PathBuf = path;
            let error = mistake(code, "write", Some(&path), &message, &hint);
            refused(&world, order(&world, &[("--write", path.to_str())]), 64, &error);
        }
        let missing = world.path("out/nothing");
        let message = format!("{} cannot be used: no such file or directory", shown(&missing));
        let error = with_errno(
            mistake("write-missing", "write", Some(&missing), &message, "check the path"),
            libc::ENOENT,
        );
        refused(&world, order(&world, &[("--write", missing.to_str())]), 64, &error);
        assert!(!missing.exists());
    }
}

#[test]
fn a_folder_of_somebody_else_or_behind_a_link_is_not_written() {
    let world = World::new(&Caller::fresh_user());
    let others = world.path("outside");
    let belongs = format!("`{}` belongs to user 0", others.display());
    let error = mistake("path-of-another-owner", "write", Some(&others), &belongs, "name a path of your own");
    refused(&world, order(&world, &[("--write", others.to_str())]), 64, &error);
    let hint = "use a folder of your own, or start Stockade as its owner";
    let error = no_workspace("workspace-of-another-owner", &belongs, hint);
    let call = order(&world, &[("--cwd", others.to_str()), ("--mode", Some("isolated-write"))]);
    refused_with_receipt(&world, call, 66, "workspace-refused", &error);

    for caller in Caller::both() {
        let world = World::new(&caller);
        let link = world.path("out/link");
        symlink(world.ws(), &link).unwrap();
        let message = format!("`{}` is a symbolic link", link.display());
        let hint = format!("name the folder itself: `{}`", world.ws().display());
        let error = no_workspace("workspace-is-link", &message, &hint);
        let call = order(&world, &[("--cwd", link.to_str()), ("--mode", Some("isolated-write"))]);
        refused_with_receipt(&world, call, 66, "workspace-refused", &error);
    }
}

#[test]
fn a_path_to_write_whose_owners_cannot_be_mapped_is_named_for_root() {
    let world = World::new(&Caller::root());
    let folder = |name: &str| world.folder(name).display().to_string();
    let [lower, upper, work] = ["lower", "upper", "work"].map(folder);
    let at = world.folder("merged");
    let options =
        std::ffi::CString::new(format!("lowerdir={lower},upperdir={upper},workdir={work}")).unwrap();
    rustix::mount::mount("overlay", &at, "overlay", MountFlags::empty(), options.as_c_str())
        .expect("this test needs overlayfs");
    let message =
        format!("the file system of `{}` cannot map owners, and the agent is not root", at.display());
    let hint = "name a path on the workspace's file system, or start Stockade as the path's owner";
    let error = mistake("path-cannot-map", "mount_setattr(IDMAP)", Some(&at), &message, hint);
    refused(&world, order(&world, &[("--write", at.to_str())]), 64, &with_errno(error, libc::EINVAL));
    rustix::mount::unmount(&at, rustix::mount::UnmountFlags::DETACH).unwrap();
}

#[test]
fn a_git_configuration_that_holds_a_credential_is_refused_with_a_receipt_that_does_not_repeat_it() {
    for caller in Caller::both() {
        let world = World::new(&caller);
        git::repository(&world.ws());
        git::git(&world.ws(), &["remote", "add", "o", "https://user:gh-secret-4711@example.invalid/x"]);
        world.give("ws");
        let message = "the repository's configuration holds a credential that the agent could read";
        let hint = "move it to a credential helper (`git config --unset KEY`), then run again";
        let error = no_workspace("credential-in-git-config", message, hint);
        // In place the configuration is visible; otherwise a private git folder stands before it.
        let call = order(&world, &[("--mode", Some("isolated-write"))]).args(&["--in-place"]);
        let receipt = refused_with_receipt(&world, call, 66, "workspace-refused", &error);
        assert_eq!(receipt["cause"]["evidence"], json!([".git/config: remote.o.url"]));
        assert!(!receipt.to_string().contains("gh-secret-4711"));
    }
}

#[test]
fn an_output_that_is_the_receipt_however_it_is_spelled() {
    for caller in Caller::both() {
        let world = World::new(&caller);
        let receipt = world.path("out/both");
        for output in ["both", "./both", "../out/both"] {
            let message = |path: &Path| {
                format!("reserve `{}`: another file of this order has the same path", path.display())
            };
            let call = order(&world, &[("--output", Some(output)), ("--receipt", receipt.to_str())]);
            let hint = "give `--output` and `--receipt` different paths";
            let error = mistake("same-path", "reserve", Some(&receipt), &message(&receipt), hint);
            refused(&world, call, 64, &error);
        }
    }
}

#[test]
fn an_output_or_a_receipt_that_the_agent_could_write() {
    for caller in Caller::both() {
        let world = World::new(&caller);
        let extra = world.folder("extra").display().to_string();
        world.folder("ws/deep");
        for (path, root) in [("ws/answer", "ws"), ("ws/deep/answer", "ws"), ("extra/answer", "extra")] {
            for flag in ["--output", "--receipt"] {
                let (path, root) = (world.path(path), world.path(root));
                let message = format!(
                    "check `{}`: the agent can write there: it is inside `{}`",
                    path.display(),
                    root.display()
                );
                let hint = "name a path outside the workspace and outside every `--write` path";
                let error = mistake("inside-writable-root", "check", Some(&path), &message, hint);
                let wrong =
                    [(flag, path.to_str()), ("--mode", Some("isolated-write")), ("--write", Some(&*extra))];
                refused(&world, order(&world, &wrong), 64, &error);
            }
        }
    }
}

#[test]
fn a_receipt_that_is_there_already_stays_as_it_is() {
    for caller in Caller::both() {
        let world = World::new(&caller);
        let there = world.path("out/there");
        let hint = "name a path where nothing is yet; existing files are never overwritten";
        let error = |what: &str| {
            let message = format!("create `{}`: {what} is there already", there.display());
            mistake("path-exists", "create", Some(&there), &message, hint)
        };
        world.write("out/there", "a receipt of last year\n");
        for flag in ["--receipt", "--output"] {
            // `refused` compares everything in the folder, byte for byte.
            refused(&world, order(&world, &[(flag, there.to_str())]), 64, &error("something"));
        }
        fs::remove_file(&there).unwrap();
        symlink(world.path("out/nowhere"), &there).unwrap();
        refused(
            &world,
            order(&world, &[("--receipt", there.to_str())]),
            64,
            &error("a symbolic link to nothing"),
        );
    }
}

#[test]
fn a_folder_with_credentials_to_read_is_refused_and_narrower_ones_are_named() {
    for caller in Caller::both() {
        let world = World::new(&caller);
        world.folder("home/.cargo");
        world.write("home/.cargo/credentials.toml", "[registry]\ntoken = \"t\"\n");
        let cargo = world.path("home/.cargo");
        let shown = cargo.display();
        let message = format!("`{shown}` shows the credentials in `{shown}/credentials.toml`");
        let hint = format!("name narrower paths: `{shown}/bin`, `{shown}/registry`");
        let error = mistake("path-holds-credentials", "read", Some(&cargo), &message, &hint);
        refused(&world, order(&world, &[("--read", cargo.to_str())]), 64, &error);
    }
}

#[test]
fn a_second_order_with_the_paths_of_a_running_one() {
    for caller in Caller::both() {
        let world = World::new(&caller);
        let go_on = world.folder("go-on");
        let waits = world.stub(
            "waits",
            &format!(
                "until [ -e {}/now ]; do sleep 0.02; done\nsay '{}'",
                go_on.display(),
                stub::success("First.")
            ),
        );
        let flags = [("--executable", waits.to_str()), ("--read", go_on.to_str())];
        let first = order(&world, &flags).start();
        let receipt = world.path("out/receipt.json");
        outside::wait_until("the first order is reserved", || receipt.exists());
        let reserved = fs::read(&receipt).unwrap();
        let second = order(&world, &[]).end().expect_code(64);
        assert_eq!(shown(&second)["code"], "path-exists", "{}", second.stderr);
        assert_eq!(fs::read(&receipt).unwrap(), reserved, "the reservation is the first order's");
        assert_eq!(state_entries(&world, "runs").len(), 1);
        fs::write(go_on.join("now"), "").unwrap();
        first.wait(Duration::from_secs(20)).expect_code(0);
        assert_eq!(fs::read_to_string(world.path("out/answer")).unwrap(), "First.");
        assert_eq!(stockade_tests::run::read_json(&receipt)["status"], "complete");
    }
}
