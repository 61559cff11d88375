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
use crate::wire::{self, Api, Asked, Form, Naming, Words};

/// The longest request body in bytes: twice the longest prompt an agent may be given.
const MAX_REQUEST_BYTES: usize = 16 * 1024 * 1024;
/// How long a client may take to send its body.
const BODY_WAIT: Duration = Duration::from_secs(60);
/// How many bytes of a request are said to make a token.
const BYTES_PER_TOKEN: usize = 4;
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
        Call::Completion(api, asked, text) => {
            seen.model.clone_from(&asked.model);
            seen.tools = asked.tools.iter().map(|tool| tool.name.clone()).collect();
            seen.step = (asked.class == RequestClass::Main).then_some(asked.answered);
            note_body(&mut seen, &text);
            stage.log.request(seen);
            if authorized {
                complete(&stage, api, asked, record).await
            } else {
                Ok(unauthorized(api, record))
            }
        }
        Call::Models => {
            stage.log.request(seen);
            let list = json!({"object": "list", "data": [{"id": MODEL, "object": "model"}]});
            let status = StatusCode::OK;
            Ok(if authorized {
                json_answer(status, list.to_string(), record)
            } else {
                unauthorized(Api::Chat, record)
            })
        }
        Call::TokenCount(text) => {
            note_body(&mut seen, &text);
            stage.log.request(seen);
            let count = json!({"input_tokens": text.len() / BYTES_PER_TOKEN});
            Ok(if authorized {
                json_answer(StatusCode::OK, count.to_string(), record)
            } else {
                unauthorized(Api::Messages, record)
            })
        }
        Call::Probe => {
            stage.log.request(seen);
            Ok(json_answer(StatusCode::OK, "{}".to_owned(), record))
        }
        Call::Other(status, text) => {
            note_body(&mut seen, &text);
            stage.log.request(seen);
            let reason = status.canonical_reason().unwrap_or_default();
            let api = Api::of_path(head.uri.path()).unwrap_or(Api::Chat);
            Ok(error_answer(api, &Words::of_status(status.as_u16(), reason.to_owned()), record))
        }
    }
}

/// What a request turned out to be.
enum Call {
    Completion(Api, Asked, Bytes),
    TokenCount(Bytes),
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
        } else if method != Method::POST {
            Self::Other(StatusCode::NOT_FOUND, text)
        } else if path.ends_with("/messages/count_tokens") {
            Self::TokenCount(text)
        } else if let Some(api) = Api::of_path(path) {
            match serde_json::from_slice::<Value>(&text) {
                Ok(value) => Self::Completion(api, api.read(&value), text),
                Err(_) => Self::Other(StatusCode::BAD_REQUEST, text),
            }
        } else {
            Self::Other(StatusCode::NOT_FOUND, text)
        }
    }

    fn class(&self) -> RequestClass {
        match self {
            Self::Completion(_, asked, _) => asked.class,
            Self::TokenCount(_) => RequestClass::TokenCount,
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
    let bearer = headers.get(AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
    let sent = bearer.or_else(|| headers.get("x-api-key").map(HeaderValue::as_bytes));
    sent == Some(key.as_bytes())
}

fn unauthorized(api: Api, record: Record) -> Response<AnswerBody> {
    let message = "the bearer token is not the expected key".to_owned();
    error_answer(api, &Words::of_status(StatusCode::UNAUTHORIZED.as_u16(), message), record)
}

fn error_answer(api: Api, words: &Words, record: Record) -> Response<AnswerBody> {
    json_answer(status_of(words.status), api.error(words).to_string(), record)
}

/// The scenario's check has let only valid statuses pass.
fn status_of(status: u16) -> StatusCode {
    StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

fn json_answer(status: StatusCode, body: String, record: Record) -> Response<AnswerBody> {
    record.complete(Some(status.as_u16()));
    let mut response = Response::new(Either::Left(Full::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

async fn complete(
    stage: &Arc<Stage>,
    api: Api,
    asked: Asked,
    record: Record,
) -> Result<Response<AnswerBody>, Closed> {
    let side;
    let step = match asked.class {
        RequestClass::Main => stage.scenario.step(asked.answered),
        RequestClass::Title => {
            side = Step { delay: Duration::ZERO, answer: Answer::Completion(wire::title()) };
            &side
        }
        RequestClass::Toolless
        | RequestClass::TokenCount
        | RequestClass::Models
        | RequestClass::Probe
        | RequestClass::Other => {
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
        Answer::Http(answer) => Ok(http_answer(api, answer, record)),
        Answer::Fault(fault) => Ok(error_answer(api, &Words::of(api, *fault), record)),
        Answer::Completion(completion) => Ok(play_answer(completion.clone(), api, asked, record)),
    }
}

/// Waits, but not for the next tick of the timer where there is nothing to wait for.
async fn wait(pause: Duration) {
    if !pause.is_zero() {
        tokio::time::sleep(pause).await;
    }
}

fn http_answer(api: Api, answer: &HttpAnswer, record: Record) -> Response<AnswerBody> {
    let body = answer.body.clone().unwrap_or_else(|| {
        let message = format!("scripted error {}", answer.status);
        api.error(&Words::of_status(answer.status, message)).to_string()
    });
    let mut response = json_answer(status_of(answer.status), body, record);
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

fn play_answer(completion: Completion, api: Api, asked: Asked, record: Record) -> Response<AnswerBody> {
    let model = completion.model.clone().or(asked.model).unwrap_or_else(|| MODEL.to_owned());
    let ending = completion.ending;
    let naming = Naming { sequence: record.sequence(), model, step: asked.answered, tools: asked.tools };
    let play = Play { completion, api, naming, form: asked.form };
    let status = status_of(play.status());
    let mut response = Response::new(Either::Right(PlayedBody::new(|output| play.run(record, output))));
    *response.status_mut() = status;
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
