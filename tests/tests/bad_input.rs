//! What bad input gets: an exit code, an error that says what is wrong and what to do, and nothing half-made.
//!
//! An order that cannot be carried out as it stands leaves nothing at all; one that was accepted and then refused leaves
//! its receipt and its run directory. Needs root, to become another user and to mount small file systems.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test: a panic is how it fails")]

use std::{
    collections::BTreeMap,
    ffi::CString,
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use serde_json::{Value, json};
use stockade_tests::{Caller, Ended, World, git, outside, run::Call, stub};

/// Nobody listens there, and nobody has to: these orders end before a model is asked.
const ENDPOINT: &str = "http://127.0.0.1:9/v1";

/// What is wrong with an order: flags in place of those of a good one. `None` leaves a flag out.
type Wrong<'a> = &'a [(&'a str, Option<&'a str>)];

/// A good order of a stub, changed.
fn order<'w>(world: &'w World, wrong: Wrong<'_>) -> Call<'w> {
    let stub = world.stub_lines("good", &[stub::INIT, &stub::success("Done.")]);
    let path = |relative: &str| world.path(relative).display().to_string();
    let mut flags: BTreeMap<&str, Option<String>> = BTreeMap::from([
        ("--provider", Some("grok".to_owned())),
        ("--provider-sandbox", Some("replace".to_owned())),
        ("--model", Some("m".to_owned())),
        ("--executable", Some(stub.display().to_string())),
        ("--endpoint", Some(ENDPOINT.to_owned())),
        ("--cwd", Some(path("ws"))),
        ("--prompt", Some(world.write("out/prompt.md", "Do it.\n").display().to_string())),
        ("--output", Some(path("out/answer"))),
        ("--receipt", Some(path("out/receipt.json"))),
    ]);
    flags.extend(wrong.iter().map(|(flag, value)| (*flag, value.map(str::to_owned))));
    let args: Vec<String> =
        flags.into_iter().filter_map(|(flag, value)| Some([flag.to_owned(), value?])).flatten().collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    world.call(&["run", "--json"]).args(&args)
}

/// The one JSON object on standard error.
#[track_caller]
fn shown(ended: &Ended) -> Value {
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
    serde_json::from_str(&ended.stderr).unwrap_or_else(|e| panic!("{e}: {}", ended.stderr))
}

/// What a mistake in the order looks like; `boundary` is `order` and there is no error number, unless changed.
fn mistake(code: &str, step: &str, path: Option<&Path>, message: &str, hint: &str) -> Value {
    json!({ "code": code, "boundary": "order", "step": step, "errno": null, "path": path, "message": message, "hint": hint })
}

fn with_errno(mut error: Value, errno: i32) -> Value {
    error["errno"] = json!(errno);
    error
}

/// Everything that an order could leave behind.
fn traces(world: &World) -> [BTreeMap<PathBuf, String>; 4] {
    ["out", "ws", "home", "outside"].map(|folder| outside::picture(&world.path(folder)))
}

/// The entries of a folder of the state directory.
fn state_entries(world: &World, folder: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir(world.state().join(folder)) else { return Vec::new() };
    entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
}

/// Makes the call; it has to be refused like this and to leave nothing.
#[track_caller]
fn refused(world: &World, call: Call<'_>, exit: i32, error: &Value) {
    let before = traces(world);
    let ended = call.end();
    assert_eq!((ended.code(), &shown(&ended)), (exit, error), "as {}", world.caller.name);
    assert_eq!(ended.stdout, "");
    assert_eq!(traces(world), before, "something was left");
    let (runs, homes) = (state_entries(world, "runs"), state_entries(world, "homes"));
    assert_eq!((runs.len(), homes.len()), (0, 0), "{runs:?} {homes:?}");
}

/// Makes the call; it has to end like this, with a receipt, but before an agent was started.
#[track_caller]
fn refused_with_receipt(world: &World, call: Call<'_>, exit: i32, status: &str, error: &Value) -> Value {
    let ended = call.end();
    assert_eq!((ended.code(), &shown(&ended)), (exit, error), "as {}", world.caller.name);
    let receipt = stockade_tests::run::read_json(&world.path("out/receipt.json"));
    assert_eq!(serde_json::from_str::<Value>(&ended.stdout).unwrap(), receipt);
    assert_eq!(
        (&receipt["status"], &receipt["processStarted"]),
        (&json!(status), &json!(false)),
        "{receipt:#}"
    );
    let cause = &receipt["cause"];
    for (shown, kept) in
        [("code", "code"), ("boundary", "boundary"), ("message", "message"), ("hint", "remedy")]
    {
        assert_eq!(error[shown], cause[kept], "{receipt:#}");
    }
    assert!(!world.path("out/answer").exists());
    assert_eq!((state_entries(world, "runs").len(), state_entries(world, "homes").len()), (1, 0));
    receipt
}

#[test]
fn a_prompt_that_is_not_there_or_says_nothing() {
    for caller in Caller::both() {
        let world = World::new(&caller);
        let missing = world.path("out/missing.md");
        let message = format!("prompt `{}` cannot be read: no such file or directory", missing.display());
        let error = mistake(
            "prompt-unreadable",
            "prompt",
            Some(&missing),
            &message,
            "check the path and its permissions",
        );
        refused(
            &world,
            order(&world, &[("--prompt", missing.to_str())]),
            64,
            &with_errno(error, libc::ENOENT),
        );

        let says_nothing = "write what the agent is to do into the file named by `--prompt`";
        let error = mistake("prompt-empty", "prompt", None, "the prompt is empty", says_nothing);
        for text in ["", " \n\t\n"] {
            let empty = world.write("out/empty.md", text);
            refused(&world, order(&world, &[("--prompt", empty.to_str())]), 64, &error);
            refused(&world, order(&world, &[("--prompt", Some("-"))]).stdin(text.as_bytes()), 64, &error);
        }

        let folder = world.path("ws");
        let message = format!("prompt `{}` is not a regular file", folder.display());
        let error = mistake("prompt-no-file", "prompt", Some(&folder), &message, "name a file");
        refused(&world, order(&world, &[("--prompt", folder.to_str())]), 64, &error);
    }
}

#[test]
fn a_file_that_the_caller_may_not_read() {
    let world = World::new(&Caller::fresh_user());
    let of_root = world.path("out/of-root.md");
    fs::write(&of_root, "secret of root\n").unwrap();
    fs::set_permissions(&of_root, fs::Permissions::from_mode(0o600)).unwrap();
    for (flag, what) in [("--prompt", "prompt"), ("--instructions", "instructions")] {
        let message = format!("{what} `{}` cannot be read: permission denied", of_root.display());
        let code = format!("{what}-unreadable");
        let error = mistake(&code, what, Some(&of_root), &message, "check the path and its permissions");
        refused(&world, order(&world, &[(flag, of_root.to_str())]), 64, &with_errno(error, libc::EACCES));
    }
}

#[test]
fn a_prompt_over_a_limit() {
    const REMEDY: &str = "put the material into files of the workspace and name them in the prompt";
    for caller in Caller::both() {
        let world = World::new(&caller);
        let big = world.write("out/big.md", vec![b'x'; 8 * 1024 * 1024 + 1]);
        let message = format!("prompt `{}` has 8388609 bytes; at most 8388608 are taken", big.display());
        let error = mistake("prompt-too-large", "prompt", Some(&big), &message, REMEDY);
        refused(&world, order(&world, &[("--prompt", big.to_str())]), 64, &error);

        let message = "the prompt has 8388609 bytes; Grok Build takes at most 8388608";
        let error = mistake("prompt-too-large", "prompt", None, message, REMEDY);
        let piped = order(&world, &[("--prompt", Some("-"))]).stdin(&fs::read(&big).unwrap());
        refused(&world, piped, 64, &error);

        let built_in = include_str!("../../crates/stockade-providers/profiles/grok.toml");
        let limit = "prompt_limit_bytes = 8_388_608";
        assert!(built_in.contains(limit), "the profile states its limit in another way now");
        let profile = world.write("out/small.toml", built_in.replace(limit, "prompt_limit_bytes = 100"));
        let medium = world.write("out/medium.md", vec![b'x'; 101]);
        let message = "the prompt has 101 bytes; Grok Build takes at most 100";
        let error = mistake("prompt-too-large", "prompt", None, message, REMEDY);
        let call = order(&world, &[("--prompt", medium.to_str()), ("--profile", profile.to_str())]);
        refused(&world, call, 64, &error);
    }
}

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
fn names_that_nobody_knows() {
    for caller in Caller::both() {
        let world = World::new(&caller);
        let names: Vec<&str> = stockade_providers::built_in().iter().map(|provider| provider.name).collect();
        let known = format!("one of: {}", names.join(", "));
        let error = mistake("provider-unknown", "provider", None, "there is no provider `grokk`", &known);
        refused(&world, order(&world, &[("--provider", Some("grokk"))]), 64, &error);

        let one_of = "one of: low, medium, high, xhigh";
        let error = mistake("effort-unknown", "effort", None, "Grok Build has no effort `bogus`", one_of);
        refused(&world, order(&world, &[("--effort", Some("bogus"))]), 64, &error);

        let hint = "use letters, digits and `-._:/@+` only, 200 at most";
        let error = mistake("model-name", "model", None, "`grok\"\n` is no model name", hint);
        refused(&world, order(&world, &[("--model", Some("grok\"\n"))]), 64, &error);

        let config = world.write(
            "home/.config/stockade/config.toml",
            "[defaults]\nmode = \"read-only\"\ntimeot = \"1m\"\n",
        );
        let message = format!(
            "`{}` line 3: unknown field `timeot`, expected one of `provider`, `mode`, `timeout`, `idle_timeout`, \
             `network`, `allow`, `provider_sandbox`, `max_processes`, `max_memory`, `max_open_files`, `max_file_size`, \
             `max_temp`, `max_growth`, `max_output`, `max_turns`, `max_tokens`, `max_cost`, `require_limits`, `rung`",
            config.display()
        );
        let error = mistake(
            "config",
            "config",
            Some(&config),
            &message,
            "correct that line; unknown keys are errors",
        );
        refused(&world, order(&world, &[]), 64, &error);
    }
}

#[test]
fn flags_that_do_not_go_together() {
    for caller in Caller::both() {
        let world = World::new(&caller);
        let message =
            "`--json` prints the receipt on standard output, so that the answer needs a place of its own";
        let error = mistake("json-needs-output", "json-needs-output", None, message, "add `--output FILE`");
        refused(&world, order(&world, &[("--output", None)]), 64, &error);

        let message = "`--json` and `--events -` both want standard output";
        let error =
            mistake("json-and-events", "json-and-events", None, message, "write the events to a file");
        refused(&world, order(&world, &[("--events", Some("-"))]), 64, &error);

        let message = "`--network none` leaves the agent without its model";
        let error = mistake("network-none", "network", None, message, "use `--network model`, the default");
        refused(&world, order(&world, &[("--network", Some("none"))]), 64, &error);

        let message = "`MY_KEY` holds the run's credential, which never enters the fence";
        let hint = "leave it out: the gateway adds the key to each model call";
        let error = mistake("env-credential", "env", None, message, hint);
        let call = order(&world, &[("--env", Some("MY_KEY")), ("--key-env", Some("MY_KEY"))])
            .env("MY_KEY", "k-4711");
        refused(&world, call, 64, &error);

        let message = "`http://example.invalid/v1` would carry the prompt and the key unencrypted";
        let error = mistake(
            "endpoint-plaintext",
            "endpoint",
            None,
            message,
            "use https; plain http is for loopback only",
        );
        refused(&world, order(&world, &[("--endpoint", Some("http://example.invalid/v1"))]), 64, &error);
    }
}

#[test]
fn arguments_that_cannot_be_read_are_json_too() {
    let world = World::new(&Caller::root());
    for wrong in [
        ("--timeout", Some("5 parsecs")),
        ("--mode", Some("read-write")),
        ("--colour", Some("x")),
        ("--rung", Some("nslx")),
        ("--accept-missing", Some("everything")),
    ] {
        let call = order(&world, &[wrong]);
        let before = traces(&world);
        let ended = call.end().expect_code(64);
        let error = shown(&ended);
        let keys: Vec<_> = error.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, ["boundary", "code", "errno", "hint", "message", "path", "step"]);
        assert_eq!((&error["code"], &error["boundary"]), (&json!("arguments"), &json!("order")));
        assert!(error["message"].as_str().unwrap().contains(wrong.0), "{error}");
        assert_eq!(traces(&world), before);
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
fn neither_an_endpoint_nor_a_key() {
    for caller in Caller::both() {
        let world = World::new(&caller);
        let message = "no endpoint and no key: Grok Build has nothing to talk to";
        let hint = "name the variable that holds a key with `--key-env NAME` (keys are made at https://console.x.ai), or \
                    an endpoint of your own with `--endpoint URL`; logins are not supported yet";
        let mut error = mistake("key-missing", "key", None, message, hint);
        error["boundary"] = json!("credential");
        refused_with_receipt(&world, order(&world, &[("--endpoint", None)]), 77, "unauthenticated", &error);
    }
}

/// A file system mounted on a folder, unmounted at the end.
struct Mounted(PathBuf);

impl Mounted {
    /// A small one in memory that belongs to the caller.
    fn tmpfs(world: &World, at: &Path, flags: MountFlags) -> Self {
        let options = CString::new(format!("mode=700,uid={0},gid={0},size=512k", world.caller.uid)).unwrap();
        mount("none", at, "tmpfs", flags, Some(options.as_c_str())).unwrap();
        Self(at.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let done = unmount(&self.0, UnmountFlags::DETACH);
        assert!(done.is_ok() || std::thread::panicking(), "{} stays mounted: {done:?}", self.0.display());
    }
}

fn no_storage(path: &Path, errno: i32, message: &str, hint: &str) -> Value {
    let mut error = mistake("storage-failed", "create", Some(path), message, hint);
    error["boundary"] = json!("storage");
    with_errno(error, errno)
}

#[test]
fn a_state_directory_that_cannot_be_written() {
    for caller in Caller::both() {
        let world = World::new(&caller);
        let mounted = Mounted::tmpfs(&world, &world.state(), MountFlags::RDONLY);
        let runs = world.state().join("runs");
        let message = format!("create `{}`: Read-only file system (os error 30)", runs.display());
        let hint = "that file system is mounted read-only; name a path elsewhere";
        refused(&world, order(&world, &[]), 74, &no_storage(&runs, libc::EROFS, &message, hint));
        drop(mounted);

        fs::remove_dir(world.state()).unwrap();
        world.write("state/stockade", "a file\n");
        let message = format!("create `{}`: File exists (os error 17)", world.state().display());
        let hint = "something else stands where a folder is needed; move it away";
        refused(&world, order(&world, &[]), 74, &no_storage(&world.state(), libc::EEXIST, &message, hint));
    }
    let world = World::new(&Caller::fresh_user());
    fs::set_permissions(world.state(), fs::Permissions::from_mode(0o500)).unwrap();
    let runs = world.state().join("runs");
    let message = format!("create `{}`: Permission denied (os error 13)", runs.display());
    let hint = "give the user who runs Stockade the right to that folder";
    refused(&world, order(&world, &[]), 74, &no_storage(&runs, libc::EACCES, &message, hint));
}

#[test]
fn a_full_disk_under_the_state_at_any_moment_of_a_run() {
    for caller in Caller::both() {
        let mut exits = Vec::new();
        for free_kib in [0, 4, 8, 12, 16, 24, 32, 48, 512] {
            let world = World::new(&caller);
            let _mounted = Mounted::tmpfs(&world, &world.state(), MountFlags::empty());
            fs::write(world.state().join("ballast"), vec![0; (512 - free_kib) * 1024]).unwrap();
            let ended = order(&world, &[]).end();
            let (code, receipt) = (ended.code(), world.path("out/receipt.json"));
            exits.push(code);
            let what = format!("{free_kib} KiB free as {}: {ended:?}", caller.name);
            if code == 0 {
                assert!(receipt.exists() && world.path("out/answer").exists(), "{what}");
                continue;
            }
            assert_eq!(code, 74, "{what}");
            let error = shown(&ended);
            assert_eq!(
                (&error["errno"], &error["boundary"]),
                (&json!(libc::ENOSPC), &json!("storage")),
                "{what}"
            );
            assert!(error["hint"].as_str().unwrap().starts_with("make room"), "{what}");
            if receipt.exists() {
                let receipt = stockade_tests::run::read_json(&receipt);
                assert_eq!(receipt["status"], "storage-failed", "{what}");
            } else {
                assert_eq!(state_entries(&world, "runs"), Vec::<String>::new(), "{what}");
            }
            assert_eq!(state_entries(&world, "homes"), Vec::<String>::new(), "{what}");
        }
        assert_eq!((exits.first(), exits.last()), (Some(&74), Some(&0)), "{exits:?}");
    }
}

fn executable_refused(code: &str, step: &str, path: &Path, message: &str, hint: &str) -> Value {
    let mut error = mistake(code, step, Some(path), message, hint);
    error["boundary"] = json!("executable");
    error
}

/// Orders the pinned Grok.
fn pinned(world: &World) -> Call<'_> {
    order(world, &[("--executable", None)])
}

#[test]
fn a_provider_that_is_not_installed() {
    for caller in Caller::both() {
        let world = World::new(&caller);
        let folder = world.state().join("providers/grok/1.0.41");
        let message = format!("find the provider: `{}`: grok@1.0.41 is not installed", folder.display());
        let error = executable_refused(
            "not-provisioned",
            "find the provider",
            &folder,
            &message,
            "stockade provision grok@1.0.41",
        );
        refused_with_receipt(&world, pinned(&world), 69, "unavailable-cli", &error);
    }
}

#[test]
fn a_provider_that_was_changed_in_one_byte_although_its_times_were_restored() {
    for caller in Caller::both() {
        let world = World::with_own_provider(&caller, "grok");
        let path = world.state().join("providers/grok/1.0.41/grok");
        let (mut bytes, meta) = (fs::read(&path).unwrap(), fs::metadata(&path).unwrap());
        // The file is shared with other tests: it is replaced, not written.
        fs::remove_file(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&path, &bytes).unwrap();
        fs::set_permissions(&path, meta.permissions()).unwrap();
        let times = fs::FileTimes::new().set_modified(meta.modified().unwrap());
        fs::File::options().read(true).open(&path).unwrap().set_times(times).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), meta.modified().unwrap());
        let receipt = refused_provider(&world);
        assert_eq!(receipt["cause"]["evidence"], json!([path]), "{receipt:#}");
    }
}

#[test]
fn a_provider_whose_folder_is_a_link() {
    for caller in Caller::both() {
        let world = World::with_own_provider(&caller, "grok");
        let folder = world.state().join("providers/grok/1.0.41");
        let moved = world.path("elsewhere");
        fs::rename(&folder, &moved).unwrap();
        symlink(&moved, &folder).unwrap();
        let receipt = refused_provider(&world);
        assert_eq!(receipt["cause"]["evidence"], json!([folder]), "{receipt:#}");
    }
}

/// Orders the pinned Grok, which has to be refused as the wrong executable, with a remedy.
#[track_caller]
fn refused_provider(world: &World) -> Value {
    let ended = pinned(world).end().expect_code(72);
    let receipt = stockade_tests::run::read_json(&world.path("out/receipt.json"));
    assert_eq!(receipt["status"], "executable-refused", "{receipt:#}");
    let (error, cause) = (shown(&ended), &receipt["cause"]);
    assert_eq!((&error["code"], &error["boundary"]), (&json!("executable-refused"), &json!("executable")));
    assert!(cause["remedy"].as_str().unwrap().contains("stockade provision"), "{receipt:#}");
    assert_eq!((&receipt["processStarted"], &receipt["runtime"]), (&json!(false), &Value::Null));
    receipt
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
