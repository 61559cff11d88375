//! As whom a payload runs on a root host.

use std::hash::{DefaultHasher, Hash, Hasher};

use rustix::io::Errno;

use crate::error::{FenceError, FenceErrorKind, Step};

/// The first kernel id that is given to a run: beyond the range systemd keeps for containers (which ends at 0x6FFF_FFFF).
const FIRST: u32 = 0x7000_0000;
/// How many ids there are to choose from. The last stays below 2³¹: some programs keep ids in signed numbers.
const COUNT: u32 = 0x0FFF_FFFF;
/// Files that hand out ids, and those that name them.
const SOURCES: [(&str, Holds); 4] = [
    ("/etc/passwd", Holds::Accounts),
    ("/etc/group", Holds::Accounts),
    ("/etc/subuid", Holds::Ranges),
    ("/etc/subgid", Holds::Ranges),
];
/// The largest such file that is read.
const MAX_FILE: u64 = 16 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holds {
    /// `name:password:id:…`
    Accounts,
    /// `name:first:count`
    Ranges,
}

/// Chooses a kernel id that is private to a run: outside everything that this host names or hands out.
pub fn private_kernel_id(run: &str) -> Result<u32, FenceError> {
    let mut taken = Vec::new();
    for (path, holds) in SOURCES {
        match read_bounded(path) {
            Ok(text) => taken.extend(ranges(&text, holds)),
            Err(e) if e.errno() == libc::ENOENT => {}
            Err(e) => return Err(e),
        }
    }
    choose(run, std::process::id(), &taken)
        .ok_or_else(|| FenceError::new(FenceErrorKind::Refused, "choose a private kernel id", Errno::BUSY))
}

fn read_bounded(path: &str) -> Result<String, FenceError> {
    use std::io::Read;
    let file = std::fs::File::open(path).step_on("open", path)?;
    let mut text = String::new();
    file.take(MAX_FILE).read_to_string(&mut text).step_on("read", path)?;
    Ok(text)
}

fn ranges(text: &str, holds: Holds) -> Vec<(u32, u32)> {
    text.lines()
        .filter_map(|line| {
            let mut fields = line.split(':');
            match holds {
                Holds::Accounts => Some((fields.nth(2)?.parse().ok()?, 1)),
                Holds::Ranges => Some((fields.nth(1)?.parse().ok()?, fields.next()?.trim().parse().ok()?)),
            }
        })
        .collect()
}

/// Starts at a place that follows from the run and moves on until nobody claims the id.
fn choose(run: &str, process: u32, taken: &[(u32, u32)]) -> Option<u32> {
    let mut hasher = DefaultHasher::new();
    (run, process).hash(&mut hasher);
    let mut offset = u32::try_from(hasher.finish() % u64::from(COUNT)).unwrap_or(0);
    for _ in 0..=taken.len() {
        let id = FIRST + offset;
        let Some((first, count)) = taken.iter().find(|(first, count)| id >= *first && id - first < *count)
        else {
            return Some(id);
        };
        // Past the claim, and round to the start where it reaches beyond the end.
        offset = first.saturating_add(*count).checked_sub(FIRST).filter(|o| *o < COUNT).unwrap_or(0);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_stable_per_run_and_differs_between_runs() {
        assert_eq!(choose("a", 1, &[]), choose("a", 1, &[]));
        assert_ne!(choose("a", 1, &[]), choose("b", 1, &[]));
        let id = private_kernel_id("a").unwrap();
        assert!((FIRST..FIRST + COUNT).contains(&id));
    }

    #[test]
    fn claimed_ids_are_passed_over() {
        let free = choose("a", 1, &[]).unwrap();
        assert_eq!(choose("a", 1, &[(free, 1)]), Some(free + 1));
        assert_eq!(choose("a", 1, &[(free - 5, 10), (free + 5, 1)]), Some(free + 6));
        assert_eq!(choose("a", 1, &[(free, u32::MAX)]), Some(FIRST));
        assert_eq!(choose("a", 1, &[(0, u32::MAX)]), None);
    }

    #[test]
    fn both_kinds_of_file_are_read() {
        assert_eq!(ranges("root:x:0:0:root:/:/bin/sh\nbad\n", Holds::Accounts), [(0, 1)]);
        assert_eq!(ranges("me:100000:65536\n:\n", Holds::Ranges), [(100_000, 65_536)]);
    }
}
