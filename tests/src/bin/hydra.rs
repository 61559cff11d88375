//! An agent that makes every kind of process that has been seen to survive its run: 10 plain children, 10 that ignore polite
//! signals, 10 daemons two sessions away whose parent is gone, and 5 that change their process id every few milliseconds.
//!
//! As an agent it reads a word from the file `hydra` in its working folder: `end` has it report success and exit at once,
//! anything else has it work for ever. The other roles are chosen by the variable `HYDRA`, which its own children get.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::expect_used,
    clippy::zombie_processes,
    reason = "a test tool whose job is to start processes and leave them"
)]

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Nothing of it lives longer, should a test fail.
const LIFE: Duration = Duration::from_secs(60);
const ROLE: &str = "HYDRA";
const OWN: &str = "/proc/self/exe";

fn main() {
    match std::env::var(ROLE).as_deref() {
        Ok("body") => sleep(),
        Ok("parent-of-daemon") => {
            session();
            spawn("daemon");
        }
        Ok("daemon") => {
            session();
            sleep();
        }
        Ok("hopper") => hop(),
        _ => agent(),
    }
}

fn agent() {
    for _ in 0..10 {
        spawn("body");
        deaf("body");
        let mut parent = spawn("parent-of-daemon");
        // Reaped, so that the daemon is an orphan.
        drop(parent.wait());
    }
    for _ in 0..5 {
        deaf("hopper");
    }
    println!(r#"{{"type":"system","subtype":"init","session_id":"s-1","model":"m","tools":[],"cwd":"/w"}}"#);
    if std::fs::read_to_string("hydra").is_ok_and(|word| word == "end") {
        println!(
            r#"{{"type":"result","subtype":"success","is_error":false,"num_turns":1,"result":"done","stop_reason":"end_turn","usage":{{"input_tokens":5,"output_tokens":2}},"modelUsage":{{"m":{{"inputTokens":5,"outputTokens":2}}}}}}"#
        );
        return;
    }
    sleep();
}

fn spawn(role: &str) -> std::process::Child {
    start(Command::new(OWN), role)
}

/// A child that ignores polite signals: the shell that becomes it hands that on.
fn deaf(role: &str) {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "trap '' TERM INT HUP; exec \"$HYDRA_EXE\""]);
    command.env("HYDRA_EXE", std::env::current_exe().expect("the own path"));
    start(command, role);
}

fn start(mut command: Command, role: &str) -> std::process::Child {
    command.env(ROLE, role).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("a child starts")
}

/// Starts itself anew in a session of its own and ends, over and over. A look at /proc hardly ever meets it, so that each
/// of its lives leaves a byte in the home.
fn hop() {
    session();
    let hops = std::env::var("HOME").unwrap_or_default() + "/hops";
    let mut hops =
        std::fs::OpenOptions::new().create(true).append(true).open(hops).expect("the home can be written");
    hops.write_all(b".").expect("the home can be written");
    let end: u128 = std::env::var("HYDRA_END")
        .ok()
        .and_then(|t| t.parse().ok())
        .unwrap_or_else(|| now() + LIFE.as_millis());
    std::thread::sleep(Duration::from_millis(2));
    if now() < end {
        let mut next = Command::new(OWN);
        next.env("HYDRA_END", end.to_string());
        start(next, "hopper");
    }
}

fn now() -> u128 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_millis())
}

fn session() {
    // One that leads a session already has its own.
    let _own = rustix::process::setsid();
}

fn sleep() {
    let end = Instant::now() + LIFE;
    while Instant::now() < end {
        std::thread::sleep(Duration::from_millis(100));
    }
}
