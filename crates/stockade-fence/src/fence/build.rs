//! Building a fence: starts the helper, sends the order, and waits until the place is ready.

use std::collections::VecDeque;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::Pid;

use crate::error::{FenceError, FenceErrorKind, Step};
use crate::fence::{Fence, Listeners};
use crate::frames::{Frames, Received};
use crate::helper;
use crate::message::{Report, Request};
use crate::spec::{FenceNetwork, FenceSpec};

/// How long a build may take; one takes about 4 ms.
const BUILD_TIMEOUT: Duration = Duration::from_secs(10);

/// What a build found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildFacts {
    /// The process id of PID 1 on the host.
    pub pid: i32,
    /// The limit of processes that the kernel enforces; `None`: none is enforced and somebody has to watch.
    pub max_processes: Option<u32>,
    /// Where the time inside went: (phase, microseconds).
    pub phases: Vec<(String, u64)>,
    /// How long the build took.
    pub elapsed: Duration,
}

impl Fence {
    /// Builds a fence, or says at which step it could not. Takes exactly what is asked for and never less.
    pub fn build(spec: &FenceSpec) -> Result<Self, FenceError> {
        spec.check()?;
        let start = Instant::now();
        let (mine, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                .step("socketpair")?;
        // A helper that is stopped must not stop the runner.
        rustix::net::sockopt::set_socket_timeout(
            &mine,
            rustix::net::sockopt::Timeout::Send,
            Some(BUILD_TIMEOUT),
        )
        .step("setsockopt(SNDTIMEO)")?;
        let stage_a = helper::start(theirs)?;
        let phases =
            vec![("start".to_owned(), u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX))];
        let mut building = Building { frames: Frames::new(mine), stage_a, born: None, phases };
        match building.finish(spec, start + BUILD_TIMEOUT) {
            Ok((born, ready)) => Ok(building.into_fence(spec, born, ready, start)),
            Err(error) => {
                building.clear_away();
                Err(error)
            }
        }
    }
}

struct Building {
    frames: Frames,
    stage_a: Child,
    born: Option<Born>,
    phases: Vec<(String, u64)>,
}

struct Born {
    pid: Pid,
    pidfd: OwnedFd,
}

struct Ready {
    listeners: Listeners,
    max_processes: Option<u32>,
}

impl Building {
    fn finish(&mut self, spec: &FenceSpec, end: Instant) -> Result<(Born, Ready), FenceError> {
        let unsent = match self.frames.send(&Request::Build(Box::new(spec.clone())), &[]) {
            Ok(()) => None,
            Err(error) if error.kind() == FenceErrorKind::Request => return Err(error),
            // A helper that fails early closes its end unread, and has said why before.
            Err(error) => Some(error),
        };
        loop {
            match self.frames.wait::<Report>(end)? {
                Received::Message(Report::Born { pid, phases }, mut descriptors) => {
                    let pid = Pid::from_raw(pid).ok_or_else(|| garbled("a process id of 0"))?;
                    let pidfd = descriptors.pop().ok_or_else(|| garbled("no descriptor of PID 1"))?;
                    self.born = Some(Born { pid, pidfd });
                    self.phases.extend(phases);
                }
                Received::Message(Report::Ready { max_processes, phases, .. }, descriptors) => {
                    let born = self.born.take().ok_or_else(|| garbled("ready before it was born"))?;
                    let listeners = listeners(spec.network, descriptors)?;
                    self.phases.extend(phases);
                    return Ok((born, Ready { listeners, max_processes }));
                }
                Received::Message(Report::Failed(error), _) => return Err(error),
                Received::Message(..) => return Err(garbled("a message nobody asked for")),
                Received::Nothing => {
                    return Err(FenceError::new(
                        FenceErrorKind::Helper,
                        "wait for the build",
                        Errno::TIMEDOUT,
                    ));
                }
                Received::End => {
                    let ended = || FenceError::bare(FenceErrorKind::Helper, "the helper ended");
                    return Err(unsent.unwrap_or_else(ended));
                }
            }
        }
    }

    fn into_fence(self, spec: &FenceSpec, born: Born, ready: Ready, start: Instant) -> Fence {
        let facts = BuildFacts {
            pid: born.pid.as_raw_pid(),
            max_processes: ready.max_processes,
            phases: self.phases,
            elapsed: start.elapsed(),
        };
        Fence {
            frames: self.frames,
            pid: born.pid,
            pidfd: born.pidfd,
            stage_a: Some(self.stage_a),
            listeners: ready.listeners,
            facts,
            identity: spec.identity,
            network: spec.network,
            rung: spec.rung,
            notices: VecDeque::new(),
            next_role: 0,
            ended: false,
            reaped: false,
        }
    }

    /// Leaves no process of a failed build behind.
    fn clear_away(mut self) {
        if let Some(born) = self.born.take() {
            // Gone already is as good as killed.
            let _gone = rustix::process::pidfd_send_signal(&born.pidfd, rustix::process::Signal::KILL);
            super::ending::reap(&born.pidfd);
        }
        let _gone = self.stage_a.kill();
        let _reaped = self.stage_a.wait();
    }
}

fn listeners(network: FenceNetwork, descriptors: Vec<OwnedFd>) -> Result<Listeners, FenceError> {
    match (network, <[OwnedFd; 2]>::try_from(descriptors)) {
        (FenceNetwork::Gateway, Ok([model, names])) => {
            Ok(Listeners { model: Some(TcpListener::from(model)), names: Some(UdpSocket::from(names)) })
        }
        (FenceNetwork::Empty | FenceNetwork::Host, Err(none)) if none.is_empty() => Ok(Listeners::default()),
        _ => Err(garbled("other listeners than asked for")),
    }
}

fn garbled(what: &'static str) -> FenceError {
    FenceError::new(FenceErrorKind::Helper, what, Errno::PROTO)
}
