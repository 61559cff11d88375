//! Standard streams of a role: the payload's ends, and the caller's.

use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::pipe::PipeFlags;

use crate::error::{FenceError, Step};

/// The caller's ends of a role's streams.
#[derive(Debug)]
pub struct CallerEnds {
    /// What is written here is the role's standard input; closing it is its end of file.
    pub stdin: OwnedFd,
    /// The role's standard output.
    pub stdout: OwnedFd,
    /// The role's standard error.
    pub stderr: OwnedFd,
}

/// Streams of an agent: sockets for input and output, which cannot be opened again through /proc (ENXIO), so that no
/// tool forges the agent's words that way; a pipe for errors.
pub fn sockets() -> Result<([OwnedFd; 3], CallerEnds), FenceError> {
    let (theirs_in, stdin) = socket_pair()?;
    let (theirs_out, stdout) = socket_pair()?;
    let (stderr, theirs_err) = pipe()?;
    Ok(([theirs_in, theirs_out, theirs_err], CallerEnds { stdin, stdout, stderr }))
}

/// Streams of exports, terminals and probes: pipes, because shell scripts open /dev/stdin and /dev/stdout again.
pub fn pipes() -> Result<([OwnedFd; 3], CallerEnds), FenceError> {
    let (theirs_in, stdin) = pipe()?;
    let (stdout, theirs_out) = pipe()?;
    let (stderr, theirs_err) = pipe()?;
    Ok(([theirs_in, theirs_out, theirs_err], CallerEnds { stdin, stdout, stderr }))
}

fn socket_pair() -> Result<(OwnedFd, OwnedFd), FenceError> {
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .step("socketpair")
}

fn pipe() -> Result<(OwnedFd, OwnedFd), FenceError> {
    rustix::pipe::pipe_with(PipeFlags::CLOEXEC).step("pipe2")
}
