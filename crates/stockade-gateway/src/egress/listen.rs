//! Connections of the agent and their requests, each of which is judged.

use std::{
    convert::Infallible,
    future::{Future, poll_fn},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::{
    Request, Response, StatusCode,
    body::{Body, Incoming},
    header::{CONTENT_TYPE, HeaderValue},
    rt::{Read, Write},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use stockade_core::event::network_code;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{mpsc, oneshot},
};

use super::{
    CONNECTION_LIMIT,
    body::ProxyBody,
    forward,
    policy::{Allowed, TurnedAway},
    reach,
    request::{self, Asked, Way},
    state::State,
    tunnel::{self, Tunnel},
};
use crate::{
    accept,
    policy::{BUFFER_BYTES, HEAD_LIMIT_BYTES},
};

/// How long a connection may stay without a whole head of a request. A kept one is closed then, and opened again when it
/// is needed.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);

/// Accepts connections until the gateway ends.
pub(crate) async fn listen(state: Arc<State>, listener: TcpListener) {
    let tasks = Arc::clone(&state.shared.tasks);
    accept::each(tasks, listener, CONNECTION_LIMIT, move |socket| connection(Arc::clone(&state), socket))
        .await;
}

async fn connection(state: Arc<State>, socket: TcpStream) {
    let mut stop = state.shared.tasks.stop();
    let promised = Arc::new(Mutex::new(None));
    // Held by whatever works for this connection: nobody is left once it closes.
    let (working, mut finished) = mpsc::channel::<Infallible>(1);
    let served = serve(TokioIo::new(socket), {
        let (state, promised) = (Arc::clone(&state), Arc::clone(&promised));
        move |request| {
            let work = Work {
                state: Arc::clone(&state),
                promised: Arc::clone(&promised),
                _working: working.clone(),
            };
            work.respond(request)
        }
    });
    let carried = async {
        let given_back = served.await;
        // What an agent that left has begun keeps this connection's place, so that there is never more of it.
        let _nobody = finished.recv().await;
        let tunnel = promised.lock().unwrap_or_else(PoisonError::into_inner).take();
        match (tunnel, given_back) {
            (Some(tunnel), Some((socket, early))) => {
                tunnel::carry(&state, tunnel, socket.into_inner(), early).await;
            }
            (Some(tunnel), None) => tunnel::abandoned(&state, &tunnel).await,
            (None, _) => {}
        }
    };
    tokio::select! {
        // First, so that the end of the run looks the same whatever is under way.
        biased;
        () = stop.asked() => {}
        () = carried => {}
    }
}

/// Serves the requests of one connection; gives it back with what was read beyond the last one, unless it broke.
async fn serve<I, B, F>(io: I, respond: impl Fn(Request<Incoming>) -> F + Unpin) -> Option<(I, Bytes)>
where
    I: Read + Write + Unpin,
    B: Body<Data = Bytes> + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    F: Future<Output = Response<B>>,
{
    let service = service_fn(move |request| {
        let answered = respond(request);
        Box::pin(async move { Ok::<_, Infallible>(answered.await) })
    });
    let mut served = http1::Builder::new()
        .max_header_size(HEAD_LIMIT_BYTES)
        .max_buf_size(BUFFER_BYTES)
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(io, service);
    // Errors are the agent's: it left, or hyper has answered what it could not read.
    poll_fn(|context| served.poll_without_shutdown(context)).await.ok()?;
    let parts = served.into_parts();
    Some((parts.io, parts.read_buf))
}

/// The work for one request.
struct Work {
    state: Arc<State>,
    /// Where the tunnel goes that the agent is promised.
    promised: Arc<Mutex<Option<Tunnel>>>,
    _working: mpsc::Sender<Infallible>,
}

impl Work {
    /// Answers a request, in a task of its own, so that it ends with a record even if the agent does not wait for it.
    async fn respond(self, request: Request<Incoming>) -> Response<ProxyBody> {
        let (mut reply, answered) = oneshot::channel();
        let tasks = Arc::clone(&self.state.shared.tasks);
        tasks.spawn(async move {
            let answer = self.decide(request, &mut reply).await;
            // What is begun for an agent that has left ends here.
            let _agent_left = reply.send(answer).is_err();
        });
        // Such a task ends without an answer only when the whole gateway does.
        let ended = || TurnedAway::unreachable(network_code::EGRESS_UNREACHABLE, "the run has ended");
        answered.await.unwrap_or_else(|_| refusal(&ended()))
    }

    async fn decide(&self, request: Request<Incoming>, reply: &mut Reply) -> Response<ProxyBody> {
        let (target, answered) = match judged(&self.state.allowed, &request) {
            Err((target, why)) => (target, Err(why)),
            Ok(asked) => (asked.to.to_string(), self.carry_out(asked, request, reply).await),
        };
        match answered {
            Ok(response) => response,
            Err(why) => {
                self.state.turn_away(&target, &why).await;
                refusal(&why)
            }
        }
    }

    async fn carry_out(
        &self,
        asked: Asked,
        request: Request<Incoming>,
        reply: &mut Reply,
    ) -> Result<Response<ProxyBody>, TurnedAway> {
        let Asked { way, to } = asked;
        let remote = reach::reach(&self.state, &to).await?;
        match way {
            Way::Plain => {
                let detail = format!("a plain {} to {}", request.method(), remote.address);
                self.state.pass(&to, &detail).await;
                tokio::select! {
                    sent = forward::send(&self.state, &to, remote.tcp, request) => sent,
                    () = reply.closed() => Ok(Response::new(Either::Left(Full::default()))),
                }
            }
            Way::Tunnel => {
                let tunnel = Tunnel { to, remote };
                *self.promised.lock().unwrap_or_else(PoisonError::into_inner) = Some(tunnel);
                Ok(Response::new(Either::Left(Full::default())))
            }
        }
    }
}

type Reply = oneshot::Sender<Response<ProxyBody>>;

/// What a request asks for, where that is listed; else what is told as its target, and why it is turned away.
fn judged<B>(allowed: &Allowed, request: &Request<B>) -> Result<Asked, (String, TurnedAway)> {
    let read = request::read(request.method(), request.uri(), request.headers());
    // Nothing of a request that cannot be read is recorded: it may hold a password.
    let asked = read.map_err(|why| ("a request".to_owned(), why))?;
    match allowed.judge(&asked.to) {
        Ok(()) => Ok(asked),
        Err(why) => Err((asked.to.to_string(), why)),
    }
}

fn refusal(why: &TurnedAway) -> Response<ProxyBody> {
    let text = format!("stockade: {} ({})\n", why.message, why.code);
    let mut response = Response::new(Either::Left(Full::new(Bytes::from(text))));
    *response.status_mut() = why.status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// What the proxy makes of the bytes of one connection: the destination of each request, or why it is turned away. Reads
/// and judges as for an agent, and connects to nothing.
pub(crate) async fn read_connection(
    allowed: &Allowed,
    bytes: &[u8],
) -> Vec<Result<Asked, (String, TurnedAway)>> {
    let (mut agent, proxy) = tokio::io::duplex(bytes.len().max(1));
    // The pipe holds all of it, and its end.
    let written = tokio::io::AsyncWriteExt::write_all(&mut agent, bytes).await;
    let ended = tokio::io::AsyncWriteExt::shutdown(&mut agent).await;
    if written.and(ended).is_err() {
        return Vec::new();
    }
    let seen = Mutex::new(Vec::new());
    let answered = serve(TokioIo::new(proxy), |request| {
        let judged = judged(allowed, &request);
        let mut response = Response::new(Full::<Bytes>::default());
        if judged.is_err() {
            *response.status_mut() = StatusCode::FORBIDDEN;
        }
        seen.lock().unwrap_or_else(PoisonError::into_inner).push(judged);
        async move { response }
    });
    // Answers that nobody reads would fill the pipe.
    let drained = async {
        let mut sink = tokio::io::sink();
        tokio::io::copy(&mut agent, &mut sink).await.is_ok()
    };
    tokio::select! {
        _given_back = answered => {}
        true = drained => {}
    }
    seen.into_inner().unwrap_or_else(PoisonError::into_inner)
}
