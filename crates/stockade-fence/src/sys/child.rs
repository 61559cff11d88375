//! A step tried in a child, so that it cannot change this process.

use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{FenceError, FenceErrorKind, Step};
use crate::sys::process::{self, Side, Wait};

/// The largest answer of a child.
const MAX_ANSWER: u64 = 256 * 1024;

/// Runs `work` in a forked child and returns what it returned. After `limit` the child is killed.
pub(crate) fn run<T: Serialize + DeserializeOwned>(
    limit: Duration,
    work: impl FnOnce() -> Result<T, FenceError>,
) -> Result<T, FenceError> {
    let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).step("pipe2")?;
    // SAFETY: the child ends by `exit_now`; it allocates, which the C library makes safe after its own fork.
    let child = match unsafe { process::fork() }? {
        Side::Child => {
            drop(reader);
            answer(writer, &work());
            process::exit_now(0)
        }
        Side::Parent(pid) => pid,
    };
    drop(writer);
    let bytes = read_until(reader, limit);
    if bytes.is_err() {
        // Gone already is as good as killed.
        let _gone = process::signal(child, libc::SIGKILL);
    }
    process::reap(Some(child), Wait::Block).step("wait4")?;
    serde_json::from_slice::<Result<T, FenceError>>(&bytes?).unwrap_or_else(|_| {
        Err(FenceError::bare(FenceErrorKind::Helper, "the child ended without an answer"))
    })
}

fn answer<T: Serialize>(writer: OwnedFd, result: &Result<T, FenceError>) {
    if let Ok(bytes) = serde_json::to_vec(result) {
        // The parent tells a missing answer from a good one.
        let _unheard = std::fs::File::from(writer).write_all(&bytes);
    }
}

fn read_until(reader: OwnedFd, limit: Duration) -> Result<Vec<u8>, FenceError> {
    let end = Instant::now() + limit;
    let mut bytes = Vec::new();
    let mut file = std::fs::File::from(reader);
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).ok();
        let mut poll = [PollFd::from_borrowed_fd(file.as_fd(), PollFlags::IN)];
        match rustix::event::poll(&mut poll, timeout.as_ref()) {
            Ok(0) => {
                return Err(FenceError::new(FenceErrorKind::Helper, "wait for a child", Errno::TIMEDOUT));
            }
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(e) => return Err(e).step("poll"),
        }
        let mut chunk = [0; 4096];
        let n = file.read(&mut chunk).step("read")?;
        bytes.extend(chunk.iter().take(n));
        if n == 0 || bytes.len() as u64 > MAX_ANSWER {
            return Ok(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_errors_silence_and_delay_are_told_apart() {
        let limit = Duration::from_secs(5);
        assert_eq!(run(limit, || Ok(7)), Ok(7));
        let refused = run::<()>(limit, || Err(Errno::PERM).step("unshare(NEWUSER)")).unwrap_err();
        assert_eq!((refused.step(), refused.errno()), ("unshare(NEWUSER)", libc::EPERM));
        let silent = run::<()>(limit, || process::exit_now(3)).unwrap_err();
        assert_eq!(silent.kind(), FenceErrorKind::Helper);
        let late = run::<()>(Duration::from_millis(30), || {
            loop {
                rustix::event::pause();
            }
        })
        .unwrap_err();
        assert_eq!(late.errno(), libc::ETIMEDOUT);
    }
}
