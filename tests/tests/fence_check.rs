//! `stockade fence check` on every class of host: the wall is sound, or it is refused by name, or the check says what is
//! wrong with it.
//!
//! Needs root, to become another user, git, and a kernel with Landlock and user namespaces. Each check makes what its
//! probes reach for in /tmp, and the host is looked at from outside afterwards.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test that starts the binary: a panic is how it fails"
)]

use std::{
    collections::BTreeSet,
    fs,
    io::Write as _,
    os::unix::net::UnixListener,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use serde_json::Value;
use stockade_core::{mode::AccessMode, survey::Rung};
use stockade_fence::probes::{KernelUser, Observation, PROBES, ProcessLimit, Setting};
use stockade_tests::{Caller, World, outside, world};

/// What a check may take. It takes three seconds on a machine that is not busy.
const LIMIT: Duration = Duration::from_secs(10);
/// The folders that a check makes begin so.
const FOLDERS: &str = "stockade-fence-check-";

/// A check that was run to its end.
struct Run {
    output: Output,
    elapsed: Duration,
}

impl Run {
    fn code(&self) -> i32 {
        self.output.status.code().unwrap_or(-1)
    }

    fn report(&self) -> Value {
        serde_json::from_slice(&self.output.stdout).unwrap_or_else(|e| panic!("{e}: {}", self.stderr()))
    }

    fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }
}

/// The command, for a caller on its host, through whatever else is around it.
fn command(world: &World, around: &[&str], arguments: &[&str]) -> Command {
    let caller = &world.caller;
    let uid = format!("new-uid={}", caller.uid);
    let mut words: Vec<String> = vec![world::helper_binary("host-class").display().to_string()];
    if caller.uid != 0 {
        words.push(uid);
    }
    words.extend(caller.classes.iter().map(|class| (*class).to_owned()));
    words.push("--".to_owned());
    words.extend(around.iter().map(|word| (*word).to_owned()));
    words.push(world::binary().display().to_string());
    words.extend(["fence", "check"].iter().chain(arguments).map(|word| (*word).to_owned()));
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).env_clear().env("HOME", world.home()).stdin(Stdio::null());
    command.env("PATH", std::env::var_os("PATH").unwrap());
    command
}

fn check(world: &World, around: &[&str], arguments: &[&str]) -> Run {
    let start = Instant::now();
    let output = command(world, around, arguments).output().unwrap();
    Run { output, elapsed: start.elapsed() }
}

/// Everything that checks leave behind has this in its name.
fn leftovers() -> BTreeSet<PathBuf> {
    let entries = ["/tmp", "/dev/shm", "/var/tmp", "/run/secrets"].into_iter().flat_map(fs::read_dir);
    let names = entries.flatten().flatten().map(|entry| entry.path());
    names.filter(|path| path.to_string_lossy().contains(FOLDERS) || is_token(path)).collect()
}

fn is_token(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("stockade-probe-"))
}

/// One check at a time, so that what one leaves is not taken for another's.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static LOCK: std::sync::Mutex<()> = std::sync::Mutex::new(());
    LOCK.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[track_caller]
fn assert_nothing_left(what: &str) {
    assert_eq!(leftovers(), BTreeSet::new(), "{what}");
    outside::wait_for_no_process_with("stockade-probes", Duration::from_secs(2));
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(FOLDERS), "{what}: {mounts}");
}

/// Every row of the table has its line in each mode, with what was expected and what was seen.
#[track_caller]
fn assert_like_the_table(what: &str, report: &Value, rung: Rung, user: KernelUser, modes: &[AccessMode]) {
    assert_eq!(report["rung"], rung.id(), "{what}");
    assert_eq!(report["nesting"], rung == Rung::NsNest, "{what}");
    // This kernel counts processes per place, where the place has its own /proc.
    let processes = match rung {
        Rung::NsHostproc | Rung::Bs => ProcessLimit::Watched,
        Rung::Nsl | Rung::Ns | Rung::NsNest => ProcessLimit::Enforced,
    };
    let lines = report["probes"].as_array().unwrap();
    assert_eq!(lines.len(), PROBES.len() * modes.len(), "{what}");
    for mode in modes {
        for probe in PROBES {
            let line = lines
                .iter()
                .find(|l| l["id"] == probe.id && l["mode"] == mode.id())
                .unwrap_or_else(|| panic!("{what}: {} is missing", probe.id));
            let seen = Observation {
                id: probe.id.to_owned(),
                observed: line["observed"].as_str().unwrap().to_owned(),
                detail: String::new(),
            };
            let setting = Setting { mode: *mode, rung, user, processes };
            assert!(probe.is_met_in(&setting, &seen.seen()), "{what}: {line}");
            assert_eq!(line["expected"], probe.expected_in(&setting).text(), "{what}: {line}");
            assert_eq!(line["guarantee"], probe.guarantee.id(), "{what}: {line}");
            assert_eq!(line["unexpected"], false, "{what}: {line}");
        }
    }
    assert_eq!(report["outside"], Value::Array(Vec::new()), "{what}");
    for guarantee in report["guarantees"].as_array().unwrap() {
        assert_eq!(guarantee["probes"], guarantee["passed"], "{what}: {guarantee}");
        let lacks = rung == Rung::NsHostproc && guarantee["id"] == "process-visibility";
        let missing = guarantee["held"] == false && guarantee["required"] == true;
        assert_eq!(missing, lacks, "{what}: {guarantee}");
    }
}

/// On a root host the payload has a user of its own.
fn user(caller: &Caller) -> KernelUser {
    if caller.uid == 0 { KernelUser::Another } else { KernelUser::Callers }
}

#[track_caller]
fn assert_sound(caller: &Caller, around: &[&str], rung: Rung) {
    let what = format!("{} on {:?} inside {around:?}", caller.name, caller.classes);
    let world = World::new(caller);
    let run = check(&world, around, &["--json"]);
    assert_eq!(run.code(), 0, "{what}: {}{}", String::from_utf8_lossy(&run.output.stdout), run.stderr());
    assert!(run.elapsed < LIMIT, "{what}: {:?}", run.elapsed);
    assert_like_the_table(&what, &run.report(), rung, user(caller), &AccessMode::ALL);
    assert_nothing_left(&what);
}

#[test]
fn on_a_plain_host_every_probe_ends_as_the_table_says_and_nothing_is_left() {
    let _alone = alone();
    for caller in Caller::both() {
        assert_sound(&caller, &[], Rung::Nsl);
    }
}

#[test]
fn without_landlock_the_second_rung_is_as_sound() {
    let _alone = alone();
    for caller in Caller::both() {
        for class in ["no-landlock", "landlock-eopnotsupp"] {
            assert_sound(&caller.clone().on(&[class]), &[], Rung::Ns);
        }
    }
}

/// bubblewrap, as other agents' sandboxes use it.
const BUBBLEWRAP: [&str; 12] = [
    "bwrap",
    "--bind",
    "/",
    "/",
    "--dev-bind",
    "/dev",
    "/dev",
    "--proc",
    "/proc",
    "--unshare-pid",
    "--unshare-ipc",
    "--",
];

#[test]
fn inside_bubblewrap_a_users_fence_is_sound_and_roots_is_refused_by_name() {
    let _alone = alone();
    assert_sound(&Caller::fresh_user(), &BUBBLEWRAP, Rung::Nsl);
    // As root bubblewrap covers parts of /proc; the kernel then gives no fresh one, and the host's shows its processes.
    let world = World::new(&Caller::root());
    assert_refused(&check(&world, &BUBBLEWRAP, &["--json"]), "guarantee process-visibility", None);
}

#[track_caller]
fn assert_refused(run: &Run, step: &str, errno: Option<i32>) {
    assert_eq!(run.code(), 71, "{}", run.stderr());
    let error: Value = serde_json::from_str(run.stderr().trim()).expect("an error in JSON");
    assert_eq!(
        (error["step"].as_str(), error["errno"].as_i64()),
        (Some(step), errno.map(i64::from)),
        "{error}"
    );
    assert!(error["hint"].is_string(), "{error}");
    assert!(run.output.stdout.is_empty());
    assert_nothing_left(step);
}

#[test]
fn where_no_fence_stands_the_step_is_named_and_nothing_is_made() {
    let _alone = alone();
    for caller in Caller::both() {
        for (class, step) in [("docker", "clone(NEWUSER)"), ("in-landlock", "mount(MS_PRIVATE)")] {
            let world = World::new(&caller.clone().on(&[class]));
            assert_refused(&check(&world, &[], &["--json"]), step, Some(libc::EPERM));
        }
        let spent = [
            "unshare",
            "-Ur",
            "sh",
            "-c",
            "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$@\"",
            "sh",
        ];
        assert_refused(
            &check(&World::new(&caller), &spent, &["--json"]),
            "clone(NEWUSER)",
            Some(libc::ENOSPC),
        );
    }
}

#[test]
fn one_mode_and_one_rung_can_be_asked_for() {
    let _alone = alone();
    let world = World::new(&Caller::fresh_user());
    let run = check(&world, &[], &["--json", "--mode", "read-only", "--rung", "ns"]);
    assert_eq!(run.code(), 0, "{}", run.stderr());
    assert_like_the_table("ns", &run.report(), Rung::Ns, KernelUser::Callers, &[AccessMode::ReadOnly]);
    let world = World::new(&Caller::fresh_user().on(&["no-landlock"]));
    let refused = check(&world, &[], &["--json", "--mode", "read-only", "--rung", "nsl"]);
    assert_refused(&refused, "landlock_create_ruleset", Some(libc::ENOSYS));
    assert_eq!(check(&world, &[], &["--rung", "none"]).code(), 64);
}

#[test]
fn every_other_rung_lets_through_what_the_table_says_and_nothing_else() {
    let _alone = alone();
    let both = [AccessMode::ReadOnly, AccessMode::IsolatedWrite];
    let checks: [(Rung, &[&str], &[AccessMode]); 3] = [
        (Rung::NsNest, &["--json", "--keep"], &both),
        (Rung::NsHostproc, &["--json", "--rung", "ns-hostproc", "--mode", "isolated-write"], &both[1..]),
        // Its writable workspace is a plain folder: the rows about git say so.
        (Rung::Bs, &["--json", "--rung", "bs"], &both),
    ];
    for caller in Caller::both() {
        for (rung, arguments, modes) in checks {
            let what = format!("{} on {}", caller.name, rung.id());
            let run = check(&World::new(&caller), &[], arguments);
            assert_eq!(
                run.code(),
                0,
                "{what}: {}{}",
                String::from_utf8_lossy(&run.output.stdout),
                run.stderr()
            );
            // bubblewrap maps no owners: as root the payload stays the caller's.
            let user = if rung == Rung::Bs { KernelUser::Callers } else { user(&caller) };
            assert_like_the_table(&what, &run.report(), rung, user, modes);
            assert_nothing_left(&what);
        }
    }
}

/// Starts a check in one mode, and does something to its folder again and again until it has ended.
fn while_checking(mode: &str, mut act: impl FnMut(&Path) + Send) -> Run {
    let world = World::new(&Caller::root());
    let start = Instant::now();
    let mut child = command(&world, &[], &["--json", "--mode", mode])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let ended = AtomicBool::new(false);
    let output = std::thread::scope(|scope| {
        scope.spawn(|| {
            let ending = format!("-{mode}");
            while !ended.load(Ordering::Relaxed) {
                let folder = leftovers().into_iter().find(|path| path.to_string_lossy().ends_with(&ending));
                if let Some(folder) = folder {
                    act(&folder);
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let output = read(&mut child);
        ended.store(true, Ordering::Relaxed);
        output
    });
    Run { output, elapsed: start.elapsed() }
}

fn read(child: &mut Child) -> Output {
    use std::io::Read as _;
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    child.stdout.take().unwrap().read_to_end(&mut stdout).unwrap();
    child.stderr.take().unwrap().read_to_end(&mut stderr).unwrap();
    Output { status: child.wait().unwrap(), stdout, stderr }
}

#[test]
fn a_hole_in_the_wall_is_found() {
    let _alone = alone();
    let mut listener = None;
    let run = while_checking("isolated-write", |folder| {
        let workspace = folder.join("wt/lane");
        // Made by a probe: the lane has been admitted, which a socket in its workspace would have prevented.
        if listener.is_none() && workspace.join("link").symlink_metadata().is_ok() {
            let made = UnixListener::bind(workspace.join("host.sock")).unwrap();
            fs::set_permissions(
                workspace.join("host.sock"),
                std::os::unix::fs::PermissionsExt::from_mode(0o777),
            )
            .unwrap();
            made.set_nonblocking(true).unwrap();
            listener = Some(made);
        }
        if let Some((mut stream, _)) = listener.as_ref().and_then(|l| l.accept().ok()) {
            stream.write_all(b"HELLO").unwrap();
        }
    });
    assert_eq!(run.code(), 70, "{}", run.stderr());
    let report = run.report();
    let unexpected: Vec<&Value> =
        report["probes"].as_array().unwrap().iter().filter(|p| p["unexpected"] == true).collect();
    assert_eq!(unexpected.len(), 1, "{unexpected:?}");
    assert_eq!(
        (&unexpected[0]["id"], &unexpected[0]["observed"], &unexpected[0]["expected"]),
        (&"U06".into(), &"allowed".into(), &"denied".into())
    );
    let network = report["guarantees"].as_array().unwrap().iter().find(|g| g["id"] == "network").unwrap();
    assert_eq!(network["passed"].as_u64().unwrap() + 1, network["probes"].as_u64().unwrap());
    assert_nothing_left("a hole");
}

#[test]
fn a_change_outside_is_found_though_every_probe_was_denied() {
    let _alone = alone();
    let run = while_checking("read-only", |folder| {
        // There may be no file yet, or no longer.
        if let Ok(mut file) = fs::OpenOptions::new().append(true).open(folder.join("home/.bashrc")) {
            let _written = file.write_all(b"#\n");
        }
    });
    assert_eq!(run.code(), 70, "{}", run.stderr());
    let report = run.report();
    assert!(report["probes"].as_array().unwrap().iter().all(|p| p["unexpected"] == false));
    let found = report["outside"].as_array().unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0]["what"].as_str().unwrap().ends_with("home/.bashrc` was changed"), "{found:?}");
    assert_nothing_left("a change");
}

#[test]
fn a_cancel_at_any_moment_leaves_nothing() {
    let _alone = alone();
    for caller in Caller::both() {
        for part in ["-outside", "-read-only", "-isolated-write"] {
            let world = World::new(&caller);
            let child =
                command(&world, &[], &["--json"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
            let mut child = child.unwrap();
            outside::wait_until("the part has begun", || {
                leftovers().iter().any(|path| path.to_string_lossy().ends_with(part))
            });
            let pid = rustix::process::Pid::from_child(&child);
            rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
            let output = read(&mut child);
            assert_eq!(output.status.code(), Some(130), "{part}: {output:?}");
            assert!(output.stdout.is_empty());
            assert_nothing_left(part);
        }
    }
}
