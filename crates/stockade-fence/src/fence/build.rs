//! Building a fence: starts the helper, sends the order, and waits until the place is ready.

use std::collections::VecDeque;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::Pid;
use stockade_core::survey::Rung;

use crate::canary::{ProofError, ProofRequest};
use crate::error::{FenceError, FenceErrorKind, Step};
use crate::fence::prove::PlacedDecoys;
use crate::fence::{Fence, Listeners, through};
use crate::frames::{Frames, Received};
use crate::group::Group;
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
        StartedHelper::start()?.build(spec)?.finish()
    }
}

/// A helper that waits for its order. It starts beside whatever its runner does meanwhile; dropped, it is gone.
#[derive(Debug)]
pub struct StartedHelper {
    frames: Frames,
    stage_a: StageA,
    started: Duration,
}

impl StartedHelper {
    /// Starts one.
    pub fn start() -> Result<Self, FenceError> {
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
        let stage_a = StageA(Some(helper::start(theirs)?));
        Ok(Self { frames: Frames::new(mine), stage_a, started: start.elapsed() })
    }

    /// Gives it its order and returns at once.
    pub fn build(self, spec: &FenceSpec) -> Result<BuildingFence, FenceError> {
        spec.check()?;
        let start = Instant::now();
        let group = spec.group.as_ref().map(Group::make).transpose()?;
        let unsent = match self.frames.send(&Request::Build(Box::new(spec.clone())), &[]) {
            Ok(()) => None,
            Err(error) if error.kind() == FenceErrorKind::Request => return Err(error),
            // A helper that fails early closes its end unread, and has said why before.
            Err(error) => Some(error),
        };
        let phases = vec![("start".to_owned(), u64::try_from(self.started.as_micros()).unwrap_or(u64::MAX))];
        let Self { frames, stage_a, .. } = self;
        let spec = spec.clone();
        Ok(BuildingFence {
            frames,
            stage_a,
            complaints: None,
            born: None,
            phases,
            unsent,
            start,
            spec,
            group,
        })
    }
}

/// A fence that is being built. Dropped, no process of it is left.
#[derive(Debug)]
pub struct BuildingFence {
    frames: Frames,
    stage_a: StageA,
    /// What bubblewrap complains about, where the fence is built through it.
    complaints: Option<OwnedFd>,
    born: Option<Born>,
    phases: Vec<(String, u64)>,
    unsent: Option<FenceError>,
    start: Instant,
    spec: FenceSpec,
    /// Last, so that it goes when nothing is in it any more.
    group: Option<Group>,
}

/// The process that makes PID 1 and ends, or becomes the bubblewrap that waits for PID 1.
#[derive(Debug)]
struct StageA(Option<Child>);

impl Drop for StageA {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            // Gone already is as good as killed.
            let _gone = child.kill();
            let _reaped = child.wait();
        }
    }
}

#[derive(Debug)]
struct Born {
    pid: Pid,
    pidfd: OwnedFd,
}

struct Ready {
    listeners: Listeners,
    max_processes: Option<u32>,
}

impl BuildingFence {
    /// Waits until the place is ready.
    pub fn finish(mut self) -> Result<Fence, FenceError> {
        match self.wait() {
            Ok((born, ready)) => Ok(self.into_fence(born, ready)),
            Err(error) => {
                self.clear_away();
                Err(error)
            }
        }
    }

    /// Places the decoys of the canaries and shows that they can be reached outside, while the helper builds.
    pub fn place_decoys(&self, request: &ProofRequest) -> Result<PlacedDecoys, ProofError> {
        PlacedDecoys::place(request, self.spec.network, self.spec.rung)
    }

    fn wait(&mut self) -> Result<(Born, Ready), FenceError> {
        let end = self.start + BUILD_TIMEOUT;
        loop {
            match self.frames.wait::<Report>(end)? {
                Received::Message(Report::Born { pid, phases }, mut descriptors) => {
                    let pidfd = descriptors.pop().ok_or_else(|| garbled("no descriptor of PID 1"))?;
                    let pid = self.pid_here(pid, &pidfd)?;
                    self.born = Some(Born { pid, pidfd });
                    self.phases.extend(phases);
                }
                Received::Message(Report::Ready { max_processes, phases, .. }, descriptors) => {
                    let born = self.born.take().ok_or_else(|| garbled("ready before it was born"))?;
                    let listeners = listeners(self.spec.network, descriptors)?;
                    self.phases.extend(phases);
                    return Ok((born, Ready { listeners, max_processes }));
                }
                Received::Message(Report::Through { phases }, mut descriptors) => {
                    self.complaints = descriptors.pop();
                    self.phases.extend(phases);
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
                    if let Some(complaints) = self.complaints.take() {
                        return Err(through::complaint(complaints));
                    }
                    let ended = || FenceError::bare(FenceErrorKind::Helper, "the helper ended");
                    return Err(self.unsent.take().unwrap_or_else(ended));
                }
            }
        }
    }

    /// The id of PID 1 as this process sees it: stage A's word, or what the kernel says of the descriptor that came from
    /// inside.
    fn pid_here(&self, told: i32, pidfd: &OwnedFd) -> Result<Pid, FenceError> {
        if self.spec.rung != Rung::Bs {
            return Pid::from_raw(told).ok_or_else(|| garbled("a process id of 0"));
        }
        let bubblewrap = self.stage_a.0.as_ref().map_or(0, Child::id);
        through::first_process(pidfd, bubblewrap).ok_or_else(|| garbled("a descriptor of somebody else"))
    }

    fn into_fence(mut self, born: Born, ready: Ready) -> Fence {
        let facts = BuildFacts {
            pid: born.pid.as_raw_pid(),
            max_processes: ready.max_processes,
            phases: self.phases,
            elapsed: self.start.elapsed(),
        };
        Fence {
            frames: self.frames,
            pid: born.pid,
            pidfd: born.pidfd,
            stage_a: self.stage_a.0.take(),
            listeners: ready.listeners,
            facts,
            identity: self.spec.identity,
            network: self.spec.network,
            rung: self.spec.rung,
            group: self.group.take(),
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
    }
}

fn listeners(network: FenceNetwork, descriptors: Vec<OwnedFd>) -> Result<Listeners, FenceError> {
    let mut given = descriptors.into_iter();
    let mut next = || given.next().ok_or_else(|| garbled("fewer listeners than asked for"));
    let with_gateway = matches!(network, FenceNetwork::Gateway | FenceNetwork::GatewayWithEgress);
    let with_egress = network == FenceNetwork::GatewayWithEgress;
    let listeners = Listeners {
        model: if with_gateway { Some(TcpListener::from(next()?)) } else { None },
        names: if with_gateway { Some(UdpSocket::from(next()?)) } else { None },
        egress: if with_egress { Some(TcpListener::from(next()?)) } else { None },
    };
    if given.next().is_some() { Err(garbled("more listeners than asked for")) } else { Ok(listeners) }
}

fn garbled(what: &'static str) -> FenceError {
    FenceError::new(FenceErrorKind::Helper, what, Errno::PROTO)
}
