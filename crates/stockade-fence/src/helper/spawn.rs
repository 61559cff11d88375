//! Starts a role: a child with three descriptors, limits, both locks, and then the program.

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, Resource, Rlimit};

use crate::canary;
use crate::confine::{landlock, seccomp};
use crate::error::{FenceError, FenceErrorKind, Step};
use crate::helper::place::Place;
use crate::message::{SpawnOrder, Work};
use crate::role::SpawnLimits;
use crate::sys::process::{self, Side, Wait};

/// A failure is told in far fewer bytes.
const MAX_FAILURE: usize = 8 * 1024;

/// What is executed, in the form the kernel wants. Made before the fork, so that bad requests cost nothing.
enum Prepared<'a> {
    Program { argv: Vec<CString>, env: Vec<CString>, cwd: CString },
    Canaries(&'a canary::CanaryPlan),
}

/// Starts a role and returns its process once the program runs.
pub(super) fn spawn(
    place: &Place,
    control: BorrowedFd<'_>,
    order: &SpawnOrder,
    stdio: &[OwnedFd],
) -> Result<Pid, FenceError> {
    let prepared = prepare(&order.work)?;
    let (failure, tell) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).step("pipe2")?;
    // SAFETY: PID 1 has one thread; the child ends by exec or `exit_now`.
    let pid = match unsafe { process::fork() }? {
        Side::Child => child(place, order, &prepared, stdio, &tell),
        Side::Parent(pid) => pid,
    };
    drop(tell);
    match wait_for_exec(control, &failure)? {
        None => Ok(pid),
        Some(error) => {
            process::reap(Some(pid), Wait::Block).step("wait4")?;
            Err(error)
        }
    }
}

fn prepare(work: &Work) -> Result<Prepared<'_>, FenceError> {
    match work {
        Work::Canaries(plan) => Ok(Prepared::Canaries(plan)),
        Work::Exec { argv, env, cwd } => {
            if !argv.first().is_some_and(|program| program.starts_with('/')) {
                return Err(request("the program is no absolute path"));
            }
            let env = env.iter().map(|(name, value)| c_string(&format!("{name}={value}")));
            Ok(Prepared::Program {
                argv: argv.iter().map(|a| c_string(a)).collect::<Result<_, _>>()?,
                env: env.collect::<Result<_, _>>()?,
                cwd: c_string(&cwd.to_string_lossy())?,
            })
        }
    }
}

fn c_string(text: &str) -> Result<CString, FenceError> {
    CString::new(text).map_err(|_| request("a NUL in argument, environment or directory"))
}

fn request(step: &'static str) -> FenceError {
    FenceError::new(FenceErrorKind::Request, step, Errno::INVAL)
}

fn child(place: &Place, order: &SpawnOrder, prepared: &Prepared<'_>, stdio: &[OwnedFd], tell: &OwnedFd) -> ! {
    let error = match enter(place, order.limits, prepared, stdio) {
        Ok(()) => match prepared {
            Prepared::Canaries(plan) => {
                // Nothing but the three descriptors, as the agent will have it; the pipe's end says that it runs.
                if process::close_from(3).is_err() {
                    process::exit_now(super::FAILED);
                }
                canary::run_inside(plan)
            }
            Prepared::Program { argv, env, .. } => execute(argv, env),
        },
        Err(error) => error,
    };
    if let Ok(text) = serde_json::to_vec(&error) {
        // Unheard means that the runner and PID 1 are gone.
        let _unheard = rustix::io::write(tell, &text);
    }
    process::exit_now(super::FAILED)
}

fn execute(argv: &[CString], env: &[CString]) -> FenceError {
    let Some(program) = argv.first() else { return request("the program is no absolute path") };
    let errno = process::exec(program, argv, env);
    FenceError::new(FenceErrorKind::Refused, "execve", errno).on(&*program.to_string_lossy())
}

/// Everything between fork and exec.
fn enter(
    place: &Place,
    limits: SpawnLimits,
    prepared: &Prepared<'_>,
    stdio: &[OwnedFd],
) -> Result<(), FenceError> {
    rustix::process::setsid().step("setsid")?;
    take_stdio(stdio)?;
    process::close_on_exec_from(3)?;
    if let Prepared::Program { cwd, .. } = prepared {
        rustix::process::chdir(cwd).step_on("chdir", &*cwd.to_string_lossy())?;
    }
    limit(limits)?;
    process::unblock_signals()?;
    if let Some(ruleset) = &place.ruleset {
        landlock::restrict(ruleset)?;
    }
    seccomp::install(&place.filter)
}

fn take_stdio(stdio: &[OwnedFd]) -> Result<(), FenceError> {
    // First out of the way of 0, 1 and 2, which one of them could be.
    let mut high = Vec::new();
    for fd in stdio {
        high.push(rustix::io::fcntl_dupfd_cloexec(fd, 3).step("fcntl(DUPFD)")?);
    }
    for (fd, number) in high.iter().zip(0..) {
        debug_assert_ne!(fd.as_raw_fd(), number, "moved above 2");
        process::duplicate_to(fd.as_fd(), number)?;
    }
    Ok(())
}

fn limit(limits: SpawnLimits) -> Result<(), FenceError> {
    set_limit(Resource::Core, 0).step("setrlimit(CORE)")?;
    let most = rustix::process::getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    set_limit(Resource::Nofile, limits.open_files.min(most)).step("setrlimit(NOFILE)")?;
    if let Some(bytes) = limits.file_bytes {
        let most = rustix::process::getrlimit(Resource::Fsize).maximum.unwrap_or(u64::MAX);
        set_limit(Resource::Fsize, bytes.min(most)).step("setrlimit(FSIZE)")?;
    }
    if let Some(count) = limits.processes {
        let most = rustix::process::getrlimit(Resource::Nproc).maximum.unwrap_or(u64::MAX);
        set_limit(Resource::Nproc, count.min(most)).step("setrlimit(NPROC)")?;
    }
    Ok(())
}

fn set_limit(resource: Resource, value: u64) -> Result<(), Errno> {
    rustix::process::setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) })
}

/// `None`: the pipe was closed by exec, so the program runs. Gives up when the runner is gone.
fn wait_for_exec(control: BorrowedFd<'_>, failure: &OwnedFd) -> Result<Option<FenceError>, FenceError> {
    loop {
        let mut fds = [
            PollFd::from_borrowed_fd(control, PollFlags::empty()),
            PollFd::from_borrowed_fd(failure.as_fd(), PollFlags::IN),
        ];
        match rustix::event::poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e).step("poll"),
        }
        let [control, failure_ready] = &fds;
        if control.revents().contains(PollFlags::HUP) {
            process::exit_now(0);
        }
        if failure_ready.revents().is_empty() {
            continue;
        }
        let mut text = vec![0; MAX_FAILURE];
        let n = rustix::io::read(failure, text.as_mut_slice()).step("read")?;
        let Some(text) = text.get(..n).filter(|t| !t.is_empty()) else { return Ok(None) };
        let error = serde_json::from_slice(text)
            .unwrap_or_else(|_| FenceError::bare(FenceErrorKind::Helper, "a failure that is not understood"));
        return Ok(Some(error));
    }
}
