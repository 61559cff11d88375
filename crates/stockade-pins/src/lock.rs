//! Locks between processes: `flock` on files that stay where they are.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Timespec, flock};
use rustix::io::Errno;

use crate::error::{PinError, PinErrorKind, Step};
use crate::progress::{Phase, Watch};

/// How often a lock held by another process is tried, and the caller asked whether to go on.
const TRY_EVERY: Duration = Duration::from_millis(100);
/// Longer than any download may take.
const PATIENCE: Duration = Duration::from_secs(2 * 60 * 60);

/// Takes the lock if nobody holds it.
pub(crate) fn try_lock(file: &File) -> Result<bool, Errno> {
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK) => return Ok(false),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Takes the lock, waiting for another holder as long as the caller likes, two hours at most.
pub(crate) fn lock(file: &File, path: &Path, watch: &mut Watch<'_>) -> Result<(), PinError> {
    let begin = Instant::now();
    while !try_lock(file).map_err(|errno| PinError::storage(Step::Lock, path, errno))? {
        watch.report(Step::Lock, Phase::Waiting, 0, None)?;
        if begin.elapsed() > PATIENCE {
            return Err(PinError::new(
                PinErrorKind::Storage,
                Step::Lock,
                "another process has held it for two hours",
            )
            .at(path));
        }
        pause();
    }
    Ok(())
}

fn pause() {
    let wait = Timespec { tv_sec: 0, tv_nsec: i64::from(TRY_EVERY.subsec_nanos()) };
    // Waking early, by a signal, only means trying earlier.
    let _early = rustix::event::poll(&mut [], Some(&wait));
}
