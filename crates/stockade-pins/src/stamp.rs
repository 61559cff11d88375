//! What the kernel says about a file, so that a digest needs to be taken again only when something has changed.

use rustix::fs::Stat;
use serde::{Deserialize, Serialize};

/// The identity and the times of a file whose digest is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stamp {
    /// The device the file is on.
    pub dev: u64,
    /// Its inode there.
    pub ino: u64,
    /// Its length in bytes.
    pub size: u64,
    /// When its content changed last, in nanoseconds since 1970.
    pub mtime_ns: i64,
    /// When its inode changed last, in nanoseconds since 1970; cannot be set back by a program.
    pub ctime_ns: i64,
}

impl Stamp {
    pub(crate) fn of(stat: &Stat) -> Self {
        Self {
            dev: stat.st_dev,
            ino: stat.st_ino,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            mtime_ns: nanoseconds(stat.st_mtime, stat.st_mtime_nsec),
            ctime_ns: nanoseconds(stat.st_ctime, stat.st_ctime_nsec),
        }
    }
}

fn nanoseconds(seconds: i64, fraction: u64) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(i64::try_from(fraction).unwrap_or(0))
}
