//! Who started a run, and whether that process still lives. A pid alone is no proof: it is taken again by others, and
//! means nothing after a reboot.

use std::path::Path;

use rustix::fs::CWD;
use stockade_core::receipt::LauncherRecord;

use crate::{
    error::{ErrorKind, JournalError},
    files,
};

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// proc(5): one line of at most a few hundred bytes.
const STAT_LIMIT_BYTES: usize = 4096;

/// Describes the calling process.
pub fn launcher_record() -> Result<LauncherRecord, JournalError> {
    let stat = read("/proc/self/stat")?;
    let malformed = || {
        let reason = "not in the form of proc(5)";
        JournalError::new(ErrorKind::Storage, "read", Path::new("/proc/self/stat"), reason)
    };
    let pid = stat.split_whitespace().next().and_then(|w| w.parse().ok()).ok_or_else(malformed)?;
    let (_, start_time) = state_and_start(&stat).ok_or_else(malformed)?;
    Ok(LauncherRecord { boot_id: read(BOOT_ID)?.trim().to_owned(), pid, start_time })
}

/// Whether the process of a record still runs: same boot, same pid, same start time, and no zombie.
///
/// It looks at the `/proc` of the caller: a launcher in another pid namespace is not seen. The lock on the launcher
/// file of a run directory covers that case.
pub fn is_alive(record: &LauncherRecord) -> bool {
    let same_boot = read(BOOT_ID).is_ok_and(|id| id.trim() == record.boot_id);
    same_boot
        && read(&format!("/proc/{}/stat", record.pid))
            .ok()
            .as_deref()
            .and_then(state_and_start)
            .is_some_and(|(state, start)| start == record.start_time && !matches!(state, 'Z' | 'X' | 'x'))
}

fn read(path: &str) -> Result<String, JournalError> {
    let bytes = files::read_at(CWD, path, STAT_LIMIT_BYTES)
        .map_err(|e| JournalError::storage("read", Path::new(path), e))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Fields 3 and 22 of proc(5) `stat`. The command in field 2 may hold blanks and parentheses.
fn state_and_start(stat: &str) -> Option<(char, u64)> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?.chars().next()?;
    let start = fields.nth(18)?.parse().ok()?;
    Some((state, start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caller_lives_and_others_do_not() {
        let me = launcher_record().unwrap();
        assert_eq!(me.pid, std::process::id());
        assert!(is_alive(&me));
        assert!(
            !is_alive(&LauncherRecord { start_time: me.start_time + 1, ..me.clone() }),
            "pid taken again"
        );
        assert!(!is_alive(&LauncherRecord { boot_id: "another".into(), ..me.clone() }), "another boot");
        assert!(!is_alive(&LauncherRecord { pid: u32::MAX, ..me }), "no such pid");
    }

    #[test]
    fn a_command_with_parentheses_is_skipped() {
        let stat = "7 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20";
        assert_eq!(state_and_start(stat), Some(('S', 4242)));
        assert_eq!(state_and_start("7 (a"), None);
        assert_eq!(state_and_start("7 (a) S 1"), None);
    }
}
