//! Measuring: interleaved pairs, medians.

use std::{
    fs,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};

use super::{
    bare::Bare,
    setting::{Setting, Subject},
};
use crate::shell;

/// What a run added over a bare start, in milliseconds, medians of all pairs.
pub(super) struct Cost {
    pub(super) bare: f64,
    pub(super) fenced: f64,
    /// The median of the differences, which is not the difference of the medians.
    pub(super) added: f64,
}

pub(super) fn added(setting: &Setting, subject: &Subject, pairs: usize) -> Result<Cost> {
    let plan = Bare::of(setting, subject)?;
    let kind = subject.name;
    let (mut bare, mut fenced) = (Vec::new(), Vec::new());
    // The first pair warms caches and is thrown away.
    for pair in 0..=pairs {
        let home = setting.folder.join(format!("{kind}-home-{pair}"));
        let mut start_bare = plan.command(setting, &home)?;
        let mut start_fenced = setting.run(subject, "replace", &format!("{kind}-{pair}"));
        let (b, f) = if pair % 2 == 0 {
            let b = timed(&mut start_bare, 0)?;
            (b, timed(&mut start_fenced, 0)?)
        } else {
            let f = timed(&mut start_fenced, 0)?;
            (timed(&mut start_bare, 0)?, f)
        };
        if pair > 0 {
            bare.push(b);
            fenced.push(f);
        }
    }
    let differences = fenced.iter().zip(&bare).map(|(f, b)| f - b).collect();
    Ok(Cost { bare: median(bare), fenced: median(fenced), added: median(differences) })
}

/// The whole process of a refusal on a host without Landlock and bubblewrap, in milliseconds.
pub(super) fn refusal(setting: &Setting) -> Result<f64> {
    let name = format!("refusal-{}", unique());
    let classes = ["no-landlock", "no-bwrap"];
    timed(&mut setting.run_on(&classes, &setting.agent, "keep", &name), 71)
}

/// The peak memory of Stockade's own processes over one run of the agent, in megabytes: what the runner holds in all, and
/// what PID 1 of its fence holds beside the pages of the program, which the two share.
pub(super) fn peak_memory(setting: &Setting) -> Result<f64> {
    let mut command = setting.run(&setting.agent, "replace", &format!("memory-{}", unique()));
    let mut child = command.spawn().with_context(|| shell::shown(&command))?;
    let runner = child.id();
    let program = fs::read_link(format!("/proc/{runner}/exe")).ok();
    let mut peaks = std::collections::BTreeMap::<u32, u64>::new();
    let status = loop {
        for pid in std::iter::once(runner).chain(children(runner)) {
            // The helper is the same program as the runner; the agent is another.
            let line = if pid == runner { "VmHWM:" } else { "RssAnon:" };
            if fs::read_link(format!("/proc/{pid}/exe")).ok() == program
                && let Some(kilobytes) = status_line(pid, line)
            {
                let peak = peaks.entry(pid).or_default();
                *peak = kilobytes.max(*peak);
            }
        }
        if let Some(status) = child.try_wait()? {
            break status;
        }
        pause();
    };
    ensure!(status.success(), "{} ended with {status}", shell::shown(&command));
    let kilobytes: u64 = peaks.values().sum();
    #[expect(clippy::cast_precision_loss, reason = "memory in kilobytes is far below 2^52")]
    Ok(kilobytes as f64 / 1_000.0)
}

/// A line of a process's status, in kilobytes: `VmHWM:` is the high-water mark of its resident set.
fn status_line(pid: u32, name: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|l| l.starts_with(name))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn children(pid: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|child| child.parse().ok()).collect()
}

/// Runs a command to its end, in milliseconds; another exit code than expected is an error.
pub(super) fn timed(command: &mut Command, expected: i32) -> Result<f64> {
    let start = Instant::now();
    let status = command.status().with_context(|| shell::shown(command))?;
    let elapsed = start.elapsed();
    ensure!(status.code() == Some(expected), "{} ended with {status}", shell::shown(command));
    Ok(elapsed.as_secs_f64() * 1_000.0)
}

/// The middle value.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn unique() -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

#[expect(clippy::disallowed_methods, reason = "a task has no runtime, and there is nothing here to wait on")]
fn pause() {
    std::thread::sleep(Duration::from_millis(1));
}
