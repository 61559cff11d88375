//! A tree that does its best to survive, ended in every way on every rung: not one process of it is left. And a process
//! that the kernel does not let end: told by name, and not waited for.
//!
//! Needs root, to become another user, to look into every process, and a freezer (version 1) to stop one for good.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test: a panic is how it fails"
)]

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::{Value, json};
use stockade_tests::{
    Caller, Started, World, outside,
    run::Call,
    rungs::{RUNGS, WITHOUT},
    stub,
    world::helper_binary,
};

/// An endpoint that nobody serves: nobody here asks.
const ENDPOINT: &str = "http://127.0.0.1:9/v1";
/// 10 plain, 10 deaf and 10 daemons, the agent, and PID 1. The 5 that change their process id are seen by their traces.
const HEADS: usize = 32;
/// No process of a run may be left after this time.
const GONE: Duration = Duration::from_secs(2);
/// None may turn up again in this time, in which one would have changed its id a hundred times.
const STILL: Duration = Duration::from_millis(400);

fn order<'w>(world: &'w World, agent: &Path, args: &[&str]) -> Call<'w> {
    let fixed =
        ["--provider", "grok", "--mode", "read-only", "--provider-sandbox", "replace", "--model", "m"];
    let agent = ["--endpoint", ENDPOINT, "--executable", agent.to_str().unwrap()];
    world.run("r", &fixed).args(&agent).args(args)
}

/// The hydra, where the caller can read it.
fn hydra(world: &World) -> PathBuf {
    let to = world.path("hydra");
    fs::copy(helper_binary("hydra"), &to).unwrap();
    fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).unwrap();
    to
}

/// On every rung, as root and as a fresh user at the same time: most of it is waiting.
fn everywhere(test: impl Fn(&World, &str) + Sync) {
    std::thread::scope(|scope| {
        for caller in Caller::both() {
            let test = &test;
            scope.spawn(move || {
                for rung in RUNGS {
                    test(&World::new(&caller), rung);
                }
            });
        }
    });
}

/// What two rungs do not give is not what this is about.
fn on<'w>(rung: &str, world: &'w World) -> Call<'w> {
    order(world, &hydra(world), &["--rung", rung]).args(&WITHOUT)
}

fn with_all_heads(world: &World, rung: &str) -> Started {
    let run = on(rung, world).start();
    outside::wait_until("all heads", || outside::processes_fenced_for(world).len() >= HEADS);
    let before = hops(world);
    outside::wait_until("hopping", || hops(world) > before + 20);
    run
}

/// How often one of them has changed its process id.
fn hops(world: &World) -> u64 {
    let homes = fs::read_dir(world.state().join("homes")).into_iter().flatten().flatten();
    homes.map(|home| fs::metadata(home.path().join("hops")).map_or(0, |m| m.len())).sum()
}

/// Not one is left, and none turns up again.
#[track_caller]
fn assert_no_survivor(world: &World) {
    outside::wait_for_no_process_fenced_for(world, GONE);
    let (until, before) = (Instant::now() + STILL, hops(world));
    while Instant::now() < until {
        assert_eq!(outside::processes_fenced_for(world), [], "it has grown again");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(hops(world), before, "one of them still hops");
}

#[track_caller]
fn assert_ended(world: &World, rung: &str, status: &str) -> Value {
    assert_no_survivor(world);
    let receipt = world.receipt("r");
    assert_eq!(
        (&receipt["status"], &receipt["fence"]["rung"]),
        (&json!(status), &json!(rung)),
        "{receipt:#}"
    );
    assert_eq!((&receipt["tree"]["gone"], &receipt["tree"]["unkillable"]), (&json!(true), &json!([])));
    assert_ne!(receipt["tree"]["groupEmpty"], false);
    receipt
}

#[test]
fn a_normal_end_leaves_no_head_of_the_hydra() {
    everywhere(|world, rung| {
        world.write("ws/hydra", "end");
        on(rung, world).end().expect_code(0);
        let receipt = assert_ended(world, rung, "complete");
        let killed = receipt["tree"]["killed"].as_u64().unwrap();
        assert!((30..=45).contains(&killed), "{:#}", receipt["tree"]);
        assert!(receipt["tree"]["peakProcesses"].as_u64().unwrap() > killed, "{:#}", receipt["tree"]);
    });
}

#[test]
fn a_cancel_leaves_no_head_of_the_hydra() {
    everywhere(|world, rung| {
        let run = with_all_heads(world, rung);
        run.signal(Signal::TERM);
        run.wait(Duration::from_secs(60)).expect_code(130);
        assert_ended(world, rung, "cancelled");
    });
}

#[test]
fn a_deadline_leaves_no_head_of_the_hydra() {
    // All of them at once, because each takes its time; what a deadline does to a user's tree it does to root's.
    let callers = [Caller::root(), Caller::fresh_user()];
    std::thread::scope(|scope| {
        for (rung, caller) in RUNGS.iter().zip(callers.iter().cycle()) {
            scope.spawn(move || {
                let world = World::new(caller);
                on(rung, &world).args(&["--timeout", "6s"]).end().expect_code(124);
                let receipt = assert_ended(&world, rung, "timed-out");
                assert!(receipt["tree"]["peakProcesses"].as_u64().unwrap() >= 31, "{:#}", receipt["tree"]);
            });
        }
    });
}

#[test]
fn a_kill_of_the_runner_leaves_no_head_of_the_hydra() {
    everywhere(|world, rung| {
        let run = with_all_heads(world, rung);
        run.signal(Signal::KILL);
        run.wait(Duration::from_secs(60));
        assert_no_survivor(world);
        let receipt = world.receipt("r");
        assert_eq!(receipt["status"], "interrupted", "{receipt:#}");
        let id = receipt["executionId"].as_str().unwrap();
        outside::wait_for_empty_groups(id);
        world.call(&["gc", "--remove"]).end().expect_code(0);
        assert_eq!(outside::groups_of(id), [] as [PathBuf; 0]);
    });
}

/// A process that the kernel does not let end. A frozen task of version 1 stays where it is, killed or not, until it is
/// thawed; a disk or a network file system that hangs does the same to a task in state `D`.
struct Frozen(PathBuf);

impl Frozen {
    #[track_caller]
    fn freeze(pid: u32) -> Self {
        let root = Path::new("/sys/fs/cgroup/freezer");
        assert!(
            root.join("cgroup.procs").exists(),
            "this test needs the freezer of version 1 at {}",
            root.display()
        );
        let group = root.join(format!("stockade-tests-{pid}"));
        fs::create_dir(&group).unwrap();
        let frozen = Self(group);
        fs::write(frozen.0.join("cgroup.procs"), pid.to_string()).unwrap();
        fs::write(frozen.0.join("freezer.state"), "FROZEN").unwrap();
        outside::wait_until("the freezer", || {
            fs::read_to_string(frozen.0.join("freezer.state")).unwrap() == "FROZEN\n"
        });
        frozen
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let _thawed = fs::write(self.0.join("freezer.state"), "THAWED");
        outside::wait_until("what was frozen to end", || fs::remove_dir(&self.0).is_ok());
    }
}

/// The process with this as argument zero.
fn pid_of(name: &str) -> u32 {
    let found = || {
        let mut found = outside::processes_with(name);
        found.retain(|(_, line)| line.split(' ').next() == Some(name));
        found
    };
    outside::wait_until(name, || !found().is_empty());
    found()[0].0
}

/// Told by name, after a bounded time; and gone as soon as the kernel lets it.
fn assert_told(world: &World, stuck: u32, status: &str, frozen: Frozen) {
    let receipt = world.receipt("r");
    assert_eq!(receipt["status"], status, "{receipt:#}");
    assert_eq!(receipt["tree"]["gone"], false);
    let unkillable = receipt["tree"]["unkillable"].as_array().unwrap();
    assert_eq!(unkillable.len(), 1, "{:#}", receipt["tree"]);
    assert_eq!((&unkillable[0]["pid"], &unkillable[0]["name"]), (&json!(stuck), &json!("sleep")));
    let notes = receipt["notes"].to_string();
    assert!(notes.contains("unkillable: 1 process(es)") && notes.contains(&stuck.to_string()), "{notes}");
    let shown =
        world.call(&["receipt", "show", receipt["executionId"].as_str().unwrap()]).end().expect_code(0);
    assert!(
        shown.stdout.contains("NOT proven to be gone") && shown.stdout.contains("unkillable"),
        "{}",
        shown.stdout
    );

    // What cannot be removed yet is kept, and removed later.
    let id = receipt["executionId"].as_str().unwrap();
    let groups = outside::groups_of(id);
    world.call(&["gc", "--remove"]).end().expect_code(0);
    assert_eq!(outside::groups_of(id), groups);
    drop(frozen);
    outside::wait_for_no_process_fenced_for(world, Duration::from_secs(2));
    outside::wait_for_empty_groups(id);
    world.call(&["gc", "--remove"]).end().expect_code(0);
    assert_eq!(outside::groups_of(id), [] as [PathBuf; 0]);
}

#[test]
fn an_agent_that_cannot_be_killed_is_told_by_name_and_not_waited_for() {
    for caller in Caller::both() {
        let world = World::new(&caller);
        let name = format!("{}-stuck", world.root().file_name().unwrap().to_str().unwrap());
        let agent = world.stub("stuck", &format!("say '{}'\nexec -a {name} sleep 600", stub::INIT));
        let run = order(&world, &agent, &[]).start();
        let stuck = pid_of(&name);
        let frozen = Frozen::freeze(stuck);
        let at = Instant::now();
        run.signal(Signal::TERM);
        run.wait(Duration::from_secs(60)).expect_code(130);
        // A second of grace, five after KILL, three for the place to end.
        assert!(at.elapsed() < Duration::from_secs(14), "{:?}", at.elapsed());
        assert_told(&world, stuck, "cancelled", frozen);
    }
}

#[test]
fn what_an_agent_left_and_cannot_be_killed_takes_no_result_away() {
    for caller in Caller::both() {
        let world = World::new(&caller);
        let name = format!("{}-left", world.root().file_name().unwrap().to_str().unwrap());
        let body = format!(
            "say '{}'\nbash -c 'exec -a {name} sleep 600' &\nuntil [ -e go ]; do sleep 0.01; done\nsay '{}'",
            stub::INIT,
            stub::success("done")
        );
        let agent = world.stub("leaves", &body);
        let run = order(&world, &agent, &[]).start();
        let stuck = pid_of(&name);
        let frozen = Frozen::freeze(stuck);
        let at = Instant::now();
        world.write("ws/go", "");
        run.wait(Duration::from_secs(60)).expect_code(0);
        assert!(at.elapsed() < Duration::from_secs(14), "{:?}", at.elapsed());
        assert_eq!(world.answer("r").as_deref(), Some("done"));
        assert_told(&world, stuck, "complete", frozen);
    }
}
