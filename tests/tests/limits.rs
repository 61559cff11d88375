//! Limits: what is enforced cannot be passed, what is only watched ends the run, that run alone, and the receipt says
//! which and how it was seen.
//!
//! Needs root, to become another user and to look into control groups.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test: a panic is how it fails"
)]

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use stockade_tests::{Caller, Ended, World, outside, run::Call, stub};

/// An endpoint that nobody serves: the stubs never ask.
const ENDPOINT: &str = "http://127.0.0.1:9/v1";
const MIB: u64 = 1 << 20;

/// A run of a stub in a mode with more arguments.
fn order<'w>(world: &'w World, name: &str, body: &str, mode: &str, args: &[&str]) -> Call<'w> {
    let agent = world.stub(name, body);
    let fixed = ["--provider", "grok", "--mode", mode, "--provider-sandbox", "replace", "--model", "m"];
    world
        .run(name, &fixed)
        .args(&["--endpoint", ENDPOINT, "--executable", agent.to_str().unwrap()])
        .args(args)
}

/// The body of a stub that does this and then succeeds.
fn then_succeeds(body: &str) -> String {
    format!("{body}\nsay '{}'", stub::success("done"))
}

/// The body of a stub that does this, waits for a word of the test, and then succeeds.
fn until_told(body: &str) -> String {
    then_succeeds(&format!("{body}\nuntil [ -e go ]; do :; done"))
}

/// Whether root can make a memory group here, asked of the kernel and not of Stockade.
fn has_memory_groups() -> bool {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap();
    let v1 = own
        .lines()
        .find_map(|l| l.split_once(":memory:"))
        .map(|(_, path)| PathBuf::from("/sys/fs/cgroup/memory").join(path.trim_start_matches('/')));
    let v2 = fs::read_to_string("/sys/fs/cgroup/cgroup.subtree_control")
        .is_ok_and(|text| text.split_whitespace().any(|c| c == "memory"));
    let Some(parent) = v1.or_else(|| v2.then(|| PathBuf::from("/sys/fs/cgroup"))) else { return false };
    let trial = parent.join(format!("stockade-tests-{}", std::process::id()));
    let made = fs::create_dir(&trial).is_ok();
    if made {
        fs::remove_dir(&trial).unwrap();
    }
    made
}

/// The record of one limit in a receipt.
fn held<'r>(receipt: &'r Value, id: &str) -> &'r Value {
    receipt["heldLimits"].as_array().unwrap().iter().find(|l| l["id"] == id).expect("the limit is there")
}

/// A run that ended at this limit: the status, the evidence, nothing left.
#[track_caller]
fn assert_ended_by(world: &World, name: &str, ended: Ended, code: i32, id: &str) -> Value {
    let ended = ended.expect_code(code);
    let receipt = world.receipt(name);
    let status = if code == 137 { "out-of-memory" } else { "limit-reached" };
    assert_eq!(receipt["status"], status, "{receipt:#}");
    assert_eq!(receipt["cause"]["code"], format!("limit-{id}"), "{:#}", receipt["cause"]);
    assert_eq!(receipt["cause"]["boundary"], "limit");
    let reached: Vec<&Value> =
        receipt["heldLimits"].as_array().unwrap().iter().filter(|l| l["reached"] == true).collect();
    assert_eq!(reached, [held(&receipt, id)], "{:#}", receipt["heldLimits"]);
    assert!(ended.stderr.contains(&format!("--max-{id}")), "{}", ended.stderr);
    assert_nothing_left(world, &receipt);
    receipt
}

/// No process and no group of a run is left.
#[track_caller]
fn assert_nothing_left(world: &World, receipt: &Value) {
    assert_eq!(receipt["tree"]["gone"], true, "{:#}", receipt["tree"]);
    assert_eq!(receipt["tree"]["unkillable"], json!([]));
    outside::wait_for_no_process_fenced_for(world, Duration::from_secs(2));
    assert_eq!(outside::groups_of(receipt["executionId"].as_str().unwrap()), [] as [PathBuf; 0]);
}

/// The evidence of a cause as one text.
fn evidence(receipt: &Value) -> String {
    receipt["cause"]["evidence"].to_string()
}

/// The largest resident set a process ever had, in bytes.
fn high_water(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let kib = status
        .lines()
        .find_map(|l| l.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

#[test]
fn over_memory_only_that_run_ends_and_its_whole_tree_with_it() {
    for caller in Caller::both() {
        let sibling_world = World::new(&caller);
        let sibling =
            order(&sibling_world, "sibling", &until_told("say '{}'"), "read-only", &["--max-memory", "200M"]);
        let sibling = sibling.start();

        // The greedy child is not the agent itself, and others of its tree are innocent.
        let world = World::new(&caller);
        let body = format!(
            "say '{}'\nsetsid sleep 600 &\nuntil [ -e go ]; do :; done\ntail /dev/zero\nsleep 2\necho survived\nsleep 600",
            stub::INIT
        );
        let run = order(&world, "greedy", &body, "read-only", &["--max-memory", "200M"]).start();
        outside::wait_until("the greedy run's tree", || outside::processes_fenced_for(&world).len() >= 3);
        let groups = groups_during(&world);
        let enforced = caller.uid == 0 && has_memory_groups();
        assert_eq!(groups.is_empty(), !enforced, "{groups:?}");
        for (pid, line) in outside::processes_fenced_for(&world) {
            let own = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
            let inside = own.lines().filter(|l| l.contains("/stockade-")).count();
            assert_eq!(inside, groups.len(), "{line} is in {own}");
        }
        let at = Instant::now();
        world.write("ws/go", "");
        let ended = run.wait(Duration::from_secs(60));
        assert!(at.elapsed() < Duration::from_secs(20), "{:?}", at.elapsed());
        let receipt = assert_ended_by(&world, "greedy", ended, 137, "memory");
        let memory = held(&receipt, "memory");
        assert_eq!(memory["limit"], 200 * MIB);
        assert_eq!(memory["state"], if enforced { "enforced" } else { "watched" }, "{memory:#}");
        assert!(receipt["cause"]["message"].as_str().unwrap().contains("200 MiB"), "{:#}", receipt["cause"]);
        if enforced {
            assert!(evidence(&receipt).contains("oom_kill"), "{}", evidence(&receipt));
            // The kernel lets a process that it is killing go on for a few pages.
            assert!(memory["peak"].as_u64().unwrap() <= 202 * MIB, "{memory:#}");
        } else {
            assert!(evidence(&receipt).contains("sampled"), "{}", evidence(&receipt));
        }
        assert!(memory["peak"].as_u64().unwrap() >= 150 * MIB, "{memory:#}");
        assert_eq!(receipt["tree"]["peakMemory"], memory["peak"]);
        let stdout =
            fs::read_to_string(Path::new(receipt["runDirectory"].as_str().unwrap()).join("stdout")).unwrap();
        assert!(!stdout.contains("survived"), "the tree went on: {stdout}");

        sibling_world.write("ws/go", "");
        sibling.wait(Duration::from_secs(60)).expect_code(0);
        let receipt = sibling_world.receipt("sibling");
        assert_eq!(receipt["status"], "complete", "{receipt:#}");
        assert_eq!(held(&receipt, "memory")["reached"], false);
        assert_nothing_left(&sibling_world, &receipt);
    }
}

#[test]
fn a_greedy_agent_ends_on_every_rung_and_only_what_is_fenced_counts() {
    // A stranger with as much memory as is allowed: where the host's /proc is shown, it must not be taken for the agent's.
    let mut stranger = std::process::Command::new("sh");
    stranger.args(["-c", "head -c 300M /dev/zero | tail | sleep 60"]);
    std::os::unix::process::CommandExt::process_group(&mut stranger, 0);
    let mut stranger = stranger.spawn().unwrap();
    let rungs = ["nsl", "ns", "ns-nest", "ns-hostproc", "bs"];
    let without = ["--accept-missing", "process-visibility", "--accept-missing", "no-nesting"];
    std::thread::scope(|scope| {
        for caller in Caller::both() {
            scope.spawn(move || {
                for rung in rungs {
                    let limits = ["--rung", rung, "--max-memory", "200M"];
                    let world = World::new(&caller);
                    let quiet = order(&world, "quiet", &then_succeeds("sleep 0.6"), "read-only", &limits);
                    quiet.args(&without).end().expect_code(0);
                    let receipt = world.receipt("quiet");
                    assert_eq!(receipt["fence"]["rung"], rung);
                    assert!(receipt["tree"]["peakProcesses"].as_u64().unwrap() <= 5, "{:#}", receipt["tree"]);
                    let world = World::new(&caller);
                    let greedy = order(&world, "greedy", "tail /dev/zero; sleep 600", "read-only", &limits);
                    let ended = greedy.args(&without).end();
                    assert_ended_by(&world, "greedy", ended, 137, "memory");
                }
            });
        }
    });
    let group = rustix::process::Pid::from_child(&stranger);
    rustix::process::kill_process_group(group, rustix::process::Signal::KILL).unwrap();
    stranger.wait().unwrap();
}

/// The groups of the one run that is going on.
fn groups_during(world: &World) -> Vec<PathBuf> {
    let runs: Vec<_> = fs::read_dir(world.state().join("runs")).unwrap().flatten().collect();
    assert_eq!(runs.len(), 1);
    outside::groups_of(runs[0].file_name().to_str().unwrap())
}

#[test]
fn processes_files_and_temporary_folders_are_bounded_by_the_kernel() {
    // The bomb is last, because nothing can be started after it. A shell that cannot fork ends at once.
    let body = "ulimit -n > open-files
head -c 16M /dev/zero > large 2>/dev/null
head -c 64M /dev/zero > /tmp/f 2>temp-errors
head -c 64M /dev/zero > /var/tmp/f 2>>temp-errors
du -m /tmp/f /var/tmp/f > temp-sizes
sh -c 'i=0; while [ $i -lt 200 ]; do sleep 600 & i=$((i+1)); done; echo all > forked' 2>fork-errors
echo > ready";
    let limits =
        ["--max-processes", "60", "--max-open-files", "64", "--max-file-size", "12M", "--max-temp", "8M"];
    for caller in Caller::both() {
        let world = World::new(&caller);
        let run = order(&world, "bounded", &until_told(body), "isolated-write", &limits).start();
        outside::wait_until("the stub to be ready", || world.path("ws/ready").exists());
        let processes = outside::processes_fenced_for(&world).len();
        assert!((50..=60).contains(&processes), "{processes} processes");
        world.write("ws/go", "");
        run.wait(Duration::from_secs(60)).expect_code(0);
        let receipt = world.receipt("bounded");
        assert_eq!(receipt["status"], "complete", "{receipt:#}");
        let read = |name: &str| fs::read_to_string(world.path("ws").join(name)).unwrap();
        assert_eq!(read("open-files"), "64\n");
        assert!(
            !world.path("ws/forked").exists() && read("fork-errors").contains("fork"),
            "{}",
            read("fork-errors")
        );
        assert_eq!(fs::metadata(world.path("ws/large")).unwrap().len(), 12 * MIB);
        assert_eq!(read("temp-errors").matches("No space left").count(), 2, "{}", read("temp-errors"));
        let sizes: Vec<u64> = read("temp-sizes")
            .lines()
            .map(|l| l.split_whitespace().next().unwrap().parse().unwrap())
            .collect();
        assert_eq!(sizes, [8, 8]);
        for id in ["processes", "open-files", "file-size", "temp"] {
            assert_eq!(held(&receipt, id)["state"], "enforced", "{:#}", held(&receipt, id));
        }
        assert_eq!(receipt["tree"]["peakProcesses"], held(&receipt, "processes")["peak"]);
        let peak = receipt["tree"]["peakProcesses"].as_u64().unwrap();
        assert!((50..=60).contains(&peak), "{:#}", receipt["tree"]);
        assert_eq!(receipt["tree"]["killed"], peak - 1, "all but the agent were left: {:#}", receipt["tree"]);
        assert_nothing_left(&world, &receipt);
    }
}

/// A workspace on a file system that cannot map owners: the agent of a root host is kernel uid 0 there.
struct Overlay(PathBuf);

impl Overlay {
    fn over(world: &World) -> Self {
        for folder in ["upper", "work"] {
            world.folder(&format!("overlay/{folder}"));
        }
        let path = |relative: &str| world.path(relative).display().to_string();
        let options = format!(
            "lowerdir={},upperdir={},workdir={}",
            path("ws"),
            path("overlay/upper"),
            path("overlay/work")
        );
        let status = std::process::Command::new("mount")
            .args(["-t", "overlay", "overlay", "-o", &options, &path("ws")])
            .status()
            .unwrap();
        assert!(status.success(), "an overlay cannot be mounted here");
        Self(world.ws())
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        let _gone = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

#[test]
fn processes_of_kernel_uid_0_are_bounded_by_a_group_or_watched() {
    // Fewer than pid_max takes, and no limit per user binds this one.
    let limits = ["--max-processes", "60"];
    let bomb = "sh -c 'while :; do sleep 600 & done' 2>fork-errors; echo > ready";
    let world = World::new(&Caller::root());
    let overlay = Overlay::over(&world);
    assert!(has_memory_groups(), "this test needs control groups");
    let run = order(&world, "grouped", &until_told(bomb), "isolated-write", &limits).start();
    outside::wait_until("the stub to be ready", || world.path("ws/ready").exists());
    let groups = groups_during(&world);
    let members = groups.iter().map(|g| fs::read_to_string(g.join("cgroup.procs")).unwrap().lines().count());
    for processes in members {
        assert!((50..=60).contains(&processes), "{processes} processes in {groups:?}");
    }
    fs::write(world.path("ws/go"), "").unwrap();
    run.wait(Duration::from_secs(60)).expect_code(0);
    // Every process of the host sees the overlay, which is how those of a run are found.
    drop(overlay);
    let receipt = world.receipt("grouped");
    assert_eq!(receipt["fence"]["kernelUid"], 0, "{:#}", receipt["fence"]);
    let held_by_group = held(&receipt, "processes");
    assert_eq!((&held_by_group["state"], &held_by_group["by"]), (&json!("enforced"), &json!("cgroup")));
    assert_nothing_left(&world, &receipt);

    // The same where no group can be made: a container, say.
    let world = World::new(&Caller::root());
    let overlay = Overlay::over(&world);
    let hide = "mount -t tmpfs -o ro none /sys/fs/cgroup && exec \"$@\"";
    let without = ["/usr/bin/unshare", "-m", "/bin/sh", "-c", hide, "sh"].map(str::to_owned);
    let ended = order(&world, "watched", bomb, "isolated-write", &limits).through(&without).end();
    drop(overlay);
    let receipt = assert_ended_by(&world, "watched", ended, 73, "processes");
    let watched = held(&receipt, "processes");
    assert_eq!((&watched["state"], &watched["by"]), (&json!("watched"), &json!("sampling")));
    assert!(watched["peak"].as_u64().unwrap() > 60, "{watched:#}");
    assert_eq!(held(&receipt, "memory")["state"], "watched");
}

#[test]
fn folders_that_grow_too_much_end_the_run() {
    // The workspace where it can be written, and the private home always.
    for (mode, folder) in [("isolated-write", "$PWD"), ("read-only", "$HOME")] {
        for caller in Caller::both() {
            let world = World::new(&caller);
            world.write("ws/before", vec![1; 4 * usize::try_from(MIB).unwrap()]);
            let body = format!(
                "say '{}'\ni=0\nwhile :; do head -c 2M /dev/urandom > {folder}/grown-$i; i=$((i+1)); sleep 0.05; done",
                stub::INIT
            );
            let ended = order(&world, "growing", &body, mode, &["--max-growth", "16M"]).end();
            let receipt = assert_ended_by(&world, "growing", ended, 73, "growth");
            let growth = held(&receipt, "growth");
            assert_eq!(growth["state"], "watched");
            let peak = growth["peak"].as_u64().unwrap();
            assert!(peak > 16 * MIB && peak < 256 * MIB, "{growth:#}");
            let mut grown = 0;
            for entry in fs::read_dir(world.ws()).unwrap().flatten() {
                grown += entry.metadata().unwrap().blocks() * 512;
            }
            assert!(grown < 512 * MIB, "{grown} bytes in the workspace");
        }
    }
}

#[test]
fn a_flood_of_output_is_read_slowly_kept_to_the_limit_and_marked_as_cut() {
    for (stream, to) in [("stdout", ""), ("stderr", " >&2")] {
        for caller in Caller::both() {
            let world = World::new(&caller);
            let body = format!("say '{}'\nyes flood{to}", stub::INIT);
            let run = order(&world, "flood", &body, "read-only", &["--max-output", "6M,2M/s"]).start();
            let pid = run.pid();
            let largest = std::thread::spawn(move || {
                let mut largest = 0;
                while let now @ 1.. = high_water(pid) {
                    largest = now.max(largest);
                    std::thread::sleep(Duration::from_millis(20));
                }
                largest
            });
            let ended = run.wait(Duration::from_secs(60));
            let elapsed = ended.elapsed;
            let largest = largest.join().unwrap();
            let receipt = assert_ended_by(&world, "flood", ended, 73, "output");
            // Two megabytes come at once, the other four in two seconds.
            assert!(
                elapsed >= Duration::from_millis(1800) && elapsed < Duration::from_secs(15),
                "{elapsed:?}"
            );
            assert!(evidence(&receipt).contains(stream), "{}", evidence(&receipt));
            let kept = Path::new(receipt["runDirectory"].as_str().unwrap()).join(stream);
            assert_eq!(fs::metadata(kept).unwrap().len(), 6 * MIB);
            let cut = receipt["notes"].as_array().unwrap().iter().filter_map(Value::as_str);
            let cut: Vec<_> = cut.filter(|n| n.starts_with(&format!("{stream}: {} of", 6 * MIB))).collect();
            assert_eq!(cut.len(), 1, "{:#}", receipt["notes"]);
            assert!(largest > 0 && largest < 100 * MIB, "the runner took {largest} bytes");
        }
    }
}

#[test]
fn a_result_before_the_limit_stays_a_result() {
    for caller in Caller::both() {
        let world = World::new(&caller);
        let body = format!("say '{}'\nsay '{}'\nyes flood", stub::INIT, stub::success("the answer"));
        order(&world, "late", &body, "read-only", &["--max-output", "2M"]).end().expect_code(0);
        let receipt = world.receipt("late");
        assert_eq!(receipt["status"], "complete", "{receipt:#}");
        assert_eq!(world.answer("late").as_deref(), Some("the answer"));
        assert!(receipt["notes"].to_string().contains("limit-reached"), "{:#}", receipt["notes"]);
        assert_eq!(held(&receipt, "output")["reached"], true);
        assert_nothing_left(&world, &receipt);
    }
}

#[test]
fn a_greedy_and_a_flooding_lane_do_nothing_to_those_beside_them() {
    for caller in Caller::both() {
        let honest: Vec<World> = (0..3).map(|_| World::new(&caller)).collect();
        let (greedy, flooding) = (World::new(&caller), World::new(&caller));
        let quiet = |world: &'_ World, n: usize| {
            let body = format!(
                "say '{}'\necho $$ > $HOME/own\nuntil [ -e go ]; do sleep 0.02; done\nsay '{}'",
                stub::INIT,
                stub::success(&format!("answer {n}"))
            );
            order(world, "honest", &body, "read-only", &[]).start()
        };
        let running: Vec<_> = honest.iter().enumerate().map(|(n, world)| quiet(world, n)).collect();
        let limits = ["--max-memory", "200M", "--max-output", "8M"];
        let eats = order(&greedy, "greedy", "tail /dev/zero; sleep 600", "read-only", &limits).start();
        let floods = order(&flooding, "flooding", "yes flood", "read-only", &limits).start();
        let (eaten, flooded) = (eats.wait(Duration::from_secs(60)), floods.wait(Duration::from_secs(60)));
        assert_ended_by(&greedy, "greedy", eaten, 137, "memory");
        assert_ended_by(&flooding, "flooding", flooded, 73, "output");
        for (n, (world, run)) in honest.iter().zip(running).enumerate() {
            world.write("ws/go", "");
            run.wait(Duration::from_secs(60)).expect_code(0);
            let receipt = world.receipt("honest");
            assert_eq!(receipt["status"], "complete", "{receipt:#}");
            assert_eq!(world.answer("honest"), Some(format!("answer {n}")));
            assert_nothing_left(world, &receipt);
        }
    }
}

#[test]
fn a_demand_for_enforced_limits_is_met_or_refused_by_name() {
    for caller in Caller::both() {
        let enforced = caller.uid == 0 && has_memory_groups();
        let demand = ["--require-limits", "enforced"];
        let world = World::new(&caller);
        let ended = order(&world, "demand", &then_succeeds(""), "read-only", &demand).end().expect_code(71);
        let receipt = world.receipt("demand");
        assert_eq!(receipt["cause"]["code"], "limit-not-enforced", "{:#}", receipt["cause"]);
        assert_eq!(receipt["processStarted"], false);
        let named = if enforced { "watch: growth" } else { "watch: memory, growth" };
        assert!(receipt["cause"]["message"].as_str().unwrap().ends_with(named), "{:#}", receipt["cause"]);
        assert!(ended.stderr.contains("--max-growth none"), "{}", ended.stderr);

        let world = World::new(&caller);
        let without = if enforced {
            vec!["--max-growth", "none"]
        } else {
            vec!["--max-growth", "none", "--max-memory", "none"]
        };
        order(&world, "met", &then_succeeds(""), "read-only", &demand).args(&without).end().expect_code(0);
        let receipt = world.receipt("met");
        let states: Vec<_> = receipt["heldLimits"].as_array().unwrap().iter().map(|l| &l["state"]).collect();
        assert!(states.iter().all(|s| **s == "enforced"), "{:#}", receipt["heldLimits"]);
        let row = receipt["guarantees"].as_array().unwrap().iter().find(|g| g["id"] == "limits").unwrap();
        assert_eq!((&row["required"], &row["held"]), (&json!(true), &json!(true)));
    }
}

#[test]
fn a_plan_shows_every_limit_with_its_default_and_what_holds_it() {
    for caller in Caller::both() {
        let world = World::with_providers(&caller);
        world.write("out/prompt.md", "x\n");
        let plan = ["plan", "--provider", "grok", "--provider-sandbox", "replace", "--prompt", "prompt.md"];
        let cwd = world.ws();
        let args = [&plan[..], &["--endpoint", ENDPOINT, "--cwd", cwd.to_str().unwrap()]].concat();
        let shown = world.call(&args).end().expect_code(0).stdout;
        let limits: Vec<Vec<&str>> = shown
            .lines()
            .skip_while(|l| *l != "limits")
            .skip(1)
            .take_while(|l| !l.is_empty())
            .map(|l| l.split("  ").map(str::trim).filter(|w| !w.is_empty()).take(2).collect())
            .collect();
        let expected = [
            ["processes", "4096"],
            ["memory", "8 GiB"],
            ["open-files", "65536"],
            ["file-size", "16 GiB"],
            ["temp", "1 GiB"],
            ["growth", "16 GiB"],
            ["output", "256 MiB"],
        ];
        assert_eq!(limits, expected, "{shown}");

        // A config file sets them, a flag beats it, and a bad value is named with its file.
        world.write(
            "home/.config/stockade/config.toml",
            "[defaults]\nmax_memory = \"300M\"\nmax_processes = 99\n",
        );
        let json = world.call(&args).args(&["--max-processes", "77", "--json"]).end().expect_code(0).stdout;
        let json: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(
            (&json["limits"]["maxMemoryBytes"], &json["limits"]["maxProcesses"]),
            (&json!(300 * MIB), &json!(77))
        );
        let config = world.write("home/.config/stockade/config.toml", "[defaults]\nmax_memory = \"300\"\n");
        let refused = world.call(&args).end().expect_code(64).stderr;
        assert!(refused.contains(config.to_str().unwrap()) && refused.contains("max_memory"), "{refused}");
    }
}

#[test]
fn limits_that_make_no_sense_are_usage_errors() {
    let world = World::new(&Caller::fresh_user());
    for (flag, value) in [
        ("--max-processes", "0"),
        ("--max-processes", "-1"),
        ("--max-memory", "0M"),
        ("--max-memory", "12"),
        ("--max-memory", "1.5G"),
        ("--max-open-files", "1"),
        ("--max-file-size", "none"),
        ("--max-temp", "99999999999T"),
        ("--max-growth", "-1M"),
        ("--max-output", "1M,2M"),
        ("--require-limits", "maybe"),
    ] {
        let value = format!("{flag}={value}");
        let ended = order(&world, "bad", "", "read-only", &[&value]).end().expect_code(64);
        assert!(ended.stderr.contains(flag), "{}", ended.stderr);
        assert!(!world.state().join("runs").exists(), "{flag}: something was created");
    }
}
