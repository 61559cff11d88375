//! The helper: this executable, started again. Single-threaded, without a runtime.
//!
//! Stage A runs in the host's namespaces: it opens what is to be mounted, makes PID 1 and ends. PID 1 builds the place
//! and then serves the control socket. End of file on that socket is the lifeline: PID 1 ends, and the kernel ends
//! everything else in its PID namespace with it.

mod bubblewrap;
mod etc;
mod inner;
mod listing;
mod memory;
mod phases;
mod place;
mod proc;
mod serve;
mod sources;
mod spawn;
mod stage_a;
mod sweep;

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::sync::OnceLock;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::net::{AddressFamily, SocketType};

use crate::error::{FenceError, FenceErrorKind, Step};
use crate::frames::Frames;
use crate::message::Report;
use crate::sys::process;

/// What a helper is called in process lists. Nobody types this: it is argument zero.
const NAME: &str = "stockade-fence-helper";
/// The only argument of a helper; the number is that of the control protocol.
const ARGUMENT: &str = "fence-helper-protocol-1";
/// The first argument of a helper that bubblewrap has started inside; the second names the descriptor of its order.
const INNER_ARGUMENT: &str = "fence-inner-helper-protocol-1";
/// The code of a helper that could not do its work.
const FAILED: i32 = 125;

/// This executable, opened at the start: what is started again is what runs now, whatever lies at its path by then.
static OWN_EXECUTABLE: OnceLock<OwnedFd> = OnceLock::new();

/// Has to be called first in `main`, while the process has one thread. Returns unless this process is a helper.
///
/// A helper is recognised by its name, its one argument and a control socket made by its parent as standard input, so
/// that nobody becomes one by accident.
pub fn enter_if_asked() {
    let arguments: Vec<OsString> = std::env::args_os().take(4).collect();
    match arguments.as_slice() {
        [name, argument] if name == NAME && argument == ARGUMENT => {
            if let Some(control) = inherited_control() {
                run(control);
            }
        }
        [_, argument, order] if argument == INNER_ARGUMENT && is_first_process() => {
            if let (true, Some(order)) = (is_stream(rustix::stdio::stdin()), order.to_str()) {
                inner::run(order);
            }
        }
        _ => {}
    }
    if let Ok(executable) = rustix::fs::open("/proc/self/exe", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
    {
        // A second call changes nothing.
        let _already = OWN_EXECUTABLE.set(executable);
    }
}

/// Standard input, if it is a stream socket whose other end our parent made.
fn inherited_control() -> Option<OwnedFd> {
    let stdin = rustix::stdio::stdin();
    if !is_stream(stdin) {
        return None;
    }
    let peer = rustix::net::sockopt::socket_peercred(stdin).ok()?;
    let parent = rustix::process::getppid()?;
    if peer.pid != parent {
        return None;
    }
    rustix::io::fcntl_dupfd_cloexec(stdin, 3).ok()
}

fn is_stream(fd: BorrowedFd<'_>) -> bool {
    rustix::net::sockopt::socket_domain(fd) == Ok(AddressFamily::UNIX)
        && rustix::net::sockopt::socket_type(fd) == Ok(SocketType::STREAM)
}

/// Whether this is PID 1 of a namespace: its parent is outside, and so has no number here.
fn is_first_process() -> bool {
    rustix::process::getpid().is_init() && rustix::process::getppid().is_none()
}

fn run(control: OwnedFd) -> ! {
    let frames = Frames::new(control);
    let mut frames = match prepare() {
        Ok(()) => frames,
        Err(error) => fail(&frames, error),
    };
    match stage_a::run(&mut frames) {
        Ok(()) => process::exit_now(0),
        Err(error) => fail(&frames, error),
    }
}

/// Reports the failure, if somebody still listens, and ends.
fn fail(frames: &Frames, error: FenceError) -> ! {
    let _unheard = frames.send(&Report::Failed(error), &[]);
    process::exit_now(FAILED)
}

/// Leaves nothing of the caller's process behind but the control socket.
fn prepare() -> Result<(), FenceError> {
    shut_on_exec()?;
    process::default_signals();
    rustix::process::umask(Mode::from_raw_mode(0o022));
    rustix::thread::set_name(c"stockade-fence").step("prctl(SET_NAME)")?;
    let null = rustix::fs::openat(CWD, "/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .step_on("open", "/dev/null")?;
    process::duplicate_to(null.as_fd(), 0)
}

/// No descriptor but the first three outlives an exec; one is looked at, because a filter in place of the kernel may say so
/// and do nothing.
fn shut_on_exec() -> Result<(), FenceError> {
    let witness = rustix::io::dup(rustix::stdio::stdin()).step("dup")?;
    process::close_on_exec_from(3)?;
    let flags = rustix::io::fcntl_getfd(&witness).step("fcntl(GETFD)")?;
    if flags.contains(rustix::io::FdFlags::CLOEXEC) {
        return Ok(());
    }
    Err(FenceError::new(FenceErrorKind::Refused, "close_range(CLOEXEC)", rustix::io::Errno::PROTO))
}

/// The descriptor of this executable.
pub(crate) fn own_executable() -> Result<BorrowedFd<'static>, FenceError> {
    OWN_EXECUTABLE.get().map(OwnedFd::as_fd).ok_or_else(|| {
        FenceError::bare(FenceErrorKind::Request, "helper::enter_if_asked was not called at the start")
    })
}

/// Starts a helper, never by a path that somebody can change and never by a look-up.
pub(crate) fn start(control: OwnedFd) -> Result<Child, FenceError> {
    use std::os::fd::AsRawFd;
    let executable = format!("/proc/self/fd/{}", own_executable()?.as_raw_fd());
    #[expect(clippy::disallowed_methods, reason = "the one place that starts the fence's own helper")]
    std::process::Command::new(executable)
        .arg0(NAME)
        .arg(ARGUMENT)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::from(control))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .step("start the helper")
}
