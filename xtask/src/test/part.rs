//! The parts of a test run: each timed, all within one budget.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, Command, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

use super::{over_budget, tally::Tally};
use crate::shell;

/// How often the budget is looked at while a part says nothing.
const TICK: Duration = Duration::from_millis(500);
/// Lines that wait to be printed.
const LINES: usize = 1_024;

/// Parts done so far.
pub(super) struct Parts {
    start: Instant,
    budget: Duration,
    done: Vec<(&'static str, Duration)>,
    tally: Tally,
    problems: Vec<String>,
}

impl Parts {
    pub(super) fn within(budget: Duration) -> Self {
        Self {
            start: Instant::now(),
            budget,
            done: Vec::new(),
            tally: Tally::default(),
            problems: Vec::new(),
        }
    }

    /// Does a part in this process. Without it the rest is pointless, so its failure ends the run.
    pub(super) fn call<T>(&mut self, name: &'static str, part: impl FnOnce() -> Result<T>) -> Result<T> {
        announce(name);
        let start = Instant::now();
        let outcome = part().with_context(|| name);
        self.end(name, start)?;
        outcome
    }

    /// Does a part in a process of its own. Its failure fails the whole, but the rest goes on.
    pub(super) fn start(&mut self, name: &'static str, command: &mut Command) -> Result<()> {
        announce(name);
        let start = Instant::now();
        let mut child = command.spawn().with_context(|| shell::shown(command))?;
        let deadline = self.start + self.budget;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if Instant::now() > deadline {
                end_tree(&mut child);
                return over_budget(name, self.budget);
            }
            pause();
        };
        if !status.success() {
            self.problems.push(format!("{name}: {status}"));
        }
        self.end(name, start)
    }

    /// Runs tests and counts them.
    pub(super) fn tests(&mut self, name: &'static str, mut command: Command) -> Result<()> {
        announce(name);
        let start = Instant::now();
        let deadline = self.start + self.budget;
        let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| shell::shown(&command))?;
        let stdout = child.stdout.take().context("no standard output")?;
        let (sender, lines) = mpsc::sync_channel(LINES);
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let mut counted = Tally::default();
        loop {
            match lines.recv_timeout(TICK) {
                Ok(line) => {
                    let text = String::from_utf8_lossy(&line);
                    counted.read(&text);
                    println!("{text}");
                    std::io::stdout().flush()?;
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
            if Instant::now() > deadline {
                end_tree(&mut child);
                return over_budget(name, self.budget);
            }
        }
        let status = child.wait()?;
        if reader.join().is_err() {
            self.problems.push(format!("{name}: its output could not be read"));
        }
        if !status.success() && counted.failed == 0 {
            self.problems.push(format!("{name}: {status}"));
        }
        if counted.passed == 0 {
            self.problems.push(format!("{name}: no test ran"));
        }
        self.tally.add(&counted);
        self.end(name, start)
    }

    fn end(&mut self, name: &'static str, start: Instant) -> Result<()> {
        self.done.push((name, start.elapsed()));
        if self.start.elapsed() > self.budget { over_budget(name, self.budget) } else { Ok(()) }
    }

    /// Prints seconds and counts; gives whether anything failed.
    pub(super) fn summary(&self) -> bool {
        println!();
        for (name, elapsed) in &self.done {
            println!("{:>8.1} s  {name}", elapsed.as_secs_f64());
        }
        println!("{:>8.1} s  of {} s", self.start.elapsed().as_secs_f64(), self.budget.as_secs());
        for problem in &self.problems {
            println!("FAILED: {problem}");
        }
        if self.tally.ignored > 0 {
            println!(
                "FAILED: {} test(s) ignored; a test that does not run proves nothing",
                self.tally.ignored
            );
        }
        println!("{} passed, {} failed", self.tally.passed, self.tally.failed + self.problems.len() as u64);
        !self.problems.is_empty() || self.tally.failed > 0 || self.tally.ignored > 0
    }
}

fn announce(name: &str) {
    println!("\n=== {name}");
}

#[expect(
    clippy::disallowed_methods,
    reason = "a task has no runtime, and its child no descriptor to wait on here"
)]
fn pause() {
    std::thread::sleep(TICK);
}

/// Kills a child and everything it started, parents before children, so that nothing is started anew.
fn end_tree(child: &mut Child) {
    let mut waiting = vec![child.id()];
    while let Some(id) = waiting.pop() {
        if let Some(pid) = i32::try_from(id).ok().and_then(Pid::from_raw) {
            // It may have ended by itself.
            let _gone = kill_process(pid, Signal::STOP).is_err();
            waiting.extend(children(id));
            let _gone = kill_process(pid, Signal::KILL).is_err();
        }
    }
    let _status = child.wait();
}

fn children(id: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|child| child.parse().ok()).collect()
}
