//! Asks the executable something inside the proven fence, before the agent starts: a command of its own that answers
//! without a model call. There is no gateway yet, so that nothing it says leaves the fence.

use std::os::fd::AsFd as _;

use stockade_core::{
    limits::{LimitBy, LimitId},
    plan::LaunchPlan,
    status::{Boundary, Cause, Refusal, Status},
};
use stockade_fence::{Exited, Fence, FenceError, Notice, Role, SpawnLimits, SpawnRequest, Target, stdio};
use tokio::{
    io::{AsyncReadExt as _, Interest},
    net::{UnixStream, unix::pipe},
    sync::mpsc,
    time::Instant,
};

use crate::{place, request::StopRequest};

const CHUNK_BYTES: usize = 4_096;

/// What is asked.
pub(crate) struct Question<'a> {
    /// The argv inside the fence.
    pub(crate) argv: &'a [String],
    /// No answer by then is none.
    pub(crate) until: Instant,
    /// So much of the last that it says is kept.
    pub(crate) keeps_bytes: usize,
}

/// What came of it.
#[derive(Debug)]
pub(crate) enum Answer {
    /// It ended. `said` is both its streams, trimmed.
    Exited { code: Option<i32>, signal: Option<i32>, said: String },
    /// It was killed, because the time was over.
    TooLong,
    /// The caller stopped the run.
    Stopped(&'static str),
}

/// Why nothing is known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum QuestionError {
    #[error("the fence broke: {0}")]
    Fence(#[from] FenceError),
    #[error("its streams broke: {0}")]
    Io(#[from] std::io::Error),
}

/// A run that the caller stopped before its agent started.
pub(crate) fn stopped(why: &str) -> Refusal {
    let message = format!("stopped by {why} before the agent started");
    Refusal::new(Status::Cancelled, Cause::new("cancelled", Boundary::Order, "signal", message))
}

/// Asks, and waits for the answer.
pub(crate) async fn ask(
    fence: &mut Fence,
    plan: &LaunchPlan,
    question: &Question<'_>,
    stops: &mut mpsc::Receiver<StopRequest>,
) -> Result<Answer, QuestionError> {
    let (theirs, ends) = stdio::pipes()?;
    let request = SpawnRequest {
        role: Role::Probe,
        argv: question.argv.to_vec(),
        env: plan.env.clone().into_iter().collect(),
        cwd: plan.cwd.clone(),
        limits: SpawnLimits {
            open_files: plan.limits.max_open_files,
            file_bytes: Some(plan.limits.max_file_bytes),
            processes: place::held_by(plan, LimitId::Processes, LimitBy::Nproc),
        },
    };
    fence.spawn(&request, theirs)?;
    drop(ends.stdin);
    let control = control(fence)?;
    let mut streams = [
        Some(pipe::Receiver::from_owned_fd(ends.stdout)?),
        Some(pipe::Receiver::from_owned_fd(ends.stderr)?),
    ];
    let mut said = Vec::new();
    let mut gone = exited(fence)?;
    let mut stops_open = true;
    while gone.is_none() || streams.iter().any(Option::is_some) {
        let [out, err] = &mut streams;
        let (mut out_chunk, mut err_chunk) = ([0; CHUNK_BYTES], [0; CHUNK_BYTES]);
        tokio::select! {
            biased;
            stop = stops.recv(), if stops_open => match stop {
                Some(StopRequest::Cancel(why) | StopRequest::Kill(why)) => return Ok(Answer::Stopped(why)),
                None => stops_open = false,
            },
            () = tokio::time::sleep_until(question.until) => {
                fence.signal(Target::All, rustix::process::Signal::KILL.as_raw())?;
                return Ok(Answer::TooLong);
            }
            ready = control.readable(), if gone.is_none() => {
                ready?;
                // Forgets the readiness; what came before it is looked at afterwards.
                drop(control.try_io(Interest::READABLE, || {
                    Err::<(), _>(std::io::Error::from(std::io::ErrorKind::WouldBlock))
                }));
                gone = exited(fence)?;
            }
            read = some(out, &mut out_chunk), if out.is_some() => match read? {
                0 => *out = None,
                n => keep(&mut said, out_chunk.get(..n).unwrap_or_default(), question.keeps_bytes),
            },
            read = some(err, &mut err_chunk), if err.is_some() => match read? {
                0 => *err = None,
                n => keep(&mut said, err_chunk.get(..n).unwrap_or_default(), question.keeps_bytes),
            },
        }
    }
    let (code, signal) = gone.map_or((None, None), |exit| (exit.code, exit.signal));
    Ok(Answer::Exited { code, signal, said: String::from_utf8_lossy(&said).trim().to_owned() })
}

fn keep(said: &mut Vec<u8>, more: &[u8], keeps_bytes: usize) {
    said.extend_from_slice(more);
    let over = said.len().saturating_sub(keeps_bytes);
    said.drain(..over);
}

async fn some(from: &mut Option<pipe::Receiver>, chunk: &mut [u8]) -> std::io::Result<usize> {
    match from {
        Some(pipe) => pipe.read(chunk).await,
        None => std::future::pending().await,
    }
}

struct Gone {
    code: Option<i32>,
    signal: Option<i32>,
}

fn exited(fence: &mut Fence) -> Result<Option<Gone>, FenceError> {
    Ok(match fence.next_notice()? {
        Some(Notice::Exited(Exited { code, signal, .. })) => Some(Gone { code, signal }),
        Some(Notice::Closed) => Some(Gone { code: None, signal: None }),
        None => None,
    })
}

/// The control socket for the reactor, which only tells when there is something to read; the fence reads.
fn control(fence: &Fence) -> std::io::Result<UnixStream> {
    let socket = std::os::unix::net::UnixStream::from(fence.control().as_fd().try_clone_to_owned()?);
    socket.set_nonblocking(true)?;
    UnixStream::from_std(socket)
}
