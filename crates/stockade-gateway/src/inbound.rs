//! The model listener: connections and requests of the agent.

use std::{convert::Infallible, sync::Arc};

use hyper::{
    HeaderMap, Method, Request, Response, StatusCode,
    body::Incoming,
    header::{AUTHORIZATION, UPGRADE},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use stockade_core::{
    budget::Reached,
    event::{EventKind, NetworkVerdict, failure_code, network_code},
    text,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::oneshot,
};

use crate::{
    accept,
    agent_body::AgentBody,
    answer,
    decide::{self, Decision, ModelCall, Route},
    exchange::Exchange,
    headers,
    policy::{BUFFER_BYTES, CONNECTION_LIMIT, HEAD_LIMIT_BYTES},
    purse,
    read::{self, Held},
    shared::Shared,
};

/// How many tool names of a request are told, and how long each may be.
const TOOLS_TOLD: usize = 200;
const TOOL_NAME_BYTES: usize = 200;

/// Accepts connections until the gateway ends.
pub(crate) async fn listen(shared: Arc<Shared>, listener: TcpListener) {
    let tasks = Arc::clone(&shared.tasks);
    accept::each(tasks, listener, CONNECTION_LIMIT, move |socket| connection(Arc::clone(&shared), socket))
        .await;
}

async fn connection(shared: Arc<Shared>, socket: TcpStream) {
    let mut stop = shared.tasks.stop();
    let service = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(respond(shared, request).await) }
    });
    let served = http1::Builder::new()
        .max_header_size(HEAD_LIMIT_BYTES)
        .max_buf_size(BUFFER_BYTES)
        // Agents keep connections for their next request; a limit on the head would close them in between.
        .header_read_timeout(None)
        .serve_connection(TokioIo::new(socket), service);
    tokio::select! {
        // First, so that the end of the run looks the same whatever is under way.
        biased;
        () = stop.asked() => {}
        // Errors are the agent's: it left, or hyper has answered what it could not read.
        _ended = served => {}
    }
}

async fn respond(shared: Arc<Shared>, request: Request<Incoming>) -> Response<AgentBody> {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path();
    let line = format!("{} {}", parts.method, if path.is_empty() { "*" } else { path });
    // A proxy's forms of a request, and protocols that could not be checked.
    let foreign = parts.uri.authority().is_some() || parts.headers.contains_key(UPGRADE);
    let route = if foreign {
        Route::NotAModelCall
    } else {
        decide::route(&shared.policy, parts.method.as_str(), path)
    };
    match route {
        Route::Side { status } => return answer::empty(status),
        Route::NotAModelCall => {
            let (code, verdict) = (network_code::NOT_A_MODEL_CALL, NetworkVerdict::AnsweredHere);
            let target =
                parts.uri.authority().map_or_else(|| line.clone(), |a| format!("{} {a}{path}", parts.method));
            shared.facts.decision(code, verdict, &target, "not forwarded: only calls of the model are").await;
            let wrong_method = parts.method == Method::CONNECT || parts.headers.contains_key(UPGRADE);
            let status = if wrong_method { StatusCode::METHOD_NOT_ALLOWED } else { StatusCode::NOT_FOUND };
            return answer::error(status, code, "only calls of the model leave the fence");
        }
        Route::ModelCall => {}
    }
    if !shows_placeholder(shared.policy.placeholder_key.as_deref(), &parts.headers) {
        let code = network_code::PLACEHOLDER_MISSING;
        shared
            .facts
            .decision(code, NetworkVerdict::Refused, &line, "the key of this run was not shown")
            .await;
        return answer::error(StatusCode::UNAUTHORIZED, code, "the key of this run is needed");
    }
    let held = match read::whole(&parts.headers, body, &shared.budget, &shared.activity).await {
        Ok(held) => held,
        Err(unread) => return bad_request(&shared, unread.status, &line, unread.reason).await,
    };
    match decide::decide_call(&shared.policy, &held.bytes) {
        Decision::ModelCall(call) => {
            if let Some(code) = shared.refused.get() {
                refuse(&shared, code, &line, "an earlier request of this run was refused").await
            } else {
                let after = shared.policy.after_base(path).unwrap_or(path);
                let query = parts.uri.query().map(|q| format!("?{q}")).unwrap_or_default();
                let target = format!("{}{after}{query}", shared.policy.upstream.prefix());
                forward(shared, call, &line, target, &parts.headers, held).await
            }
        }
        Decision::Refused { code, detail } => {
            let code = shared.refused.get_or_init(|| code);
            refuse(&shared, code, &line, &detail).await
        }
        Decision::Malformed { reason } => bad_request(&shared, StatusCode::BAD_REQUEST, &line, &reason).await,
        // The route was a call of the model.
        Decision::Side { .. } | Decision::NotAModelCall => answer::empty(StatusCode::NOT_FOUND.as_u16()),
    }
}

async fn bad_request(shared: &Shared, status: StatusCode, line: &str, reason: &str) -> Response<AgentBody> {
    shared.facts.decision(network_code::BAD_REQUEST, NetworkVerdict::Refused, line, reason).await;
    answer::error(status, network_code::BAD_REQUEST, reason)
}

async fn refuse(shared: &Shared, code: &'static str, line: &str, detail: &str) -> Response<AgentBody> {
    shared.facts.decision(code, NetworkVerdict::Refused, line, detail).await;
    let mut response = answer::error(StatusCode::FORBIDDEN, code, detail);
    answer::stop(&mut response, &shared.prepared.stop);
    response
}

async fn forward(
    shared: Arc<Shared>,
    call: ModelCall,
    line: &str,
    target: String,
    agent: &HeaderMap,
    body: Held,
) -> Response<AgentBody> {
    let started = std::time::Instant::now();
    if !shared.storm().forwards(call.class) {
        let code = network_code::RETRY_STORM;
        let detail = format!("class {}: the agent goes on asking after repeated failures", call.class_name);
        shared.facts.decision(code, NetworkVerdict::Refused, line, &detail).await;
        let mut response = answer::error(StatusCode::SERVICE_UNAVAILABLE, code, &detail);
        answer::stop(&mut response, &shared.prepared.stop);
        return response;
    }
    if let Err(reached) = shared.purse.begin(purse::kind_of(call.class)) {
        return spent(&shared, reached).await;
    }
    let number = shared.next_request();
    let told = call.tools.iter().take(TOOLS_TOLD).map(|t| text::head(t, TOOL_NAME_BYTES)).collect();
    shared
        .facts
        .tell(EventKind::ModelRequest {
            request: number,
            class: call.class_name.clone(),
            model: Some(call.model),
            tools: told,
            bytes: body.bytes.len() as u64,
            effort: call.effort.map(|e| text::head(&e, TOOL_NAME_BYTES)),
        })
        .await;
    let exchange = Exchange {
        headers: headers::to_endpoint(agent, &shared.prepared),
        target,
        body,
        number,
        class: call.class,
        class_name: call.class_name,
        started,
        shared: Arc::clone(&shared),
    };
    let (reply, answered) = oneshot::channel();
    shared.tasks.spawn(exchange.run(reply));
    // An exchange ends without an answer only when the whole gateway does.
    let gone = |_| answer::error(StatusCode::BAD_GATEWAY, failure_code::ABANDONED, "the run has ended");
    answered.await.unwrap_or_else(gone)
}

/// The answer where a budget is used up. Told once: whatever is asked afterwards is refused for the same reason.
async fn spent(shared: &Shared, reached: Reached) -> Response<AgentBody> {
    let message = format!("the run may use no more {}: {}", reached.id.id(), reached.measured);
    if !shared.purse.was_told() {
        let Reached { id, value, measured } = reached;
        shared.facts.tell(EventKind::LimitReached { limit: id.id().to_owned(), value, measured }).await;
    }
    let mut response = answer::error(StatusCode::FORBIDDEN, "limit-reached", &message);
    answer::stop(&mut response, &shared.prepared.stop);
    response
}

/// Whether the caller shows the key of the run, where one is demanded. The time taken does not depend on how much of it is
/// right.
fn shows_placeholder(key: Option<&str>, headers: &HeaderMap) -> bool {
    let Some(key) = key else { return true };
    let bearer = headers.get(AUTHORIZATION).and_then(|v| v.as_bytes().strip_prefix(b"Bearer "));
    let shown = bearer.or_else(|| headers.get("x-api-key").map(hyper::header::HeaderValue::as_bytes));
    shown.is_some_and(|shown| {
        shown.len() == key.len()
            && shown.iter().zip(key.as_bytes()).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
    })
}
