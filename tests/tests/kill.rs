//! Stop means the whole tree: whoever ends a run, and however, no process of it is left two seconds later.
//!
//! A stub makes every kind of process that has been seen to survive its run, and ignores polite signals; the real Grok
//! runs a tool with a daemon. Needs root, to become another user and to look into every process.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test: a panic is how it fails, and strangers are started by it"
)]

use std::{
    fs,
    path::PathBuf,
    process::{Child, Command},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal};
use serde_json::{Value, json};
use stockade_tests::{
    Caller, ScriptedModel, Started, World, model, outside,
    run::Call,
    rungs::{RUNGS, WITHOUT},
    stub,
};

/// An endpoint that nobody serves: the stub never asks.
const ENDPOINT: &str = "http://127.0.0.1:9/v1";
/// No process of a run may be left after this time.
const GONE: Duration = Duration::from_secs(2);
/// The agent's grace time is one second; ending a run takes little more.
const END: Duration = Duration::from_secs(5);
/// What the stub leaves besides itself.
const DESCENDANTS: [&str; 5] = ["child", "grandchild", "daemon", "mcp", "parent"];

/// A word that is in the command line of every process the stub makes, and nowhere else.
fn mark(world: &World) -> String {
    format!("{}-tree", world.root().file_name().unwrap().to_str().unwrap())
}

/// A stub that ignores polite signals and has a child, a `setsid` grandchild that holds standard output, a daemon, a
/// server that waits for calls, and a process with a zombie it never reaps, all of them in the workspace. Ends in `end`.
fn messy_stub(world: &World, end: &str) -> PathBuf {
    let call = r#"{"type":"assistant","message":{"role":"assistant","model":"m","content":[{"type":"tool_use","id":"c-1","name":"run_terminal_command","input":{"command":"sleep"}}],"stop_reason":"tool_use"}}"#;
    let body = format!(
        r#"trap '' TERM INT HUP
m={mark}
bash -c "exec -a $m-child sleep 600" &
bash -c "setsid bash -c 'exec -a $m-grandchild sleep 600' &"
(setsid bash -c "exec -a $m-daemon sleep 600" </dev/null >/dev/null 2>&1 &)
mkfifo /tmp/calls
bash -c "exec -a $m-mcp cat" <>/tmp/calls >/dev/null &
bash -c "sleep 0.3 & exec -a $m-parent sleep 600" &
say '{init}'
say '{call}'
{end}"#,
        mark = mark(world),
        init = stub::INIT,
    );
    world.stub("messy", &body)
}

/// The end of a stub that works for ever.
fn for_ever(world: &World) -> String {
    format!("exec -a {}-agent sleep 600", mark(world))
}

/// The end of a stub that waits for a word of the test, then succeeds and leaves everything behind.
fn success_on_word() -> String {
    format!("until [ -e go ]; do sleep 0.01; done\nsay '{}'\nexit 0", stub::success("done"))
}

/// On every rung, as root and as a fresh user, all at the same time: most of it is waiting.
fn everywhere(test: impl Fn(&World, &str) + Sync) {
    std::thread::scope(|scope| {
        for caller in Caller::both() {
            for rung in RUNGS {
                let (test, caller) = (&test, caller.clone());
                scope.spawn(move || test(&World::new(&caller), rung));
            }
        }
    });
}

/// A run on one rung. What two of them do not give is not what this is about.
fn order_on<'w>(rung: &str, world: &'w World, agent: &str) -> Call<'w> {
    order(world, agent).args(&["--rung", rung]).args(&WITHOUT)
}

/// A run on the best rung.
fn order<'w>(world: &'w World, agent: &str) -> Call<'w> {
    world
        .run(
            "r",
            &["--provider", "grok", "--mode", "read-only", "--provider-sandbox", "replace", "--model", "m"],
        )
        .args(&["--endpoint", ENDPOINT, "--executable", agent])
}

/// Pids of processes with exactly this as argument zero.
fn pids_of(name: &str) -> Vec<u32> {
    let mut found = outside::processes_with(name);
    found.retain(|(_, line)| line.split(' ').next() == Some(name));
    found.into_iter().map(|(pid, _)| pid).collect()
}

/// Waits until the stub has made all it makes, the zombie included.
fn wait_for_mess(world: &World, others: &[&str]) {
    let mark = mark(world);
    for name in DESCENDANTS.iter().chain(others) {
        outside::wait_until(&format!("a process `{mark}-{name}`"), || {
            !pids_of(&format!("{mark}-{name}")).is_empty()
        });
    }
    outside::wait_until("a zombie that nobody reaps", || {
        pids_of(&format!("{mark}-parent")).into_iter().any(|pid| {
            let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
            children.split_whitespace().any(|child| {
                let stat = fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
                stat.contains(") Z ")
            })
        })
    });
    assert!(!outside::processes_fenced_for(world).is_empty(), "nothing is fenced");
}

/// A process of somebody else with the very command line of one of the stub's, in the same folder.
struct Stranger(Child);

impl Stranger {
    fn beside(world: &World) -> Self {
        let command = format!("exec -a {}-stranger sleep 600", mark(world));
        let child = Command::new("bash").args(["-c", &command]).current_dir(world.ws()).spawn().unwrap();
        Self(child)
    }

    /// No process of the run is left; this one is.
    #[track_caller]
    fn assert_only_survivor(mut self, world: &World) {
        outside::wait_for_no_process_fenced_for(world, GONE);
        let left: Vec<u32> = outside::processes_with(&mark(world)).into_iter().map(|(pid, _)| pid).collect();
        assert_eq!(left, [self.0.id()], "the run's processes, or the stranger's end");
        assert!(self.0.try_wait().unwrap().is_none(), "the stranger was ended");
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// A receipt of a run that was stopped: who did it, the output so far, the changes.
#[track_caller]
fn assert_stopped(receipt: &Value, rung: &str, status: &str, who: &str) {
    let is = (&receipt["status"], &receipt["fence"]["rung"]);
    assert_eq!(is, (&json!(status), &json!(rung)), "{receipt:#}");
    assert!(receipt["cause"]["message"].as_str().unwrap().contains(who), "{:#}", receipt["cause"]);
    assert_eq!(receipt["changes"], json!({ "commits": [], "files": [], "complete": true }));
    assert_eq!(receipt["processStarted"], true);
    assert_eq!(receipt["tree"]["gone"], true, "{:#}", receipt["tree"]);
    let stdout = PathBuf::from(receipt["runDirectory"].as_str().unwrap()).join("stdout");
    assert!(fs::read_to_string(stdout).unwrap().contains("\"init\""), "the output so far is lost");
}

/// Waits until a line of the run's events holds this word.
fn wait_for_event(world: &World, word: &str) {
    outside::wait_until(word, || {
        let Ok(runs) = fs::read_dir(world.state().join("runs")) else { return false };
        runs.flatten().any(|run| {
            fs::read_to_string(run.path().join("events.ndjson")).is_ok_and(|events| events.contains(word))
        })
    });
}

#[test]
fn a_term_or_an_int_ends_the_whole_tree_of_an_agent_that_ignores_it() {
    for (signal, name) in [(Signal::TERM, "SIGTERM"), (Signal::INT, "SIGINT")] {
        everywhere(|world, rung| {
            let stub = messy_stub(world, &for_ever(world));
            let stranger = Stranger::beside(world);
            let run = order_on(rung, world, stub.to_str().unwrap()).start();
            wait_for_mess(world, &["agent"]);
            let at = Instant::now();
            run.signal(signal);
            run.wait(Duration::from_secs(60)).expect_code(130);
            assert!(at.elapsed() < END, "{:?}", at.elapsed());
            let receipt = world.receipt("r");
            assert_stopped(&receipt, rung, "cancelled", name);
            assert_eq!(receipt["signal"], "SIGKILL", "TERM was ignored");
            stranger.assert_only_survivor(world);
            assert!(world.answer("r").is_none(), "an empty output stayed");
            assert_eq!(homes(world), 0);
        });
    }
}

#[test]
fn a_deadline_ends_the_whole_tree() {
    // Long enough for ten of them to make all they make at the same time.
    const DEADLINE: Duration = Duration::from_secs(6);
    everywhere(|world, rung| {
        let stub = messy_stub(world, &for_ever(world));
        let stranger = Stranger::beside(world);
        let run = order_on(rung, world, stub.to_str().unwrap()).args(&["--timeout", "6s"]).start();
        wait_for_mess(world, &["agent"]);
        let ended = run.wait(Duration::from_secs(60)).expect_code(124);
        assert!(ended.elapsed < DEADLINE + END, "{:?}", ended.elapsed);
        assert_stopped(&world.receipt("r"), rung, "timed-out", "6000 ms");
        stranger.assert_only_survivor(world);
    });
}

#[test]
fn what_a_finished_agent_leaves_behind_is_ended_and_counted() {
    everywhere(|world, rung| {
        let stub = messy_stub(world, &success_on_word());
        let stranger = Stranger::beside(world);
        let run = order_on(rung, world, stub.to_str().unwrap()).start();
        wait_for_mess(world, &[]);
        world.write("ws/go", "");
        run.wait(Duration::from_secs(60)).expect_code(0);
        let receipt = world.receipt("r");
        assert_eq!(
            (&receipt["status"], &receipt["fence"]["rung"]),
            (&json!("complete"), &json!(rung)),
            "{receipt:#}"
        );
        assert_eq!(receipt["tree"]["killed"], DESCENDANTS.len(), "{rung}: {:#}", receipt["tree"]);
        assert_eq!(receipt["tree"]["gone"], true);
        assert_eq!(world.answer("r").as_deref(), Some("done"));
        stranger.assert_only_survivor(world);
    });
}

#[test]
fn a_second_signal_kills_at_once() {
    // Half a minute of grace: only the second signal can end this run in time.
    let profile = include_str!("../../crates/stockade-providers/profiles/grok.toml");
    let patient = profile.replace("grace_ms = 1000", "grace_ms = 30000");
    assert_ne!(profile, patient);
    for caller in Caller::both() {
        for second in [Signal::INT, Signal::TERM] {
            let world = World::new(&caller);
            let profile = world.write("patient.toml", &patient);
            let stub = messy_stub(&world, &for_ever(&world));
            let run =
                order(&world, stub.to_str().unwrap()).args(&["--profile", profile.to_str().unwrap()]).start();
            wait_for_mess(&world, &["agent"]);
            run.signal(Signal::INT);
            wait_for_event(&world, "cancel-requested");
            let at = Instant::now();
            run.signal(second);
            run.wait(Duration::from_secs(60)).expect_code(130);
            assert!(at.elapsed() < END, "{:?}", at.elapsed());
            assert_stopped(&world.receipt("r"), "nsl", "cancelled", "SIGINT");
            outside::wait_for_no_process_fenced_for(&world, GONE);
        }
    }
}

/// Private homes in the state directory.
fn homes(world: &World) -> usize {
    fs::read_dir(world.state().join("homes")).map_or(0, Iterator::count)
}

/// What `gc` finds, as (kind, safe, removed).
fn gc(world: &World, args: &[&str]) -> Vec<(String, bool, bool)> {
    let ended = world.call(&["gc", "--json"]).args(args).end().expect_code(0);
    let found: Vec<Value> = serde_json::from_str(&ended.stdout).unwrap();
    let row = |l: &Value| {
        (
            l["kind"].as_str().unwrap().to_owned(),
            l["safe"].as_bool().unwrap(),
            l["removed"].as_bool().unwrap(),
        )
    };
    found.iter().map(row).collect()
}

fn row(kind: &str, safe: bool, removed: bool) -> (String, bool, bool) {
    (kind.to_owned(), safe, removed)
}

/// A run of the real Grok in the middle of a tool call that has left a daemon.
fn grok_in_a_tool_call(world: &World) -> (ScriptedModel, Started) {
    let mark = mark(world);
    // The agent refuses a command with `&` in it.
    let command = format!(
        "setsid -f bash -c 'exec -a {mark}-daemon sleep 600' </dev/null >/dev/null 2>&1; \
         bash -c 'exec -a {mark}-tool sleep 600'"
    );
    let model = ScriptedModel::steps(world, &json!([model::shell(&command)]));
    let run = world
        .run("r", &["--provider", "grok", "--provider-sandbox", "replace", "--endpoint", &model.url])
        .start();
    for name in ["daemon", "tool"] {
        outside::wait_until(name, || !pids_of(&format!("{mark}-{name}")).is_empty());
    }
    (model, run)
}

#[test]
fn a_term_or_an_int_during_a_tool_call_of_the_real_grok_ends_its_whole_tree() {
    for caller in Caller::both() {
        for (signal, name) in [(Signal::TERM, "SIGTERM"), (Signal::INT, "SIGINT")] {
            let world = World::with_providers(&caller);
            let (_model, run) = grok_in_a_tool_call(&world);
            let at = Instant::now();
            run.signal(signal);
            run.wait(Duration::from_secs(60)).expect_code(130);
            assert!(at.elapsed() < END, "{:?}", at.elapsed());
            outside::wait_for_no_process_fenced_for(&world, GONE);
            outside::wait_for_no_process_with(&mark(&world), Duration::ZERO);
            assert_stopped(&world.receipt("r"), "nsl", "cancelled", name);
            assert_eq!(gc(&world, &[]), [], "something is left");
        }
    }
}

/// Kills a run in the middle, and looks at what is left of it.
#[track_caller]
fn kill_and_look(world: &World, run: Started) {
    run.signal(Signal::KILL);
    let ended = run.wait(Duration::from_secs(60));
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended.status), Some(9));
    outside::wait_for_no_process_fenced_for(world, GONE);
    let receipt = world.receipt("r");
    assert_eq!(receipt["status"], "interrupted", "{receipt:#}");
    let path = world.path("out/r.receipt.json");
    let shown = world.call(&["receipt", "show", path.to_str().unwrap()]).end().expect_code(0);
    assert!(shown.stdout.contains("the process that ran it is gone"), "{}", shown.stdout);
    let id = receipt["executionId"].as_str().unwrap();
    let shown = world.call(&["receipt", "show", id, "--json"]).end().expect_code(0);
    assert_eq!(serde_json::from_str::<Value>(&shown.stdout).unwrap(), receipt);

    // A write that was torn, too.
    let directory = PathBuf::from(receipt["runDirectory"].as_str().unwrap());
    fs::write(directory.join(".receipt.json.tmp"), "{\"half").unwrap();
    let groups = outside::wait_for_empty_groups(id);
    let mut left = vec![("torn-receipt", true), ("empty-output", true)];
    left.extend(groups.iter().map(|_| ("control-group", true)));
    left.extend([("home", true), ("interrupted-run", false)]);
    let rows = |removed: bool| {
        left.iter().map(|(kind, safe)| row(kind, *safe, *safe && removed)).collect::<Vec<_>>()
    };
    assert_eq!(gc(world, &[]), rows(false));
    assert_eq!((homes(world), outside::groups_of(id)), (1, groups), "looking changes nothing");
    assert_eq!(gc(world, &["--remove"]), rows(true));
    assert_eq!((homes(world), outside::groups_of(id)), (0, Vec::new()));
    assert!(world.answer("r").is_none(), "the reserved output stayed");
    assert!(!directory.join(".receipt.json.tmp").exists());
    assert_eq!(gc(world, &["--remove"]), [row("interrupted-run", false, false)]);
    assert_eq!(world.receipt("r"), receipt, "the record stays");
}

#[test]
fn a_kill_during_a_tool_call_leaves_no_process_and_a_receipt_that_says_interrupted() {
    for caller in Caller::both() {
        let world = World::with_providers(&caller);
        let (_model, run) = grok_in_a_tool_call(&world);
        kill_and_look(&world, run);
        outside::wait_for_no_process_with(&mark(&world), Duration::ZERO);
    }
    everywhere(|world, rung| {
        let stub = messy_stub(world, &for_ever(world));
        let stranger = Stranger::beside(world);
        let run = order_on(rung, world, stub.to_str().unwrap()).start();
        wait_for_mess(world, &["agent"]);
        kill_and_look(world, run);
        stranger.assert_only_survivor(world);
    });
}

#[test]
fn gc_removes_what_a_dead_run_left_and_nothing_of_a_living_one() {
    for caller in Caller::both() {
        let world = World::new(&caller);
        let stub = messy_stub(&world, &success_on_word());
        let dead = order(&world, stub.to_str().unwrap()).start();
        wait_for_mess(&world, &[]);
        dead.signal(Signal::KILL);
        dead.wait(Duration::from_secs(60));
        outside::wait_for_no_process_fenced_for(&world, GONE);
        let dead_run = world.receipt("r")["executionId"].as_str().unwrap().to_owned();
        fs::remove_file(world.path("out/r.receipt.json")).unwrap();
        fs::remove_file(world.path("out/r.answer")).unwrap();

        let living = order(&world, stub.to_str().unwrap()).start();
        wait_for_mess(&world, &[]);
        assert_eq!(homes(&world), 2);
        let living_run = world.receipt("r")["executionId"].as_str().unwrap().to_owned();
        let groups_of_both = [outside::wait_for_empty_groups(&dead_run), outside::groups_of(&living_run)];
        assert_eq!(groups_of_both.iter().all(Vec::is_empty), caller.uid != 0, "{groups_of_both:?}");
        let mut dead_only = vec!["control-group"; groups_of_both[0].len()];
        dead_only.extend(["home", "interrupted-run"]);
        let rows = |removed| dead_only.iter().map(|kind| row(kind, true, removed)).collect::<Vec<_>>();
        assert_eq!(gc(&world, &["--older-than", "1ms"]), rows(false));
        let remove = ["--older-than", "1ms", "--remove"];
        assert_eq!(gc(&world, &remove), rows(true));
        assert_eq!(homes(&world), 1);
        let [_, of_living] = groups_of_both;
        assert_eq!([&dead_run, &living_run].map(|run| outside::groups_of(run)), [Vec::new(), of_living]);
        assert_eq!(gc(&world, &remove), []);
        let shown =
            world.call(&["receipt", "show", world.path("out/r.receipt.json").to_str().unwrap()]).end();
        assert!(shown.stdout.contains("the run is still going on"), "{}", shown.stdout);
        world.write("ws/go", "");
        living.wait(Duration::from_secs(60)).expect_code(0);
        assert_eq!(world.receipt("r")["status"], "complete");
        assert_eq!(gc(&world, &["--remove"]), []);
    }
}

/// Makes the runner the first process of a process namespace of its own.
fn as_pid_1(call: Call<'_>) -> Call<'_> {
    call.through(&["/usr/bin/unshare", "-p", "-f", "--mount-proc"].map(str::to_owned))
}

/// The runner below `unshare`.
fn child_of(run: &Started) -> Pid {
    let pid = run.pid();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    let mut children = children.split_whitespace();
    let (child, other) = (children.next().expect("unshare has a child"), children.next());
    assert_eq!(other, None);
    Pid::from_raw(child.parse().unwrap()).unwrap()
}

#[test]
fn a_runner_that_is_pid_1_finishes_and_stops_like_any_other() {
    everywhere(|world, rung| {
        let stub = messy_stub(world, &success_on_word());
        let run = as_pid_1(order_on(rung, world, stub.to_str().unwrap())).start();
        wait_for_mess(world, &[]);
        world.write("ws/go", "");
        run.wait(Duration::from_secs(60)).expect_code(0);
        let receipt = world.receipt("r");
        assert_eq!(receipt["tree"]["killed"], DESCENDANTS.len(), "{rung}: {:#}", receipt["tree"]);
        assert_eq!(receipt["launcher"]["pid"], 1);
        outside::wait_for_no_process_with(&mark(world), GONE);
        outside::wait_for_no_process_fenced_for(world, GONE);
    });
    everywhere(|world, rung| {
        let stub = messy_stub(world, &for_ever(world));
        let run = as_pid_1(order_on(rung, world, stub.to_str().unwrap())).start();
        wait_for_mess(world, &["agent"]);
        rustix::process::kill_process(child_of(&run), Signal::TERM).unwrap();
        run.wait(Duration::from_secs(60)).expect_code(130);
        assert_stopped(&world.receipt("r"), rung, "cancelled", "SIGTERM");
        outside::wait_for_no_process_with(&mark(world), GONE);
        outside::wait_for_no_process_fenced_for(world, GONE);
        assert_eq!(gc(world, &[]), []);
    });
}
