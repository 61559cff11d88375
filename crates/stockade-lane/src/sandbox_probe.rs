//! Asks a provider's own sandbox, inside the proven fence, whether it works there.
//!
//! Some agents start where their sandbox cannot work, and then fail at each command while the turn goes on. The answer is
//! an exit code, known before the model is paid for.

use std::{os::fd::AsFd as _, time::Duration};

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

/// Measured: 50 ms.
const LIMIT: Duration = Duration::from_secs(10);
/// The last that it says is kept up to here.
const SAID_LIMIT_BYTES: usize = 2_000;
const CHUNK_BYTES: usize = 4_096;

/// Refuses the run where the provider's own sandbox is kept and does not work in this fence.
pub(crate) async fn ask(
    fence: &mut Fence,
    plan: &LaunchPlan,
    stops: &mut mpsc::Receiver<StopRequest>,
) -> Result<(), Refusal> {
    if plan.provider_sandbox.probe.is_empty() {
        return Ok(());
    }
    match answer(fence, plan, stops).await.map_err(|e| broke(&e))? {
        Answer::Exited { code: Some(0), .. } => Ok(()),
        Answer::Exited { code, signal, said } => Err(refused(plan, code, signal, &said)),
        Answer::TooLong => Err(refused(plan, None, None, "it did not answer within ten seconds")),
        Answer::Stopped(why) => {
            let message = format!("stopped by {why} before the agent started");
            let cause = Cause::new("cancelled", Boundary::Order, "signal", message);
            Err(Refusal::new(Status::Cancelled, cause))
        }
    }
}

enum Answer {
    Exited { code: Option<i32>, signal: Option<i32>, said: String },
    TooLong,
    Stopped(&'static str),
}

/// Why nothing is known.
#[derive(Debug, thiserror::Error)]
enum ProbeError {
    #[error("the fence broke: {0}")]
    Fence(#[from] FenceError),
    #[error("its streams broke: {0}")]
    Io(#[from] std::io::Error),
}

async fn answer(
    fence: &mut Fence,
    plan: &LaunchPlan,
    stops: &mut mpsc::Receiver<StopRequest>,
) -> Result<Answer, ProbeError> {
    let (theirs, ends) = stdio::pipes()?;
    let request = SpawnRequest {
        role: Role::Probe,
        argv: plan.provider_sandbox.probe.clone(),
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
    let end = Instant::now() + LIMIT;
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
            () = tokio::time::sleep_until(end) => {
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
                n => keep(&mut said, out_chunk.get(..n).unwrap_or_default()),
            },
            read = some(err, &mut err_chunk), if err.is_some() => match read? {
                0 => *err = None,
                n => keep(&mut said, err_chunk.get(..n).unwrap_or_default()),
            },
        }
    }
    let (code, signal) = gone.map_or((None, None), |exit| (exit.code, exit.signal));
    Ok(Answer::Exited { code, signal, said: String::from_utf8_lossy(&said).trim().to_owned() })
}

fn keep(said: &mut Vec<u8>, more: &[u8]) {
    said.extend_from_slice(more);
    let over = said.len().saturating_sub(SAID_LIMIT_BYTES);
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

fn refused(plan: &LaunchPlan, code: Option<i32>, signal: Option<i32>, said: &str) -> Refusal {
    let how = match (code, signal) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "no answer".to_owned(),
    };
    let cause = Cause::new(
        "provider-sandbox-broken",
        Boundary::ProviderSandbox,
        "probe",
        format!("the sandbox that `{}` brings does not work in this fence: {how}", plan.provider),
    )
    .with_evidence(plan.provider_sandbox.probe.join(" "));
    let cause = said
        .lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .map_or(cause.clone(), |line| cause.with_evidence(line.trim().to_owned()));
    let remedy = "let Stockade's fence stand in its place: `--provider-sandbox replace`. To keep it: make the `bwrap` \
                  that is first on `PATH` one that can make namespaces inside others";
    Refusal::new(Status::SandboxUnavailable, cause.with_remedy(remedy))
}

fn broke(e: &ProbeError) -> Refusal {
    let message = format!("the provider's own sandbox cannot be asked: {e}");
    Refusal::new(Status::LauncherFailed, Cause::new("launch", Boundary::Fence, "probe", message))
}
