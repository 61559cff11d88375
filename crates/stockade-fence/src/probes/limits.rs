//! D: using up processes and disk, and outliving the run. The limits of a check are small, so that they are met soon.

use std::ffi::CString;
use std::fs::File;
use std::io::Write;
use std::path::Path;

use stockade_core::guarantee::Guarantee::{Limits, TreeEnd};

use super::acts::{Denial, Outcome, clean_up};
use super::fixture::FixtureFacts;
use super::table::{Expected, Probe};
use crate::sys::process::{self, Side, Wait};

/// More than a fence for probes lets in.
const MANY: usize = 600;

/// Files of this size are written until a place is full.
const PART_MEBIBYTES: u32 = 8;

/// How long the daemon lives: until somebody has looked for it.
const DAEMON_SECONDS: i64 = 30;

/// For a tool of a real agent.
const LIMITS_OF_THE_RUN: &str = "the limits are those of the whole run: met, they end it or starve the agent";

pub(super) const PROBES: &[Probe] = &[
    Probe::new("D01", Limits, "fork 600 children", |_| fork_many())
        .expecting(Expected::DeniedWhereEnforced)
        .not_by_tool(LIMITS_OF_THE_RUN),
    Probe::new("D02", Limits, "write 32 MiB into one file of the workspace", |f| {
        fill(&f.in_workspace("fill"), 32)
    })
    .not_by_tool(LIMITS_OF_THE_RUN),
    Probe::new("D03", Limits, "write 48 MiB into the temporary folder, in parts", |f| {
        let part = |number| f.temp.join(format!("{}-{number}", f.token));
        let outcome = (0..48 / PART_MEBIBYTES).try_for_each(|number| write(&part(number), PART_MEBIBYTES));
        (0..48 / PART_MEBIBYTES).for_each(|number| clean_up(part(number)));
        outcome
    })
    .expecting(Expected::DeniedWith(libc::ENOSPC))
    .not_by_tool(LIMITS_OF_THE_RUN),
    Probe::new("D04", TreeEnd, "start a daemon in a session of its own", start_daemon).expecting(
        Expected::Needed("tools start servers; that it is gone with the run is looked at from outside"),
    ),
];

fn fork_many() -> Outcome {
    let mut children = Vec::new();
    let mut refused = None;
    while children.len() < MANY {
        // SAFETY: the child waits for its end by a signal.
        match unsafe { process::fork() } {
            Ok(Side::Child) => loop {
                rustix::event::pause();
            },
            Ok(Side::Parent(child)) => children.push(child),
            Err(error) => {
                refused = Some(error.errno());
                break;
            }
        }
    }
    for child in &children {
        process::signal(*child, libc::SIGKILL)?;
        process::reap(Some(*child), Wait::Block)?;
    }
    refused.map_or(Ok(()), |errno| Err(Denial::new(errno).with_detail(format!("{} forked", children.len()))))
}

fn fill(path: &Path, mebibytes: u32) -> Outcome {
    let outcome = write(path, mebibytes);
    clean_up(path);
    outcome
}

/// Whoever passes the limit of a file is told by a signal, which would end the probe before it can say so.
fn write(path: &Path, mebibytes: u32) -> Outcome {
    // SAFETY: SIG_IGN is no function; this process ends after the probe.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let mut file = File::create(path)?;
    let block = vec![0xA5_u8; 1 << 20];
    for written in 0..mebibytes {
        if let Err(error) = file.write_all(&block) {
            return Err(Denial::from(error).with_detail(format!("{written} MiB written")));
        }
    }
    Ok(())
}

/// Two forks and two sessions away from the probe, with no descriptor that ties it to anybody.
fn start_daemon(facts: &FixtureFacts) -> Outcome {
    let name = CString::new(facts.daemon_name()).map_err(|_| Denial::new(0))?;
    // SAFETY: the child forks once more and ends.
    let child = match unsafe { process::fork() }.map_err(|error| Denial::new(error.errno()))? {
        Side::Child => {
            let _session = rustix::process::setsid();
            // SAFETY: the grandchild makes system calls only and ends.
            if let Ok(Side::Child) = unsafe { process::fork() } {
                let _session = rustix::process::setsid();
                let _named = rustix::thread::set_name(&name);
                let _closed = process::close_from(0);
                let until_seen = rustix::thread::Timespec { tv_sec: DAEMON_SECONDS, tv_nsec: 0 };
                let _slept = rustix::thread::nanosleep(&until_seen);
            }
            process::exit_now(0)
        }
        Side::Parent(child) => child,
    };
    process::reap(Some(child), Wait::Block)?;
    Ok(())
}
