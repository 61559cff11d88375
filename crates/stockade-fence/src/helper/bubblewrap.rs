//! Stage A of a fence through bubblewrap: checks the sources, says what is to be mounted, and becomes bubblewrap.
//!
//! bubblewrap makes the namespaces and the root, in one user namespace and no second one, and starts this executable again
//! as PID 1 of the place. It walks the sources by their paths, so PID 1 compares what it finds with what was checked here.

mod arguments;

use std::convert::Infallible;
use std::ffi::CString;
use std::fs::File;
use std::io::{Seek, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, MemfdFlags, Mode, OFlags};
use rustix::io::{Errno, FdFlags};
use rustix::pipe::PipeFlags;
use serde::{Deserialize, Serialize};

use crate::error::{FenceError, FenceErrorKind, Step};
use crate::frames::Frames;
use crate::helper::etc;
use crate::helper::phases::Phases;
use crate::helper::sources::{Gathered, Source};
use crate::message::Report;
use crate::spec::{BindAccess, FenceSpec};
use crate::sys::files::{self, Seen};
use crate::sys::{process, trusted};

use arguments::{Arguments, Command};

/// What PID 1 is told by stage A.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct InnerOrder {
    pub(super) spec: FenceSpec,
    /// Everything that bubblewrap was told to bind.
    pub(super) bound: Vec<Bound>,
}

/// Something bound, as it was checked on the host.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Bound {
    pub(super) target: std::path::PathBuf,
    pub(super) access: BindAccess,
    pub(super) seen: Seen,
}

/// Becomes bubblewrap. Returns only the error.
pub(super) fn take_over(
    frames: &Frames,
    spec: &FenceSpec,
    gathered: Gathered,
    mut clock: Phases,
) -> Result<Infallible, FenceError> {
    let missing = || FenceError::new(FenceErrorKind::Request, "no bubblewrap", Errno::INVAL);
    let program = trusted::path_of(spec.bubblewrap.as_deref().ok_or_else(missing)?)?;
    if rustix::process::geteuid().is_root() {
        rustix::thread::set_thread_groups(&[]).step("setgroups(none)")?;
    }
    let sources: Vec<Source> = gathered.sources.into_iter().filter(|s| !s.is_device()).collect();
    mount_points_exist(&sources)?;
    let own = rustix::fs::openat(CWD, "/proc/self/exe", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .step_on("open", "/proc/self/exe")?;
    let etc: Vec<(&str, OwnedFd)> = etc::generated(spec, &etc::of_host(spec)?)
        .into_iter()
        .map(|(name, text)| Ok((name, in_memory(text.as_bytes())?)))
        .collect::<Result<_, FenceError>>()?;
    let bound = sources
        .iter()
        .map(|s| Bound { target: s.target.clone(), access: s.access, seen: s.seen() })
        .collect();
    let text = serde_json::to_vec(&InnerOrder { spec: spec.clone(), bound })
        .map_err(|_| FenceError::new(FenceErrorKind::Request, "write the order", Errno::INVAL))?;
    let order = in_memory(&text)?;
    let mut arguments = Arguments::new(spec);
    arguments.root(&gathered.links, &etc);
    arguments.bind(&sources);
    let command = Command { program: own.as_raw_fd(), order: order.as_raw_fd() };
    let argv: Vec<CString> = arguments.finish(command).into_iter().map(c_string).collect::<Result<_, _>>()?;
    clock.mark("arguments");
    let (complaints, complain) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).step("pipe2")?;
    frames.send(&Report::Through { phases: clock.finish() }, &[complaints.as_fd()])?;
    drop(complaints);
    process::duplicate_to(frames.socket(), 0)?;
    process::duplicate_to(complain.as_fd(), 2)?;
    for fd in [&own, &order].into_iter().chain(etc.iter().map(|(_, fd)| fd)) {
        rustix::io::fcntl_setfd(fd, FdFlags::empty()).step("fcntl(SETFD)")?;
    }
    let path = c_string(program.to_string_lossy().into_owned())?;
    let errno = process::exec(&path, &argv, &[]);
    Err(FenceError::new(FenceErrorKind::Refused, "execve(bwrap)", errno).on(program))
}

fn c_string(text: String) -> Result<CString, FenceError> {
    CString::new(text).map_err(|_| FenceError::new(FenceErrorKind::Request, "a NUL in a path", Errno::INVAL))
}

/// bubblewrap makes what is missing, and inside a bind that would be in a folder of the host.
fn mount_points_exist(sources: &[Source]) -> Result<(), FenceError> {
    for source in sources {
        for around in sources.iter().filter(|o| o.target != source.target) {
            if let Ok(rest) = source.target.strip_prefix(&around.target) {
                let at = around.path().join(rest);
                files::open_strict(&at).map_err(|e| e.of_kind(FenceErrorKind::Source))?;
            }
        }
    }
    Ok(())
}

fn in_memory(bytes: &[u8]) -> Result<OwnedFd, FenceError> {
    let fd = rustix::fs::memfd_create("stockade", MemfdFlags::CLOEXEC).step("memfd_create")?;
    let mut file = File::from(fd);
    file.write_all(bytes).step("write(memfd)")?;
    file.rewind().step("lseek(memfd)")?;
    Ok(file.into())
}

/// Reads what stage A left for PID 1 at this descriptor.
pub(super) fn read_order(number: &str) -> Result<InnerOrder, FenceError> {
    let garbled = || FenceError::new(FenceErrorKind::Helper, "read the order", Errno::PROTO);
    let fd: u32 = number.parse().map_err(|_| garbled())?;
    let path = format!("/proc/self/fd/{fd}");
    let text = std::fs::read(Path::new(&path)).step("open(order)")?;
    serde_json::from_slice(&text).map_err(|_| garbled())
}
