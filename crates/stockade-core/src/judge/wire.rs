//! What a failed answer on the wire means.

use crate::{
    event::{EventKind, failure_code},
    status::{Boundary, Cause, Status},
};

/// A failed answer, kept until an answer of the same class succeeds.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    step: String,
    pub(super) class: String,
    status: Option<u16>,
    no_answer: Option<String>,
    content_type: Option<String>,
    retry_after_s: Option<u64>,
    error: Option<String>,
}

/// Words by which an agent says that the service is busy, where nothing was seen on the wire.
const BUSY_WORDS: [&str; 4] = ["server busy", "overloaded", "rate limit", "too many requests"];

/// Words by which an agent says that a quota is used up, where nothing was seen on the wire. Fewer than those of a 429,
/// because an agent's error may be about anything.
const STATED_QUOTA_WORDS: [&str; 5] =
    ["exceeded your", "insufficient_quota", "usage limit", "spend limit", "out of usage"];

/// What the agent's own words say about the service, where the wire is silent; `None`: nothing that is known.
pub(super) fn stated_in_words(text: &str) -> Option<(Status, Cause)> {
    let lower = text.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|w| lower.contains(w));
    let make = |status, code: &str, message: &str| {
        Some((status, Cause::new(code, Boundary::Model, "agent", message).with_evidence(text)))
    };
    if lower.contains("not your limit") || says(&BUSY_WORDS) {
        return make(Status::ProviderBusy, "busy", "the agent says that the service is busy")
            .map(|(status, cause)| (status, cause.with_remedy("try again later")));
    }
    if says(&STATED_QUOTA_WORDS) {
        return make(Status::UsageExhausted, "quota", "the agent says that the quota is used up");
    }
    None
}

/// Words by which a 429 says that a quota is used up, not that the service is busy for a moment.
const QUOTA_WORDS: [&str; 8] =
    ["quota", "usage limit", "billing", "credit", "spend limit", "out of usage", "monthly", "weekly limit"];

impl Failure {
    /// The failure in a response, if it is one.
    pub(super) fn of(kind: &EventKind) -> Option<Self> {
        let EventKind::ModelResponse {
            request,
            class,
            status,
            failure,
            content_type,
            retry_after_s,
            error,
            finish_reason,
            cut,
            ..
        } = kind
        else {
            return None;
        };
        let html = content_type.as_deref().is_some_and(|c| c.contains("html"));
        // An answer that was cut is judged as such; one without a finish reason was no answer of a model.
        let answered =
            *status == Some(200) && !html && (*cut || failure.is_none() && finish_reason.is_some());
        (!answered).then(|| Self {
            step: format!("response {request} ({class})"),
            class: class.clone(),
            status: *status,
            no_answer: failure.clone(),
            content_type: content_type.clone(),
            retry_after_s: *retry_after_s,
            error: error.clone(),
        })
    }

    /// An HTTP error that only the agent tells of.
    pub(super) fn stated_by_agent(status: u16, text: &str) -> Self {
        Self {
            step: "agent".to_owned(),
            class: String::new(),
            status: Some(status),
            no_answer: None,
            content_type: None,
            retry_after_s: None,
            error: Some(text.to_owned()),
        }
    }

    /// The ending it stands for.
    pub(super) fn verdict(&self) -> (Status, Cause) {
        let step = &self.step;
        let says = self.error.clone().unwrap_or_default();
        let make = |status, code: &str, boundary, message: String, remedy: &str| {
            let mut cause = Cause::new(code, boundary, step.clone(), message);
            if let Some(s) = self.status {
                cause = cause.with_evidence(format!("HTTP {s}"));
            }
            if !says.is_empty() {
                cause = cause.with_evidence(says.clone());
            }
            (status, if remedy.is_empty() { cause } else { cause.with_remedy(remedy) })
        };
        let Some(http) = self.status else {
            let code = self.no_answer.clone().unwrap_or_else(|| failure_code::PROTOCOL.to_owned());
            let remedy = match code.as_str() {
                failure_code::TLS => "check the certificate; a private authority is named with `--ca FILE`",
                failure_code::NAME => "check the host name in `--endpoint`",
                _ => "check that the endpoint runs and that this host has a route to it",
            };
            let message = format!("the endpoint gave no answer ({code})");
            return make(Status::ProviderUnreachable, &code, Boundary::Model, message, remedy);
        };
        // The page of an overloaded proxy says as much as any other body of that status.
        let html = self.content_type.as_deref().is_some_and(|c| c.contains("html"));
        if html && !matches!(http, 429 | 503 | 529) {
            return make(
                Status::ProviderError,
                "html-answer",
                Boundary::Model,
                "the endpoint answered with a web page instead of a model's answer".to_owned(),
                "check the path in `--endpoint`: it usually ends in /v1",
            );
        }
        let message = |what: &str| format!("the endpoint answered {http}: {what}");
        match http {
            401 | 403 => make(
                Status::Unauthenticated,
                if http == 401 { "key-refused" } else { "key-forbidden" },
                Boundary::Credential,
                message("the credential was refused"),
                "check the key named by `--key-env`",
            ),
            402 => make(
                Status::UsageExhausted,
                "payment-required",
                Boundary::Model,
                message("payment required"),
                "",
            ),
            404 => make(
                Status::UnavailableModel,
                "model-not-found",
                Boundary::Model,
                message("it does not have the model, or the path is wrong"),
                "check `--model` and `--endpoint`",
            ),
            429 => {
                let text = says.to_lowercase();
                let busy = text.contains("not your limit") || text.contains("busy");
                if !busy && QUOTA_WORDS.iter().any(|w| text.contains(w)) {
                    make(
                        Status::UsageExhausted,
                        "quota",
                        Boundary::Model,
                        message("the quota is used up"),
                        "",
                    )
                } else {
                    let wait = self.retry_after_s.map_or(String::new(), |s| format!(", try again in {s} s"));
                    make(
                        Status::ProviderBusy,
                        "rate-limited",
                        Boundary::Model,
                        format!("the endpoint answered 429: too many requests{wait}"),
                        "try again later",
                    )
                }
            }
            503 | 529 => make(
                Status::ProviderBusy,
                "overloaded",
                Boundary::Model,
                message("the service is overloaded"),
                "try again later",
            ),
            200 => make(
                Status::ProviderError,
                "malformed-answer",
                Boundary::Model,
                "the endpoint's answer had no end that a model's answer has".to_owned(),
                "",
            ),
            _ => make(Status::ProviderError, "http-error", Boundary::Model, message("an error"), ""),
        }
    }
}
