//! A kernel that answers nonsense: calls that say they did what they did not, errors that nobody lists, files of /proc with
//! anything in them. A run is refused by name before the agent starts, or stands on a rung that holds; the host does not
//! change, and nothing is made in the workspace of a run that was refused.
//!
//! The answers come from a filter in place of the kernel, or from files mounted over those of /proc. Needs root, to become
//! another user and to mount.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test: a panic is how it fails")]

use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt as _, path::PathBuf, time::Duration};

use stockade_tests::{
    Caller, World, outside,
    run::{Call, Ended},
    rungs::WITHOUT,
    stub,
};

/// An endpoint that nobody serves: the stub never asks.
const ENDPOINT: &str = "http://127.0.0.1:9/v1";
/// However odd the answers are, somebody is told in this time.
const LIMIT: Duration = Duration::from_secs(10);

/// A world with a stub that tries to get out and says that all went well.
struct Stage {
    world: World,
    agent: PathBuf,
    read: PathBuf,
}

impl Stage {
    fn new(caller: &Caller) -> Self {
        let world = World::new(caller);
        fs::set_permissions(world.path("outside"), fs::Permissions::from_mode(0o777)).unwrap();
        world.folder("read");
        let read = world.write("read/only", "to be read\n").parent().unwrap().to_owned();
        let body = format!(
            "echo in > inside\nfor at in {outside}/out {home}/out {read}/out /..{outside}/out /../oldroot{outside}/out; do echo out > $at; done\n\
             cat {outside}/secret /..{outside}/secret /../oldroot{outside}/secret > secret 2>/dev/null\n\
             cat /proc/self/status > status\nsay '{init}'\nsay '{end}'",
            outside = world.path("outside").display(),
            home = world.home().display(),
            read = read.display(),
            init = stub::INIT,
            end = stub::success("done"),
        );
        let agent = world.stub("curious", &body);
        Self { world, agent, read }
    }

    fn order(&self, args: &[&str]) -> Call<'_> {
        let agent = self.agent.display().to_string();
        let read = self.read.display().to_string();
        self.world
            .run("r", &["--provider", "grok", "--provider-sandbox", "replace", "--model", "m"])
            .args(&["--mode", "isolated-write", "--endpoint", ENDPOINT, "--executable", &agent])
            .args(&["--read", &read])
            .args(args)
    }

    /// What nobody but the caller may change.
    fn picture(&self) -> Vec<BTreeMap<PathBuf, String>> {
        ["home", "outside", "read", "stubs"].map(|f| outside::picture(&self.world.path(f))).into()
    }

    /// A named refusal before the start, or a fence that held.
    #[track_caller]
    fn assert_refused_or_held(&self, what: &str, call: Call<'_>) -> Verdict {
        let (before, workspace) = (self.picture(), outside::picture(&self.world.ws()));
        let ended = call.start().wait(Duration::from_secs(60));
        assert!(ended.elapsed < LIMIT, "{what}: {:?}", ended.elapsed);
        assert_eq!(self.picture(), before, "{what}: something changed outside");
        outside::wait_for_no_process_fenced_for(&self.world, Duration::from_secs(2));
        let verdict = match ended.status.code() {
            Some(0) => self.held(what),
            Some(64..=74) => {
                let now = outside::picture(&self.world.ws());
                assert_eq!(now, workspace, "{what}: something was made in the workspace");
                self.refused(what, &ended)
            }
            other => panic!("{what}: {other:?}: {}", ended.stderr),
        };
        for file in ["r.receipt.json", "r.answer"] {
            drop(fs::remove_file(self.world.path("out").join(file)));
        }
        verdict
    }

    #[track_caller]
    fn held(&self, what: &str) -> Verdict {
        let receipt = self.world.receipt("r");
        assert_eq!(receipt["status"], "complete", "{what}: {receipt:#}");
        assert_eq!(receipt["tree"]["gone"], true, "{what}");
        let read = |name: &str| fs::read_to_string(self.world.ws().join(name)).unwrap();
        assert_eq!((read("inside").as_str(), read("secret").as_str()), ("in\n", ""), "{what}");
        let status = read("status");
        for line in ["CapEff:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"] {
            assert!(status.contains(line), "{what}: {line}: {status}");
        }
        for name in ["inside", "secret", "status"] {
            fs::remove_file(self.world.ws().join(name)).unwrap();
        }
        Verdict::Held(receipt["fence"]["rung"].as_str().unwrap().to_owned())
    }

    /// By a step that was not taken, never by a receipt without a cause.
    #[track_caller]
    fn refused(&self, what: &str, ended: &Ended) -> Verdict {
        let path = self.world.path("out/r.receipt.json");
        if !path.exists() {
            // What is wrong with an order is told without a receipt.
            assert!(ended.stderr.contains(':'), "{what}: {ended:?}");
            return Verdict::Refused(ended.stderr.clone());
        }
        let receipt = self.world.receipt("r");
        let cause = &receipt["cause"];
        assert_eq!(receipt["processStarted"], false, "{what}: {receipt:#}");
        assert_eq!(receipt["failurePhase"], "preflight", "{what}: {receipt:#}");
        for field in ["code", "boundary", "step", "message", "remedy"] {
            assert!(cause[field].as_str().is_some_and(|text| !text.is_empty()), "{what}: {cause:#}");
        }
        Verdict::Refused(format!("{} {}", cause["code"].as_str().unwrap(), cause["step"].as_str().unwrap()))
    }
}

/// As root and as a fresh user at the same time.
fn as_both(test: impl Fn(&Caller) + Sync) {
    std::thread::scope(|scope| {
        for caller in Caller::both() {
            let test = &test;
            scope.spawn(move || test(&caller));
        }
    });
}

/// What came of it.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Held(String),
    Refused(String),
}

/// Calls of which each answers 0 and does nothing, or an error that none of them gives.
const CALLS: [&str; 22] = [
    "clone-newuser",
    "fchdir",
    "chdir",
    "pivot_root",
    "umount2",
    "mount",
    "move_mount",
    "mount_setattr",
    "open_tree",
    "fsopen",
    "fsconfig",
    "fsmount",
    "setresuid",
    "setresgid",
    "setgroups",
    "prctl",
    "capset",
    "seccomp",
    "keyctl",
    "close_range",
    "landlock",
    "uname",
];

#[test]
fn a_call_that_did_nothing_or_fails_oddly_is_a_named_refusal_or_does_no_harm() {
    as_both(|caller| {
        for answer in ["0", "EILSEQ"] {
            for call in CALLS {
                let class: &'static str = format!("{call}={answer}").leak();
                let stage = Stage::new(&caller.clone().on(&[class]));
                let what = format!("{class} as {}", caller.name);
                stage.assert_refused_or_held(&what, stage.order(&[]));
            }
        }
    });
}

/// Files of /proc, and what stands in them.
const FILES: [(&str, &str); 10] = [
    ("/proc/self/cgroup", "0::/../../../..\n9:memory:relative\n:::\n\u{fffd}"),
    ("/proc/self/cgroup", ""),
    ("/proc/self/mountinfo", "1 2 3\n- cgroup2\n36 35 98:0 / /sys/fs/cgroup rw - cgroup2 - \n"),
    ("/proc/self/mountinfo", "\u{0}\u{0}\u{0}"),
    ("/proc/self/status", "Uid:\tnobody\nSeccomp:\t-1\nNoNewPrivs\n"),
    ("/proc/self/status", ""),
    ("/proc/sys/kernel/overflowuid", "-1\n"),
    ("/proc/sys/kernel/pid_max", "many\n"),
    ("/proc/sys/kernel/io_uring_disabled", "\u{fffd}"),
    ("/proc/sys/kernel/osrelease", "latest\n"),
];

/// Mounts a file over another for the program that follows. Its pid stays, so that `/proc/self` is the same.
fn covered(world: &World, file: &str, content: &str) -> Vec<String> {
    let odd = world.path("out/odd");
    fs::write(&odd, content).unwrap();
    fs::set_permissions(&odd, fs::Permissions::from_mode(0o644)).unwrap();
    let script = "mount --bind \"$0\" \"$1\" && shift && exec \"$@\"";
    let words = ["unshare", "-m", "sh", "-c", script, &odd.display().to_string(), file];
    words.map(str::to_owned).into()
}

#[test]
fn a_file_of_proc_with_anything_in_it_is_a_named_refusal_or_does_no_harm() {
    as_both(|caller| {
        for (at, (file, content)) in FILES.iter().enumerate() {
            let stage = Stage::new(caller);
            let through = covered(&stage.world, file, content);
            let what = format!("{file} ({at}) as {}", caller.name);
            let verdict = stage.assert_refused_or_held(&what, stage.order(&[]).through(&through));
            // Where part of it is covered the kernel gives no fresh one; a process's own files do not count.
            let expected = if file.starts_with("/proc/self") {
                Verdict::Held("nsl".to_owned())
            } else {
                Verdict::Refused("guarantee-missing guarantee process-visibility".to_owned())
            };
            assert_eq!(verdict, expected, "{what}");
            let args = ["--rung", "ns-hostproc", WITHOUT[0], WITHOUT[1]];
            stage.assert_refused_or_held(&what, stage.order(&args).through(&through));
        }
    });
}

#[test]
fn a_release_that_is_no_version_of_today_is_refused_as_the_platform() {
    as_both(|caller| {
        let stage = Stage::new(caller);
        let through = ["setarch", "--uname-2.6"].map(str::to_owned);
        let verdict = stage.assert_refused_or_held(caller.name, stage.order(&[]).through(&through));
        assert_eq!(verdict, Verdict::Refused("platform uname(release)".to_owned()));
    });
}
