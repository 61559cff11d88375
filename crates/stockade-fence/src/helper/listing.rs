//! The processes of the place, read from its own /proc.

use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::time::Duration;

use rustix::process::Pid;

use crate::error::{FenceError, Step};
use crate::role::{ProcessStat, RoleId};

/// Most processes that are looked at: a full listing has to fit into one message.
const MAX_LISTED: usize = 4096;
/// A line of /proc/PID/stat is far shorter; a name in it has 15 bytes.
const MAX_LINE: u64 = 4096;

/// Everything but PID 1.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) processes: Vec<ProcessStat>,
    pub(super) total: u32,
}

impl Listing {
    /// Those that have not ended: a zombie waits to be reaped and does nothing.
    pub(super) fn alive(&self) -> impl Iterator<Item = &ProcessStat> {
        self.processes.iter().filter(|p| p.state != 'Z' && p.state != 'X')
    }

    /// Those alive that belong to no living role, neither as its first process nor below it.
    pub(super) fn strays(&self) -> impl Iterator<Item = &ProcessStat> {
        let mut owned: HashSet<i32> =
            self.processes.iter().filter(|p| p.role.is_some()).map(|p| p.pid).collect();
        loop {
            let before = owned.len();
            owned.extend(
                self.processes
                    .iter()
                    .filter(|p| owned.contains(&p.parent))
                    .map(|p| p.pid)
                    .collect::<Vec<_>>(),
            );
            if owned.len() == before {
                break;
            }
        }
        self.alive().filter(move |p| !owned.contains(&p.pid))
    }
}

/// Lists them. Only PID 1 walks this /proc, and nothing in it can be replaced.
pub(super) fn list(roles: &HashMap<Pid, RoleId>) -> Result<Listing, FenceError> {
    let mut listing = Listing::default();
    for entry in std::fs::read_dir("/proc").step_on("opendir", "/proc")? {
        let entry = entry.step_on("readdir", "/proc")?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        if pid == 1 {
            continue;
        }
        listing.total = listing.total.saturating_add(1);
        if listing.processes.len() >= MAX_LISTED {
            continue;
        }
        // It may have ended since.
        if let Some(mut process) = read_line(pid).as_deref().and_then(parse) {
            process.role = Pid::from_raw(pid).and_then(|p| roles.get(&p)).copied();
            listing.processes.push(process);
        }
    }
    Ok(listing)
}

fn read_line(pid: i32) -> Option<String> {
    let mut bytes = Vec::new();
    std::fs::File::open(format!("/proc/{pid}/stat")).ok()?.take(MAX_LINE).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// proc_pid_stat(5). The name may hold spaces and brackets: it ends at the last one.
fn parse(line: &str) -> Option<ProcessStat> {
    let (pid, rest) = line.split_once(" (")?;
    let (comm, rest) = rest.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    // From field 5 (pgrp) to field 14 (utime).
    let user: u64 = fields.nth(9)?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    // From field 16 (cutime) to field 24 (rss).
    let pages: u64 = fields.nth(8)?.parse().ok()?;
    let page_kib = u64::try_from(rustix::param::page_size() / 1024).unwrap_or(4);
    Some(ProcessStat {
        pid: pid.parse().ok()?,
        parent,
        comm: comm.to_owned(),
        state,
        cpu: ticks(user.saturating_add(system)),
        rss_kib: pages.saturating_mul(page_kib),
        role: None,
    })
}

fn ticks(count: u64) -> Duration {
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    Duration::from_millis(count.saturating_mul(1000) / per_second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_a_hostile_name() {
        let line =
            "42 (a) R 9 (x) S 7 42 42 0 -1 4194304 100 0 0 0 250 50 3 4 20 0 1 0 999 4096 25 1844 1 1 0";
        let process = parse(line).unwrap();
        assert_eq!(process.pid, 42);
        assert_eq!(process.comm, "a) R 9 (x");
        assert_eq!((process.state, process.parent), ('S', 7));
        assert_eq!(process.cpu, Duration::from_secs(3));
        assert_eq!(process.rss_kib, 100);
        assert_eq!(parse("42 (a"), None);
    }

    #[test]
    fn strays_are_those_below_no_role() {
        let process = |pid, parent, role: Option<u32>, state| ProcessStat {
            pid,
            parent,
            comm: String::new(),
            state,
            cpu: Duration::ZERO,
            rss_kib: 0,
            role: role.map(RoleId),
        };
        let processes = vec![
            process(9, 8, None, 'S'),
            process(8, 7, None, 'S'),
            process(7, 1, Some(3), 'S'),
            process(5, 1, None, 'S'),
            process(6, 5, None, 'R'),
            process(4, 1, None, 'Z'),
        ];
        let listing = Listing { total: 6, processes };
        assert_eq!(listing.strays().map(|p| p.pid).collect::<Vec<_>>(), [5, 6]);
    }

    #[test]
    fn this_very_process_is_listed() {
        let listing = list(&HashMap::new()).unwrap();
        let me = i32::try_from(std::process::id()).unwrap();
        let found = listing.processes.iter().find(|p| p.pid == me).unwrap();
        assert!(found.rss_kib > 0, "{found:?}");
        assert!(listing.total as usize >= listing.processes.len());
    }
}
