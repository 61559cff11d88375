//! The processes of the place, read from its own /proc.

use std::collections::{HashMap, HashSet};
use std::io::Read;

use rustix::process::Pid;

use crate::error::{FenceError, Step};
use crate::role::{ProcessStat, RoleId};
use crate::stat_line;

/// Most processes that are looked at: a full listing has to fit into one message.
const MAX_LISTED: usize = 4096;
/// Most processes of a host that are looked at.
const MAX_ON_HOST: usize = 65_536;
/// /proc/PID/status is far shorter.
const MAX_STATUS: u64 = 4096;

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

/// Which processes /proc of the place shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProcIs {
    /// Those of the place, by their ids inside.
    Own,
    /// Those of the host, by their ids there.
    Hosts,
}

/// Everything but PID 1, by the ids that this /proc shows.
pub(super) fn as_shown(proc: ProcIs) -> Result<Vec<ProcessStat>, FenceError> {
    match proc {
        ProcIs::Own => Ok(walk(MAX_LISTED, |pid| pid != 1)?.processes),
        ProcIs::Hosts => {
            let host = below_this_one()?.processes;
            let below = stat_line::below(own_id()?, &host);
            Ok(host.into_iter().filter(|p| below.contains(&p.pid)).collect())
        }
    }
}

/// Of the host's processes at least those below this one; where the kernel does not tell who is below whom, all.
fn below_this_one() -> Result<Listing, FenceError> {
    let Some(processes) = by_children(own_id()?) else { return walk(MAX_ON_HOST, |_| true) };
    let total = u32::try_from(processes.len()).unwrap_or(u32::MAX);
    Ok(Listing { processes, total })
}

/// Everything below a process, from one to its children. The host may have many processes that are none of ours, and looking
/// at all of them would leave no time for anything else. `None`: this kernel does not list children.
fn by_children(pid: i32) -> Option<Vec<ProcessStat>> {
    let mut found: Vec<ProcessStat> = Vec::new();
    let mut next = children(pid)?;
    while let Some(child) = next.pop().filter(|_| found.len() < MAX_ON_HOST) {
        // It may have ended since.
        found.extend(stat_line::of(child));
        next.extend(children(child).unwrap_or_default());
    }
    Some(found)
}

/// The children of all threads of a process.
fn children(pid: i32) -> Option<Vec<i32>> {
    let mut children = Vec::new();
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        let text = std::fs::read_to_string(task.path().join("children")).ok()?;
        children.extend(text.split_whitespace().filter_map(|id| id.parse::<i32>().ok()));
    }
    Some(children)
}

/// The id of this process in the /proc of the place.
fn own_id() -> Result<i32, FenceError> {
    let me = std::fs::read_link("/proc/self").step_on("readlink", "/proc/self")?;
    Ok(me.to_str().and_then(|name| name.parse().ok()).unwrap_or(0))
}

/// Lists them. Only PID 1 walks this /proc, and nothing in it can be replaced.
pub(super) fn list(proc: ProcIs, roles: &HashMap<Pid, RoleId>) -> Result<Listing, FenceError> {
    let found = match proc {
        ProcIs::Own => walk(MAX_LISTED, |pid| pid != 1)?,
        ProcIs::Hosts => descendants(below_this_one()?)?,
    };
    let mut listing = Listing { total: found.total, processes: found.processes };
    for process in &mut listing.processes {
        process.role = Pid::from_raw(process.pid).and_then(|p| roles.get(&p)).copied();
    }
    Ok(listing)
}

/// Reads what is known of every process that counts, and how many of those there are.
fn walk(most: usize, counts: impl Fn(i32) -> bool) -> Result<Listing, FenceError> {
    let mut listing = Listing::default();
    for pid in stat_line::pids()?.into_iter().filter(|pid| counts(*pid)) {
        if listing.processes.len() >= most {
            listing.total = listing.total.saturating_add(1);
            continue;
        }
        // It may have ended since.
        if let Some(process) = stat_line::of(pid) {
            listing.total = listing.total.saturating_add(1);
            listing.processes.push(process);
        }
    }
    Ok(listing)
}

/// Of the host's processes those below this one, by their ids inside: whoever loses its parent in a place becomes a child
/// of PID 1.
fn descendants(host: Listing) -> Result<Listing, FenceError> {
    let me = own_id()?;
    let mut inside = HashMap::from([(me, 1)]);
    let mut processes = Vec::new();
    let mut rest = host.processes;
    loop {
        let (found, others): (Vec<_>, Vec<_>) =
            rest.into_iter().partition(|p| p.pid != me && inside.contains_key(&p.parent));
        if found.is_empty() {
            break;
        }
        for mut process in found {
            // It may have ended since.
            let Some(pid) = inner_pid(process.pid) else { continue };
            inside.insert(process.pid, pid);
            process.pid = pid;
            process.parent = inside.get(&process.parent).copied().unwrap_or(1);
            processes.push(process);
        }
        rest = others;
    }
    let total = u32::try_from(processes.len()).unwrap_or(u32::MAX);
    processes.truncate(MAX_LISTED);
    Ok(Listing { processes, total })
}

/// The id of a process in the namespace below the one that /proc belongs to.
fn inner_pid(pid: i32) -> Option<i32> {
    let mut text = String::new();
    std::fs::File::open(format!("/proc/{pid}/status"))
        .ok()?
        .take(MAX_STATUS)
        .read_to_string(&mut text)
        .ok()?;
    let ids = text.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    ids.split_whitespace().nth(1)?.parse().ok()
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
    #[expect(clippy::disallowed_methods, reason = "a child to be found")]
    fn of_a_hosts_processes_only_those_below_this_one_are_listed() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let host = walk(MAX_ON_HOST, |_| true).unwrap();
        let me = i32::try_from(std::process::id()).unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        // In one namespace there is no second id: seen through its own /proc nobody is inside anything.
        assert_eq!(inner_pid(pid), None);
        let found = host.processes.iter().find(|p| p.pid == pid).map(|p| p.parent);
        assert_eq!(found, Some(me));
        assert!(descendants(host).unwrap().processes.is_empty());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn this_very_process_is_listed() {
        let listing = list(ProcIs::Own, &HashMap::new()).unwrap();
        let me = i32::try_from(std::process::id()).unwrap();
        let found = listing.processes.iter().find(|p| p.pid == me).unwrap();
        assert!(found.rss_kib > 0, "{found:?}");
        assert!(listing.total as usize >= listing.processes.len());
    }
}
