//! D: using up processes and disk. Whether a limit is enforced or watched depends on the host; nothing is asserted
//! yet, and the probes run only when they are named.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use stockade_core::guarantee::Guarantee::{Limits, TreeEnd};

use super::acts::{Denial, Outcome, clean_up};
use super::table::{Expected, Probe};
use crate::sys::process::{self, Side, Wait};

const REPORTED: Expected = Expected::NotAsserted("limits are reported, enforced or watched");
const ENDS_WITH_THE_TREE: Expected =
    Expected::NotAsserted("may start; that it ends with the tree is tested there");

/// More than any honest tool starts at once.
const MANY: usize = 1500;

pub(super) const PROBES: &[Probe] = &[
    Probe::new("D01", Limits, "fork 1500 children", |_| fork_many()).expecting(REPORTED),
    Probe::new("D02", Limits, "write 64 MiB into the workspace", |f| fill(&f.in_workspace("fill"), 64))
        .expecting(REPORTED),
    Probe::new("D03", Limits, "write 320 MiB into the temporary folder", |f| {
        fill(&f.temp.join(format!("{}-fill", f.token)), 320)
    })
    .expecting(REPORTED),
    Probe::new("D04", TreeEnd, "start a daemon in a session of its own", |_| start_daemon())
        .expecting(ENDS_WITH_THE_TREE),
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
    let mut file = File::create(path)?;
    let block = vec![0xA5_u8; 1 << 20];
    let mut written = 0;
    let outcome = loop {
        if written == mebibytes {
            break Ok(());
        }
        if let Err(error) = file.write_all(&block) {
            break Err(Denial::from(error).with_detail(format!("{written} MiB written")));
        }
        written += 1;
    };
    clean_up(path);
    outcome
}

/// Two forks and two sessions away from the probe, with no descriptor that ties it to anybody. Ends by itself
/// after four seconds, so that the control run leaves nothing.
fn start_daemon() -> Outcome {
    // SAFETY: the child forks once more and ends.
    let child = match unsafe { process::fork() }.map_err(|error| Denial::new(error.errno()))? {
        Side::Child => {
            let _session = rustix::process::setsid();
            // SAFETY: the grandchild makes system calls only and ends.
            if let Ok(Side::Child) = unsafe { process::fork() } {
                let _session = rustix::process::setsid();
                let _closed = process::close_from(0);
                let four_seconds = rustix::thread::Timespec { tv_sec: 4, tv_nsec: 0 };
                let _slept = rustix::thread::nanosleep(&four_seconds);
            }
            process::exit_now(0)
        }
        Side::Parent(child) => child,
    };
    process::reap(Some(child), Wait::Block)?;
    Ok(())
}
