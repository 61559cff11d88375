//! PID 1's loop: the control socket and the ends of children. It walks no path the payload can change and runs nothing
//! the payload wrote.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::Pid;

use crate::error::{FenceError, FenceErrorKind, Step};
use crate::frames::{Frames, Received};
use crate::helper::listing::{self, Listing};
use crate::helper::place::Place;
use crate::helper::sweep::Swept;
use crate::helper::{memory, spawn, sweep};
use crate::message::{Exited, Report, Request, SpawnOrder};
use crate::role::{Role, RoleId, TreeStat};
use crate::sys::process::{self, Ended, Wait};

/// Most roles that live at a time.
const MAX_ROLES: usize = 64;
/// Names of left-behind processes that are reported.
const MAX_NAMES: usize = 8;

/// Serves until the runner says so or is gone.
pub(super) fn run(frames: &mut Frames, mut place: Place) -> ! {
    let children = match process::child_signals() {
        Ok(children) => children,
        Err(error) => super::fail(frames, error),
    };
    let listeners = std::mem::take(&mut place.listeners);
    let ready = Report::Ready {
        listeners: listeners.len(),
        max_processes: place.max_processes,
        phases: std::mem::take(&mut place.phases),
    };
    let descriptors: Vec<BorrowedFd<'_>> = listeners.iter().map(AsFd::as_fd).collect();
    if frames.send(&ready, &descriptors).is_err() {
        process::exit_now(0);
    }
    drop(listeners);
    let mut keeper = Keeper {
        place,
        children,
        roles: HashMap::new(),
        stray_cpu: Duration::ZERO,
        ended_cpu: Duration::ZERO,
    };
    loop {
        if keeper.turn(frames).is_err() {
            // The runner is gone, or this process cannot do its work: the kernel ends everything in here.
            process::exit_now(0);
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Living {
    id: RoleId,
    role: Role,
}

struct Keeper {
    place: Place,
    children: OwnedFd,
    roles: HashMap<Pid, Living>,
    /// Time of orphans that ended since the last role did.
    stray_cpu: Duration,
    ended_cpu: Duration,
}

impl Keeper {
    fn turn(&mut self, frames: &mut Frames) -> Result<(), FenceError> {
        let mut fds = [
            PollFd::from_borrowed_fd(frames.socket(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.children.as_fd(), PollFlags::IN),
        ];
        match rustix::event::poll(&mut fds, None) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(()),
            Err(e) => return Err(e).step("poll"),
        }
        let [_, children] = &fds;
        if !children.revents().is_empty() {
            self.reap(frames)?;
        }
        loop {
            match frames.poll::<Request>()? {
                Received::Message(request, descriptors) => self.answer(frames, request, &descriptors)?,
                Received::Nothing => return Ok(()),
                Received::End => process::exit_now(0),
            }
        }
    }

    fn answer(
        &mut self,
        frames: &mut Frames,
        request: Request,
        descriptors: &[OwnedFd],
    ) -> Result<(), FenceError> {
        match request {
            Request::Build(_) => {
                Err(FenceError::new(FenceErrorKind::Helper, "built already", Errno::ALREADY))
            }
            Request::Spawn(order) => {
                let report = match self.spawn(frames, &order, descriptors) {
                    Ok(()) => Report::Spawned,
                    Err(error) => Report::NotSpawned(error),
                };
                frames.send(&report, &[])
            }
            Request::Signal { role, signal } => {
                let report = match self.signal(role, signal) {
                    Ok(()) => Report::Signalled,
                    Err(error) => Report::NotSignalled(error),
                };
                frames.send(&report, &[])
            }
            Request::Stat => {
                let Listing { processes, total } = self.list()?;
                frames.send(&Report::Stat(TreeStat { processes, total, ended_cpu: self.ended_cpu }), &[])
            }
            Request::Memory => {
                frames.send(&Report::Memory { bytes: memory::in_use(self.place.processes)? }, &[])
            }
            Request::Close => {
                let left = count(self.list()?.alive());
                // Unheard is no matter: the end is what was asked for.
                let _unheard = frames.send(&Report::Closing { left }, &[]);
                process::exit_now(0)
            }
        }
    }

    fn list(&self) -> Result<Listing, FenceError> {
        let roles = self.roles.iter().map(|(pid, living)| (*pid, living.id)).collect();
        listing::list(self.place.processes, &roles)
    }

    fn spawn(&mut self, frames: &Frames, order: &SpawnOrder, stdio: &[OwnedFd]) -> Result<(), FenceError> {
        let main_lives = self.roles.values().any(|r| !r.role.is_companion());
        if main_lives && !order.role.is_companion() {
            return Err(FenceError::new(FenceErrorKind::Request, "another role is running", Errno::BUSY));
        }
        if self.roles.len() >= MAX_ROLES {
            return Err(FenceError::new(FenceErrorKind::Request, "64 roles are running", Errno::AGAIN));
        }
        let pid = spawn::spawn(&self.place, frames.socket(), order, stdio)?;
        self.roles.insert(pid, Living { id: order.id, role: order.role });
        Ok(())
    }

    fn signal(&self, role: Option<RoleId>, signal: i32) -> Result<(), FenceError> {
        let sent = match role {
            // ESRCH: nobody is there to be signalled.
            None => match process::signal_all(signal) {
                Err(Errno::SRCH) => Ok(()),
                other => other,
            },
            Some(id) => {
                let pid = self.roles.iter().find(|(_, living)| living.id == id).map(|(pid, _)| *pid);
                pid.ok_or(Errno::SRCH).and_then(|pid| process::signal(pid, signal))
            }
        };
        sent.step("kill")
    }

    /// Reaps everything that has ended. Whoever was no role's first process is an orphan.
    fn reap(&mut self, frames: &mut Frames) -> Result<(), FenceError> {
        sweep::drain(self.children.as_fd());
        loop {
            match process::reap(None, Wait::Poll) {
                Ok(Some(ended)) => self.ended(frames, &ended)?,
                Ok(None) | Err(Errno::CHILD) => return Ok(()),
                Err(e) => return Err(e).step("wait4"),
            }
        }
    }

    fn ended(&mut self, frames: &mut Frames, ended: &Ended) -> Result<(), FenceError> {
        self.ended_cpu += ended.cpu;
        let Some(living) = self.roles.remove(&ended.pid) else {
            self.stray_cpu += ended.cpu;
            return Ok(());
        };
        let others_live = !self.roles.is_empty();
        if others_live && living.role.is_companion() {
            return frames.send(&Report::Exited(exited(living.id, ended)), &[]);
        }
        self.end_everything(frames, living, ended)
    }

    /// The end of the main role, or of the last companion: records what it left, ends that, and only then tells.
    fn end_everything(
        &mut self,
        frames: &mut Frames,
        living: Living,
        ended: &Ended,
    ) -> Result<(), FenceError> {
        // Nobody to signal is nobody left: the usual case, and cheaper than a listing.
        let nobody = process::signal_all(0) == Err(Errno::SRCH);
        let left = if nobody { Listing::default() } else { self.list()? };
        let strays: Vec<_> = left.strays().collect();
        let mut notice = exited(living.id, ended);
        notice.left_behind = count(strays.iter().copied());
        notice.left_names = strays.iter().take(MAX_NAMES).map(|p| p.comm.clone()).collect();
        let swept =
            if nobody { Swept::default() } else { sweep::sweep(frames.socket(), self.children.as_fd()) };
        for (pid, companion) in std::mem::take(&mut self.roles) {
            if let Some(end) = sweep::end_of(pid, &swept.ended) {
                frames.send(&Report::Exited(exited(companion.id, end)), &[])?;
            } else {
                self.roles.insert(pid, companion);
            }
        }
        let swept_cpu: Duration = swept.ended.iter().map(|e| e.cpu).sum();
        self.ended_cpu += swept_cpu;
        notice.cpu += swept_cpu + std::mem::take(&mut self.stray_cpu);
        if swept.incomplete {
            notice.survivors = count(self.list()?.alive());
        }
        frames.send(&Report::Exited(notice), &[])
    }
}

fn exited(id: RoleId, ended: &Ended) -> Exited {
    Exited {
        role: id,
        code: ended.code,
        signal: ended.signal,
        left_behind: 0,
        left_names: Vec::new(),
        survivors: 0,
        cpu: ended.cpu,
        max_rss_kib: ended.max_rss_kib,
    }
}

fn count<'a>(processes: impl Iterator<Item = &'a crate::role::ProcessStat>) -> u32 {
    u32::try_from(processes.count()).unwrap_or(u32::MAX)
}
