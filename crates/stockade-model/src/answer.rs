//! One request, one answer.

mod body;
mod play;

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Either, Full, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use hyper::header::{
    AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue,
};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};

use self::body::PlayedBody;
use self::play::{Play, Record};
use crate::control::Holds;
use crate::log::{Log, RequestClass, RequestSeen};
use crate::scenario::{Answer, Completion, Ending, HttpAnswer, Scenario, Step};
use crate::wire::chat::{self, Encoder};
use crate::wire::{Asked, Form};

/// The longest request body in bytes: twice the longest prompt an agent may be given.
const MAX_REQUEST_BYTES: usize = 16 * 1024 * 1024;
/// How long a client may take to send its body.
const BODY_WAIT: Duration = Duration::from_secs(60);
/// The model that is listed, and named where a request names none.
const MODEL: &str = "scripted-1";
/// The answer to a completion without tools.
const TOOLLESS_TEXT: &str = "Scripted answer";

/// What all requests share.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) scenario: Scenario,
    pub(crate) holds: Arc<Holds>,
    pub(crate) log: Log,
    pub(crate) api_key: Option<String>,
    /// How many requests there have been.
    pub(crate) requests: AtomicU64,
}

/// The answer is that there is none: the connection is closed.
#[derive(Debug, thiserror::Error)]
#[error("the scenario closes the connection")]
pub(crate) struct Closed;

pub(crate) type AnswerBody = Either<Full<Bytes>, PlayedBody>;

/// Answers one request, the `connection`th connection's.
pub(crate) async fn handle(
    stage: Arc<Stage>,
    connection: u64,
    request: Request<Incoming>,
) -> Result<Response<AnswerBody>, Closed> {
    let sequence = stage.requests.fetch_add(1, Ordering::Relaxed).saturating_add(1);
    let (head, body) = request.into_parts();
    let body = collect(body).await;
    let path = head.uri.path();
    let call = Call::of(&head.method, path, body);

    let mut seen = RequestSeen {
        sequence,
        connection,
        elapsed_ms: stage.log.elapsed_ms(),
        method: head.method.to_string(),
        path: head.uri.path_and_query().map_or(path, |both| both.as_str()).to_owned(),
        headers: header_texts(&head.headers),
        class: call.class(),
        model: None,
        tools: Vec::new(),
        step: None,
        body_bytes: 0,
        body: None,
        body_text: None,
        body_cut: false,
    };
    let authorized = is_authorized(stage.api_key.as_deref(), &head.headers);
    let record = Record::new(Arc::clone(&stage), sequence);
    match call {
        Call::Completion(asked, text) => {
            seen.model.clone_from(&asked.model);
            seen.tools.clone_from(&asked.tools);
            seen.step = (asked.class == RequestClass::Main).then_some(asked.answered);
            note_body(&mut seen, &text);
            stage.log.request(seen);
            if authorized { complete(&stage, asked, record).await } else { Ok(unauthorized(record)) }
        }
        Call::Models => {
            stage.log.request(seen);
            let list = json!({"object": "list", "data": [{"id": MODEL, "object": "model"}]});
            let status = StatusCode::OK;
            Ok(if authorized { json_answer(status, list.to_string(), record) } else { unauthorized(record) })
        }
        Call::Probe => {
            stage.log.request(seen);
            Ok(json_answer(StatusCode::OK, "{}".to_owned(), record))
        }
        Call::Other(status, text) => {
            note_body(&mut seen, &text);
            stage.log.request(seen);
            let reason = status.canonical_reason().unwrap_or_default();
            Ok(json_answer(status, chat::error_body(status.as_u16(), reason), record))
        }
    }
}

/// What a request turned out to be.
enum Call {
    Completion(Asked, Bytes),
    Models,
    Probe,
    Other(StatusCode, Bytes),
}

impl Call {
    fn of(method: &Method, path: &str, body: Result<Bytes, StatusCode>) -> Self {
        let text = match body {
            Ok(text) => text,
            Err(status) => return Self::Other(status, Bytes::new()),
        };
        let reads = method == Method::GET || method == Method::HEAD;
        if reads && path == "/" {
            Self::Probe
        } else if reads && path.ends_with("/models") {
            Self::Models
        } else if method == Method::POST && chat::is_path(path) {
            match serde_json::from_slice::<Value>(&text) {
                Ok(value) => Self::Completion(chat::read(&value), text),
                Err(_) => Self::Other(StatusCode::BAD_REQUEST, text),
            }
        } else {
            Self::Other(StatusCode::NOT_FOUND, text)
        }
    }

    fn class(&self) -> RequestClass {
        match self {
            Self::Completion(asked, _) => asked.class,
            Self::Models => RequestClass::Models,
            Self::Probe => RequestClass::Probe,
            Self::Other(..) => RequestClass::Other,
        }
    }
}

async fn collect(body: Incoming) -> Result<Bytes, StatusCode> {
    if usize::try_from(body.size_hint().lower()).is_ok_and(|announced| announced > MAX_REQUEST_BYTES) {
        return Err(StatusCode::PAYLOAD_TOO_LARGE);
    }
    let whole = Limited::new(body, MAX_REQUEST_BYTES).collect();
    match tokio::time::timeout(BODY_WAIT, whole).await {
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Ok(Err(error)) if is_length_limit(error.as_ref()) => Err(StatusCode::PAYLOAD_TOO_LARGE),
        Ok(Err(_)) => Err(StatusCode::BAD_REQUEST),
        Err(_) => Err(StatusCode::REQUEST_TIMEOUT),
    }
}

fn is_length_limit(error: &(dyn Error + Send + Sync + 'static)) -> bool {
    error.downcast_ref::<LengthLimitError>().is_some()
}

fn header_texts(headers: &HeaderMap) -> BTreeMap<String, String> {
    let mut texts = BTreeMap::<String, String>::new();
    for (name, value) in headers {
        let value = String::from_utf8_lossy(value.as_bytes());
        texts
            .entry(name.as_str().to_owned())
            .and_modify(|text| {
                text.push_str(", ");
                text.push_str(&value);
            })
            .or_insert_with(|| value.clone().into_owned());
    }
    texts
}

/// Puts the body into the log line, as much as fits.
fn note_body(seen: &mut RequestSeen, text: &Bytes) {
    seen.body_bytes = text.len();
    let kept = text.get(..RequestSeen::MAX_BODY_BYTES).unwrap_or(text);
    seen.body_cut = kept.len() < text.len();
    if !seen.body_cut {
        seen.body = serde_json::from_slice(kept).ok();
    }
    if seen.body.is_none() && !kept.is_empty() {
        seen.body_text = Some(String::from_utf8_lossy(kept).into_owned());
    }
}

fn is_authorized(key: Option<&str>, headers: &HeaderMap) -> bool {
    let Some(key) = key else { return true };
    let sent = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
    sent.and_then(|value| value.strip_prefix(b"Bearer ")) == Some(key.as_bytes())
}

fn unauthorized(record: Record) -> Response<AnswerBody> {
    let status = StatusCode::UNAUTHORIZED;
    json_answer(status, chat::error_body(status.as_u16(), "the bearer token is not the expected key"), record)
}

fn json_answer(status: StatusCode, body: String, record: Record) -> Response<AnswerBody> {
    record.complete(Some(status.as_u16()));
    let mut response = Response::new(Either::Left(Full::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

async fn complete(stage: &Arc<Stage>, asked: Asked, record: Record) -> Result<Response<AnswerBody>, Closed> {
    let side;
    let step = match asked.class {
        RequestClass::Main => stage.scenario.step(asked.answered),
        RequestClass::Title => {
            side = Step { delay: Duration::ZERO, answer: Answer::Completion(chat::title()) };
            &side
        }
        RequestClass::Toolless | RequestClass::Models | RequestClass::Probe | RequestClass::Other => {
            side = Step::text(TOOLLESS_TEXT);
            &side
        }
    };
    wait(step.delay).await;
    match &step.answer {
        Answer::Close => {
            record.complete(None);
            Err(Closed)
        }
        Answer::Http(answer) => Ok(http_answer(answer, record)),
        Answer::Completion(completion) => Ok(play_answer(completion.clone(), asked, record)),
    }
}

/// Waits, but not for the next tick of the timer where there is nothing to wait for.
async fn wait(pause: Duration) {
    if !pause.is_zero() {
        tokio::time::sleep(pause).await;
    }
}

fn http_answer(answer: &HttpAnswer, record: Record) -> Response<AnswerBody> {
    // The scenario's check has let only valid statuses and headers pass.
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let body = answer.body.clone().unwrap_or_else(|| {
        let message = format!("scripted error {}", answer.status);
        chat::error_body(answer.status, &message)
    });
    let mut response = json_answer(status, body, record);
    let headers = response.headers_mut();
    if let Some(value) = answer.content_type.as_deref().and_then(|text| HeaderValue::try_from(text).ok()) {
        headers.insert(CONTENT_TYPE, value);
    }
    for (name, value) in &answer.headers {
        if let (Ok(name), Ok(value)) =
            (HeaderName::try_from(name.as_str()), HeaderValue::try_from(value.as_str()))
        {
            headers.insert(name, value);
        }
    }
    response
}

fn play_answer(completion: Completion, asked: Asked, record: Record) -> Response<AnswerBody> {
    let model = completion.model.clone().or(asked.model).unwrap_or_else(|| MODEL.to_owned());
    let ending = completion.ending;
    let encoder = Encoder::new(record.sequence(), model, asked.answered);
    let play = Play { completion, encoder, form: asked.form };
    let mut response = Response::new(Either::Right(PlayedBody::new(|output| play.run(record, output))));
    let headers = response.headers_mut();
    match asked.form {
        Form::Stream { .. } => {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        }
        Form::Whole => {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
    }
    if ending != Ending::Finish {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}
