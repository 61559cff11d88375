//! A fence, seen by the runner that built it.

mod build;
mod ending;
mod prove;
mod through;

use std::collections::VecDeque;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::Pid;
use stockade_core::survey::Rung;

use crate::error::{FenceError, FenceErrorKind};
use crate::frames::{Frames, Received};
use crate::group::{Group, MemoryReading};
use crate::message::{Exited, Report, Request, SpawnOrder, Work};
use crate::role::{Role, RoleId, SpawnLimits, SpawnRequest, Target, TreeStat};
use crate::spec::{FenceNetwork, Identity};

pub use build::{BuildFacts, BuildingFence, StartedHelper};
pub use ending::{Stuck, TreeEnd};
pub use prove::PlacedDecoys;

/// How long the helper may take to answer. It does nothing that waits for anybody else.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Notices that are kept for the caller. There are never more than roles.
const MAX_NOTICES: usize = 4096;

/// A place with nobody in it yet, or with a role at work. It dies with this process, and when dropped.
#[derive(Debug)]
pub struct Fence {
    frames: Frames,
    pid: Pid,
    pidfd: OwnedFd,
    stage_a: Option<Child>,
    listeners: Listeners,
    facts: BuildFacts,
    identity: Identity,
    network: FenceNetwork,
    rung: Rung,
    group: Option<Group>,
    notices: VecDeque<Notice>,
    next_role: u32,
    /// The helper is gone or has broken its protocol: nothing is asked of it any more.
    ended: bool,
    reaped: bool,
}

/// Listeners made inside, for the gateway outside.
#[derive(Debug, Default)]
pub struct Listeners {
    /// TCP 127.0.0.1:8080 inside; blocking until the caller sets it otherwise.
    pub model: Option<TcpListener>,
    /// UDP 127.0.0.1:53 inside; blocking until the caller sets it otherwise.
    pub names: Option<UdpSocket>,
    /// TCP 127.0.0.1:3128 inside; blocking until the caller sets it otherwise.
    pub egress: Option<TcpListener>,
}

/// Something that happened in the fence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A role ended, and what it left behind is gone.
    Exited(Exited),
    /// The fence is no more: the last notice.
    Closed,
}

impl Fence {
    /// Takes the listeners. A second time there are none.
    pub fn take_listeners(&mut self) -> Listeners {
        std::mem::take(&mut self.listeners)
    }

    /// What the build found out.
    pub fn facts(&self) -> &BuildFacts {
        &self.facts
    }

    /// Starts a program in the fence and returns once it runs. The three descriptors become its standard streams and
    /// are closed here (see [`stdio`](crate::stdio)).
    ///
    /// Of the roles that are not companions (client files, client terminals, MCP servers) one lives at a time.
    pub fn spawn(&mut self, spawn: &SpawnRequest, stdio: [OwnedFd; 3]) -> Result<RoleId, FenceError> {
        let work = Work::Exec { argv: spawn.argv.clone(), env: spawn.env.clone(), cwd: spawn.cwd.clone() };
        self.start(spawn.role, work, spawn.limits, stdio)
    }

    fn start(
        &mut self,
        role: Role,
        work: Work,
        limits: SpawnLimits,
        stdio: [OwnedFd; 3],
    ) -> Result<RoleId, FenceError> {
        self.next_role += 1;
        let id = RoleId(self.next_role);
        let order = SpawnOrder { id, role, work, limits };
        let answer = self.ask(&Request::Spawn(order), &stdio.each_ref().map(AsFd::as_fd));
        // Whatever came of it: a role whose other ends stay open here would never see their end.
        drop(stdio);
        match answer? {
            Report::Spawned => Ok(id),
            Report::NotSpawned(error) => Err(error),
            _ => Err(self.broken("an answer to another question")),
        }
    }

    /// Sends a signal. A role that has ended already is ESRCH.
    pub fn signal(&mut self, target: Target, signal: i32) -> Result<(), FenceError> {
        let role = match target {
            Target::Role(id) => Some(id),
            Target::All => None,
        };
        match self.ask(&Request::Signal { role, signal }, &[])? {
            Report::Signalled => Ok(()),
            Report::NotSignalled(error) => Err(error),
            _ => Err(self.broken("an answer to another question")),
        }
    }

    /// Lists every process in the fence.
    pub fn stat(&mut self) -> Result<TreeStat, FenceError> {
        match self.ask(&Request::Stat, &[])? {
            Report::Stat(stat) => Ok(stat),
            _ => Err(self.broken("an answer to another question")),
        }
    }

    /// How much memory everything in the fence has, in bytes, each shared page counted once. Costs the kernel a walk of
    /// all page tables.
    pub fn memory(&mut self) -> Result<u64, FenceError> {
        match self.ask(&Request::Memory, &[])? {
            Report::Memory { bytes } => Ok(bytes),
            _ => Err(self.broken("an answer to another question")),
        }
    }

    /// What the memory controller has counted; `None`: the fence has no control group with one.
    pub fn group_memory(&self) -> Option<MemoryReading> {
        self.group.as_ref().and_then(Group::memory)
    }

    /// The next thing that happened; `None`: nothing more yet. Never blocks.
    ///
    /// A caller that waits for [`Fence::control`] to become readable has to call this until it returns `None`, and also
    /// after each other call, which may have met notices on its way.
    pub fn next_notice(&mut self) -> Result<Option<Notice>, FenceError> {
        if self.notices.is_empty() && !self.ended {
            match self.frames.poll::<Report>() {
                Ok(Received::Message(report, _)) => self.keep(report)?,
                Ok(Received::Nothing) => {}
                Ok(Received::End) => self.end(),
                Err(error) => {
                    self.end();
                    return Err(error);
                }
            }
        }
        Ok(self.notices.pop_front())
    }

    /// Readable when [`Fence::next_notice`] has something to say.
    pub fn control(&self) -> BorrowedFd<'_> {
        self.frames.socket()
    }

    /// A descriptor of PID 1: readable means that every process of the fence is gone.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Asks and waits for the answer, keeping notices that come in between.
    fn ask(&mut self, request: &Request, descriptors: &[BorrowedFd<'_>]) -> Result<Report, FenceError> {
        if self.ended {
            return Err(FenceError::new(FenceErrorKind::Helper, "ask the helper", Errno::PIPE));
        }
        match self.frames.send(request, descriptors) {
            Ok(()) => self.hear(),
            Err(error) => {
                if error.kind() == FenceErrorKind::Helper {
                    self.hear_the_rest();
                }
                Err(error)
            }
        }
    }

    /// The helper takes nothing any more: keeps what it said before.
    fn hear_the_rest(&mut self) {
        while let Ok(Received::Message(report, _)) = self.frames.poll::<Report>() {
            if self.keep(report).is_err() {
                break;
            }
        }
        self.end();
    }

    fn hear(&mut self) -> Result<Report, FenceError> {
        let end = Instant::now() + ANSWER_TIMEOUT;
        loop {
            match self.frames.wait::<Report>(end) {
                Ok(Received::Message(report @ Report::Exited(_), _)) => self.keep(report)?,
                Ok(Received::Message(report, _)) => return Ok(report),
                Ok(Received::Nothing) => {
                    self.end();
                    return Err(FenceError::new(
                        FenceErrorKind::Helper,
                        "wait for the helper",
                        Errno::TIMEDOUT,
                    ));
                }
                Ok(Received::End) => {
                    self.end();
                    return Err(FenceError::bare(FenceErrorKind::Helper, "the helper ended"));
                }
                Err(error) => {
                    self.end();
                    return Err(error);
                }
            }
        }
    }

    fn keep(&mut self, report: Report) -> Result<(), FenceError> {
        match report {
            Report::Exited(exited) if self.notices.len() < MAX_NOTICES => {
                self.notices.push_back(Notice::Exited(exited));
                Ok(())
            }
            _ => Err(self.broken("a message nobody asked for")),
        }
    }

    fn broken(&mut self, what: &'static str) -> FenceError {
        self.end();
        FenceError::new(FenceErrorKind::Helper, what, Errno::PROTO)
    }

    fn end(&mut self) {
        if !self.ended {
            self.ended = true;
            self.notices.push_back(Notice::Closed);
        }
    }
}
