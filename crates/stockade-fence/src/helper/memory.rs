//! How much memory everything in the place has together. Asked only when the resident sets add up to more than a limit,
//! because the kernel walks all page tables for it.

use std::io::Read;

use crate::error::FenceError;
use crate::helper::listing::{self, ProcIs};

/// The summary of one process is shorter.
const MAX_SUMMARY: u64 = 4096;
/// Most processes that are summed up exactly; the rest counts with its resident set.
const MAX_EXACT: usize = 512;

/// Bytes of everything but PID 1: a page that several share is counted once, and what is in swap is counted too.
pub(super) fn in_use(proc: ProcIs) -> Result<u64, FenceError> {
    let mut sum: u64 = 0;
    for (at, process) in listing::as_shown(proc)?.iter().enumerate() {
        let share = if at < MAX_EXACT { proportional_kib(process.pid) } else { None };
        // Its summary is shut to others where a process has made itself undumpable: then it counts with all it has.
        sum = sum.saturating_add(share.unwrap_or(process.rss_kib).saturating_mul(1024));
    }
    Ok(sum)
}

fn proportional_kib(pid: i32) -> Option<u64> {
    let mut text = String::new();
    let file = std::fs::File::open(format!("/proc/{pid}/smaps_rollup")).ok()?;
    file.take(MAX_SUMMARY).read_to_string(&mut text).ok()?;
    sum(&text)
}

/// proc_pid_smaps(5): `Pss:` and `SwapPss:`, in kB.
fn sum(text: &str) -> Option<u64> {
    let kib = |key: &str| {
        text.lines().find_map(|l| l.strip_prefix(key)?.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok())
    };
    Some(kib("Pss:")?.saturating_add(kib("SwapPss:").unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_read_by_its_keys() {
        let text =
            "00400000-7fff [rollup]\nRss:    900 kB\nPss:    120 kB\nPss_Anon: 100 kB\nSwapPss:   8 kB\n";
        assert_eq!(sum(text), Some(128));
        assert_eq!(sum("Rss: 900 kB\n"), None);
    }

    #[test]
    fn this_process_has_some() {
        let me = i32::try_from(std::process::id()).unwrap();
        assert!(proportional_kib(me).unwrap() > 0);
    }
}
