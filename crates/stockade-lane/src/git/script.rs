//! Running a script of git's in a fence, as the role `export`.

use std::{fs::File, io::Write as _, os::fd::AsFd as _, path::Path, time::Duration};

use stockade_core::{
    limits::{LimitBy, LimitId},
    plan::LaunchPlan,
    status::{Boundary, Cause, Refusal, Status},
};
use stockade_fence::{Fence, FenceError, Notice, Role, SpawnLimits, SpawnRequest, stdio};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, Interest},
    net::{UnixStream, unix::pipe},
    sync::mpsc,
    time::Instant,
};

use crate::{place, request::StopRequest};

/// Git in a large repository takes a minute; nothing takes longer than this.
const LIMIT: Duration = Duration::from_secs(600);
/// A report names every branch and tag.
const REPORT_LIMIT_BYTES: u64 = 64 * 1024 * 1024;
/// What git says about a failure.
const SAID_LIMIT_BYTES: usize = 4 * 1024;
const CHUNK_BYTES: usize = 64 * 1024;
/// How long a script that was killed may take to be gone.
const KILL_TIME: Duration = Duration::from_secs(5);

/// A script to run.
#[derive(Debug)]
pub(super) struct Script<'s> {
    pub(super) text: &'static str,
    pub(super) arguments: Vec<String>,
    pub(super) env: &'s [(String, String)],
    pub(super) cwd: &'s Path,
    pub(super) input: Vec<u8>,
}

/// Where its output goes.
#[derive(Debug)]
pub(super) enum Sink<'f> {
    Report(Vec<u8>),
    /// A file, and how many bytes of it may be.
    File(&'f mut File, u64),
}

/// How it ended.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) code: Option<i32>,
    /// The report; empty where it went to a file.
    pub(super) report: Vec<u8>,
    /// Bytes of its output.
    pub(super) bytes: u64,
    /// The last it said on standard error.
    pub(super) said: String,
}

/// Why it did not come to its end.
#[derive(Debug, thiserror::Error)]
pub(super) enum ScriptError {
    #[error("the fence broke: {0}")]
    Fence(#[from] FenceError),
    #[error("its streams broke: {0}")]
    Io(#[from] std::io::Error),
    #[error("it took longer than ten minutes")]
    TooLong,
    #[error("it gave more than {0} bytes")]
    TooMuch(u64),
    #[error("stopped by {0}")]
    Stopped(&'static str),
}

impl ScriptError {
    /// The same as a refusal, before the agent starts.
    pub(super) fn refusal(&self) -> Refusal {
        let (status, code, boundary) = match self {
            Self::Stopped(_) => (Status::Cancelled, "cancelled", Boundary::Order),
            Self::TooLong | Self::TooMuch(_) => {
                (Status::WorkspaceRefused, "git-prepare", Boundary::Workspace)
            }
            Self::Fence(_) | Self::Io(_) => (Status::LauncherFailed, "git-prepare", Boundary::Fence),
        };
        let message = format!("the worktree could not be prepared: {self}");
        Refusal::new(status, Cause::new(code, boundary, "git(prepare)", message))
    }
}

/// Runs a script to its end and reads all it says.
pub(super) async fn run(
    fence: &mut Fence,
    plan: &LaunchPlan,
    script: Script<'_>,
    mut sink: Sink<'_>,
    stops: &mut mpsc::Receiver<StopRequest>,
) -> Result<Ran, ScriptError> {
    let (theirs, ends) = stdio::pipes()?;
    let mut argv: Vec<String> = ["/bin/sh", "-c", script.text, "git"].map(str::to_owned).to_vec();
    argv.extend(script.arguments);
    let request = SpawnRequest {
        role: Role::Export,
        argv,
        env: script.env.to_vec(),
        cwd: script.cwd.to_owned(),
        limits: SpawnLimits {
            open_files: plan.limits.max_open_files,
            file_bytes: Some(plan.limits.max_file_bytes),
            processes: place::held_by(plan, LimitId::Processes, LimitBy::Nproc),
        },
    };
    fence.spawn(&request, theirs)?;
    let control = control(fence)?;
    let mut stdin = Some(pipe::Sender::from_owned_fd(ends.stdin)?);
    let mut stdout = Some(pipe::Receiver::from_owned_fd(ends.stdout)?);
    let mut stderr = Some(pipe::Receiver::from_owned_fd(ends.stderr)?);
    let (mut out, mut err) = (vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]);
    let end = Instant::now() + LIMIT;
    let (mut bytes, mut said, mut input, mut code) = (0, Vec::new(), script.input.as_slice(), None);
    let mut exited = exited(fence)?;
    let mut stops_open = true;
    while exited.is_none() || stdout.is_some() || stderr.is_some() {
        if input.is_empty() {
            stdin = None;
        }
        tokio::select! {
            biased;
            stop = stops.recv(), if stops_open => match stop {
                Some(StopRequest::Cancel(why) | StopRequest::Kill(why)) => {
                    return Err(ScriptError::Stopped(why));
                }
                None => stops_open = false,
            },
            () = tokio::time::sleep_until(end) => return Err(ScriptError::TooLong),
            ready = control.readable(), if exited.is_none() => {
                ready?;
                exited = self::exited(fence)?;
                // Forgets the readiness; what came before it is looked at once more.
                drop(control.try_io(Interest::READABLE, || {
                    Err::<(), _>(std::io::Error::from(std::io::ErrorKind::WouldBlock))
                }));
                if exited.is_none() {
                    exited = self::exited(fence)?;
                }
            }
            read = some(&mut stdout, &mut out), if stdout.is_some() => match read? {
                0 => stdout = None,
                n => {
                    bytes += n as u64;
                    sink.take(out.get(..n).unwrap_or_default(), bytes)?;
                }
            },
            read = some(&mut stderr, &mut err), if stderr.is_some() => match read? {
                0 => stderr = None,
                n => {
                    said.extend_from_slice(err.get(..n).unwrap_or_default());
                    let over = said.len().saturating_sub(SAID_LIMIT_BYTES);
                    said.drain(..over);
                }
            },
            written = feed(&mut stdin, input), if stdin.is_some() => match written {
                Ok(n) => input = input.get(n..).unwrap_or_default(),
                // It reads no more; how it ends tells why.
                Err(_) => input = &[],
            },
        }
        if let Some(exit) = exited {
            code = exit.code;
        }
    }
    let report = match sink {
        Sink::Report(report) => report,
        Sink::File(..) => Vec::new(),
    };
    Ok(Ran { code, report, bytes, said: String::from_utf8_lossy(&said).trim().to_owned() })
}

/// Ends a fence of git's; whatever still runs in it is killed.
pub(super) fn close(fence: Fence) {
    // Nothing of it is needed any more; what is stuck in the kernel ends with the host.
    fence.close(KILL_TIME);
}

#[derive(Clone, Copy)]
struct Exit {
    code: Option<i32>,
}

fn exited(fence: &mut Fence) -> Result<Option<Exit>, FenceError> {
    match fence.next_notice()? {
        Some(Notice::Exited(exited)) => Ok(Some(Exit { code: exited.code })),
        Some(Notice::Closed) => Ok(Some(Exit { code: None })),
        None => Ok(None),
    }
}

async fn some(from: &mut Option<pipe::Receiver>, chunk: &mut [u8]) -> std::io::Result<usize> {
    match from {
        Some(pipe) => pipe.read(chunk).await,
        None => std::future::pending().await,
    }
}

async fn feed(to: &mut Option<pipe::Sender>, input: &[u8]) -> std::io::Result<usize> {
    match to {
        Some(pipe) => pipe.write(input).await,
        None => std::future::pending().await,
    }
}

/// The control socket for the reactor, which only tells when there is something to read; the fence reads.
fn control(fence: &Fence) -> std::io::Result<UnixStream> {
    let socket = std::os::unix::net::UnixStream::from(fence.control().as_fd().try_clone_to_owned()?);
    socket.set_nonblocking(true)?;
    UnixStream::from_std(socket)
}

impl Sink<'_> {
    fn take(&mut self, part: &[u8], bytes: u64) -> Result<(), ScriptError> {
        match self {
            Self::Report(report) if bytes <= REPORT_LIMIT_BYTES => report.extend_from_slice(part),
            Self::Report(_) => return Err(ScriptError::TooMuch(REPORT_LIMIT_BYTES)),
            Self::File(file, limit) if bytes <= *limit => file.write_all(part)?,
            Self::File(_, limit) => return Err(ScriptError::TooMuch(*limit)),
        }
        Ok(())
    }
}
