//! One forwarded request and its answer.
//!
//! The exchange is a task of its own, so that it ends with a fact whatever the agent does: an agent that leaves before the
//! answer ends is told apart from an endpoint that cuts it.

use std::{sync::Arc, time::Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{
    HeaderMap, Request, Response, StatusCode, Version,
    body::Incoming,
    header::{CONTENT_LENGTH, TRANSFER_ENCODING},
    http::response::Parts,
};
use stockade_core::event::{EventKind, NetworkVerdict, StatedError, failure_code, network_code};
use tokio::sync::{mpsc, oneshot};

use crate::{
    agent_body::{AgentBody, Piece},
    answer,
    dial::{Line, NoAnswer, chain},
    headers,
    observe::{Observer, Seen},
    policy::LONGEST_RETRY_AFTER_S,
    purse,
    read::Held,
    shared::Shared,
    storm::Verdict,
};

/// How many pieces of an answer wait for a slow agent before the endpoint has to.
const PIECES_WAITING: usize = 4;

/// One forwarded request.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) shared: Arc<Shared>,
    /// Path and query at the endpoint.
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Held,
    pub(crate) number: u64,
    pub(crate) class: usize,
    pub(crate) class_name: String,
    pub(crate) started: Instant,
}

/// What is known of an answer beside what it says.
#[derive(Debug, Default)]
struct Outcome {
    status: Option<u16>,
    failure: Option<&'static str>,
    cut: bool,
    content_type: Option<String>,
    retry_after_s: Option<u64>,
    resets_at_s: Option<u64>,
}

/// How the body of an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Whole,
    BrokenOff,
    Abandoned,
}

impl Exchange {
    /// Forwards the request, answers the agent through `reply` and tells what was seen.
    pub(crate) async fn run(mut self, mut reply: oneshot::Sender<Response<AgentBody>>) {
        let mut stop = self.shared.tasks.stop();
        // In this order: the end of the run closes connections too, which is not the endpoint's doing.
        let answered = tokio::select! {
            biased;
            () = stop.asked() => Err(NoAnswer::new(failure_code::ABANDONED, "the run ended before the answer")),
            () = reply.closed() => Err(NoAnswer::new(failure_code::ABANDONED, "the agent left before the answer")),
            answered = self.call() => answered,
        };
        // The request is sent or given up: its memory is free for others while the answer takes its time.
        drop(self.body.share.take());
        match answered {
            Ok((parts, body, line)) => self.pass(parts, body, line, reply).await,
            Err(no_answer) => self.give_up(no_answer, reply).await,
        }
    }

    /// Sends the request once. A kept connection that turns out to be closed before a byte was sent is replaced.
    async fn call(&mut self) -> Result<(Parts, Incoming, Line), NoAnswer> {
        let mut request = self.request()?;
        while let Some(mut line) = self.shared.pool.take() {
            match line.try_send_request(request).await {
                Ok(response) => return Ok(split(response, line)),
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(no_answer(&error.into_error())),
                },
            }
        }
        let mut line = self.shared.dialer.dial().await?;
        let response = line.send_request(request).await.map_err(|e| no_answer(&e))?;
        Ok(split(response, line))
    }

    fn request(&mut self) -> Result<Request<Full<Bytes>>, NoAnswer> {
        let mut request = Request::post(self.target.as_str())
            .version(Version::HTTP_11)
            .body(Full::new(std::mem::take(&mut self.body.bytes)))
            .map_err(|e| NoAnswer::new(failure_code::PROTOCOL, e.to_string()))?;
        *request.headers_mut() = std::mem::take(&mut self.headers);
        Ok(request)
    }

    async fn give_up(self, no_answer: NoAnswer, reply: oneshot::Sender<Response<AgentBody>>) {
        let text = self.shared.prepared.mask.text(&no_answer.text);
        let verdict = if no_answer.code == failure_code::ABANDONED {
            Verdict::Pass
        } else {
            self.shared.storm().failed(self.class, None)
        };
        self.shared.purse.failed(purse::kind_of(self.class));
        let outcome = Outcome { failure: Some(no_answer.code), ..Outcome::default() };
        self.tell(outcome, Seen { error: Some(text.clone()), ..Seen::default() }).await;
        if verdict == Verdict::End {
            self.end_storm().await;
        }
        let mut response = answer::error(StatusCode::BAD_GATEWAY, no_answer.code, &text);
        // No retry of the agent makes an endpoint reachable, and each waits longer than the one before.
        answer::stop(&mut response, &self.shared.prepared.stop);
        let _agent_left = reply.send(response).is_err();
    }

    async fn pass(
        self,
        parts: Parts,
        body: Incoming,
        line: Line,
        reply: oneshot::Sender<Response<AgentBody>>,
    ) {
        let content_type = headers::content_type(&parts.headers);
        let retry_after_s = headers::retry_after_s(&parts.headers);
        let resets_at_s = headers::resets_at_s(&parts.headers);
        let status = parts.status;
        let mut observer = Observer::new(status.as_u16(), content_type.as_deref());
        let framed =
            parts.headers.contains_key(CONTENT_LENGTH) || parts.headers.contains_key(TRANSFER_ENCODING);

        let (pieces, passing) = mpsc::channel(PIECES_WAITING);
        let mut response = Response::new(AgentBody::Passing(passing));
        *response.status_mut() = status;
        *response.headers_mut() = headers::to_agent(&parts.headers, &self.shared.prepared.mask);
        let mut verdict = Verdict::Pass;
        if !status.is_success() {
            verdict = self.shared.storm().failed(self.class, Some(status.as_u16()));
            let stop = &self.shared.prepared.stop;
            if verdict == Verdict::Pass && retry_after_s.is_some_and(|s| s > LONGEST_RETRY_AFTER_S) {
                verdict = if stop.is_known() { Verdict::Tell } else { Verdict::End };
            }
            if verdict == Verdict::Tell {
                answer::stop(&mut response, stop);
            }
        }
        // Whether the agent is still there shows at the first piece.
        let _agent_left = reply.send(response).is_err();

        let mut ended = self.pump(body, &pieces, &mut observer).await;
        // Without a length only the stream itself says whether it is whole.
        let unfinished = !observer.finished() && content_type.as_deref() == Some("text/event-stream");
        if ended == Ended::Whole && !framed && unfinished {
            ended = Ended::BrokenOff;
        }
        if ended == Ended::Whole {
            self.shared.pool.put(line);
        }
        let seen = observer.end();
        if status.is_success() {
            self.shared.purse.answered(self.number, seen.usage.as_ref());
            match ended {
                Ended::Whole if seen.finished && seen.error.is_none() => {
                    self.shared.storm().answered(self.class);
                }
                // A stream that ends properly and without an end of its own is asked for again as well.
                Ended::Whole | Ended::BrokenOff => verdict = self.shared.storm().broke_off(self.class),
                Ended::Abandoned => {}
            }
        } else {
            self.shared.purse.failed(purse::kind_of(self.class));
        }
        let outcome = Outcome {
            status: Some(status.as_u16()),
            failure: (ended == Ended::Abandoned && !seen.finished).then_some(failure_code::ABANDONED),
            cut: match ended {
                Ended::Whole => !seen.finished,
                Ended::BrokenOff => true,
                Ended::Abandoned => false,
            },
            content_type,
            retry_after_s: retry_after_s.or(seen.resets_in_s),
            resets_at_s,
        };
        self.tell(outcome, seen).await;
        if verdict == Verdict::End {
            self.end_storm().await;
        }
        if ended == Ended::Whole {
            let _agent_left = pieces.send(Piece::End).await.is_err();
        }
    }

    /// Tells that the answers of a class failed too often. It is told now and not with the agent's next request, which
    /// would be refused anyway: before that one the agent may wait for ten seconds and more.
    async fn end_storm(&self) {
        let detail = format!("class {}: the answers fail again and again", self.class_name);
        let line = format!("POST {}", self.target);
        self.shared.facts.decision(network_code::RETRY_STORM, NetworkVerdict::Refused, &line, &detail).await;
    }

    /// Passes the body on, piece by piece as it arrives.
    async fn pump(&self, mut body: Incoming, pieces: &mpsc::Sender<Piece>, observer: &mut Observer) -> Ended {
        let mut stop = self.shared.tasks.stop();
        let mut held = Vec::new();
        loop {
            let frame = tokio::select! {
                biased;
                () = stop.asked() => return Ended::Abandoned,
                () = pieces.closed() => return Ended::Abandoned,
                frame = body.frame() => frame,
            };
            let bytes = match frame {
                None => break,
                Some(Err(_)) => return Ended::BrokenOff,
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) => bytes,
                    Err(_trailers) => continue,
                },
            };
            self.shared.activity.heard_endpoint(bytes.len());
            let passed = self.shared.prepared.mask.next(&mut held, bytes);
            observer.read(&passed);
            if !passed.is_empty() && !give(pieces, passed, &mut stop).await {
                return Ended::Abandoned;
            }
        }
        if !held.is_empty() {
            observer.read(&held);
            if !give(pieces, Bytes::from(held), &mut stop).await {
                return Ended::Abandoned;
            }
        }
        Ended::Whole
    }

    async fn tell(&self, outcome: Outcome, seen: Seen) {
        self.shared
            .facts
            .tell(EventKind::ModelResponse {
                request: self.number,
                class: self.class_name.clone(),
                status: outcome.status,
                failure: outcome.failure.map(str::to_owned),
                finish_reason: seen.finish_reason,
                served_model: seen.served_model,
                usage: seen.usage,
                cut: outcome.cut,
                content_type: outcome.content_type,
                retry_after_s: outcome.retry_after_s,
                error: seen.error,
                stated: stated(seen.stated, outcome.resets_at_s),
                elapsed_ms: u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            })
            .await;
    }
}

/// What an answer states of its error, in its body or its headers.
fn stated(mut body: StatedError, resets_at_s: Option<u64>) -> Option<Box<StatedError>> {
    body.resets_at_s = body.resets_at_s.filter(|at| *at <= headers::LAST_SECOND).or(resets_at_s);
    (body != StatedError::default()).then(|| Box::new(body))
}

/// Hands a piece to the agent's side; `false`: nobody is there any more.
async fn give(pieces: &mpsc::Sender<Piece>, bytes: Bytes, stop: &mut crate::tasks::Stop) -> bool {
    tokio::select! {
        given = pieces.send(Piece::Data(bytes)) => given.is_ok(),
        () = stop.asked() => false,
    }
}

fn split(response: Response<Incoming>, line: Line) -> (Parts, Incoming, Line) {
    let (parts, body) = response.into_parts();
    (parts, body, line)
}

fn no_answer(error: &hyper::Error) -> NoAnswer {
    NoAnswer::new(failure_code::PROTOCOL, format!("the endpoint did not answer: {}", chain(error)))
}
