//! The processes of the place, read from its own /proc.

use std::collections::{HashMap, HashSet};

use rustix::process::Pid;

use crate::error::{FenceError, Step};
use crate::role::{ProcessStat, RoleId};
use crate::stat_line;

/// Most processes that are looked at: a full listing has to fit into one message.
const MAX_LISTED: usize = 4096;

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
        if let Some(mut process) = stat_line::of(pid) {
            process.role = Pid::from_raw(pid).and_then(|p| roles.get(&p)).copied();
            listing.processes.push(process);
        }
    }
    Ok(listing)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

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
