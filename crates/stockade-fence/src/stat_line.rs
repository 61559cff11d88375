//! One line of /proc/PID/stat.

use std::collections::HashSet;
use std::io::Read;
use std::time::Duration;

use crate::error::{FenceError, Step};
use crate::role::ProcessStat;

/// Such a line is far shorter; a name in it has 15 bytes.
const MAX_LINE: u64 = 4096;

/// Most processes that are looked at.
const MAX_PIDS: usize = 65_536;

/// The ids of all processes in the /proc that this process sees.
///
/// All names are read before any process is looked at: ids go up, so that processes which change theirs faster than one
/// can be looked at would lead a reader on for ever.
pub(crate) fn pids() -> Result<Vec<i32>, FenceError> {
    let mut pids = Vec::new();
    for entry in std::fs::read_dir("/proc").step_on("opendir", "/proc")? {
        let entry = entry.step_on("readdir", "/proc")?;
        pids.extend(entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()));
        if pids.len() >= MAX_PIDS {
            break;
        }
    }
    Ok(pids)
}

/// The line of a process of the /proc that this process sees; `None`: it has ended.
pub(crate) fn of(pid: i32) -> Option<ProcessStat> {
    let mut bytes = Vec::new();
    std::fs::File::open(format!("/proc/{pid}/stat")).ok()?.take(MAX_LINE).read_to_end(&mut bytes).ok()?;
    parse(&String::from_utf8_lossy(&bytes))
}

/// The ids of everything below a process among these.
pub(crate) fn below(pid: i32, all: &[ProcessStat]) -> HashSet<i32> {
    let mut below = HashSet::from([pid]);
    loop {
        let before = below.len();
        below.extend(all.iter().filter(|p| below.contains(&p.parent)).map(|p| p.pid).collect::<Vec<_>>());
        if below.len() == before {
            below.remove(&pid);
            return below;
        }
    }
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
}
