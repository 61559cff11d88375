//! What a failed answer on the wire means.

use crate::{
    event::{EventKind, StatedError, failure_code},
    status::{Boundary, Cause, Status},
    text,
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
    stated: StatedError,
}

/// Words by which an agent says that the service is busy, where nothing was seen on the wire.
const BUSY_WORDS: [&str; 4] = ["server busy", "overloaded", "rate limit", "too many requests"];

/// Words by which an agent says that a quota is used up, where nothing was seen on the wire. Fewer than those of a 429,
/// because an agent's error may be about anything.
const STATED_QUOTA_WORDS: [&str; 5] =
    ["exceeded your", "insufficient_quota", "usage limit", "spend limit", "out of usage"];

/// The code of a conversation that is longer than the model can read.
pub(super) const CONTEXT_OVERFLOW: &str = "context-overflow";

/// Words by which vendors say that a conversation is longer than the model can read.
const OVERFLOW_WORDS: [&str; 7] = [
    "prompt is too long",
    "maximum context length",
    "maximum prompt length",
    "context_length_exceeded",
    "context window",
    "context limit",
    "context length",
];

/// Words by which vendors say that their filter took a request or an answer.
const FILTER_WORDS: [&str; 4] =
    ["content_policy_violation", "content_filter", "violating our usage policy", "content management policy"];

/// Codes and types of errors that say that a quota is used up.
const QUOTA_CODES: [&str; 6] = [
    "insufficient_quota",
    "usage_limit_reached",
    "usage_not_included",
    "billing_error",
    "billing_hard_limit_reached",
    "quota_exceeded",
];

/// Codes and types of errors that say that the service has too much to do.
const BUSY_CODES: [&str; 4] =
    ["overloaded_error", "server_is_overloaded", "slow_down", "service_unavailable_error"];

/// Words by which a 429 says that a quota is used up, not that the service is busy for a moment.
const QUOTA_WORDS: [&str; 8] =
    ["quota", "usage limit", "billing", "credit", "spend limit", "out of usage", "monthly", "weekly limit"];

/// The same for other statuses, whose errors may be about anything.
const QUOTA_SENTENCES: [&str; 4] =
    ["credit balance is too low", "api usage limits", "exceeded your current quota", "out of usage credits"];

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
    if says(&OVERFLOW_WORDS) {
        let message = "the agent says that the conversation is longer than the model can read";
        return make(Status::ProviderError, CONTEXT_OVERFLOW, message);
    }
    None
}

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
            stated,
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
            stated: stated.as_deref().cloned().unwrap_or_default(),
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
            stated: StatedError::default(),
        }
    }

    /// A status and its cause, with what was seen.
    fn named(
        &self,
        status: Status,
        code: &str,
        boundary: Boundary,
        message: String,
        remedy: &str,
    ) -> (Status, Cause) {
        let mut cause = Cause::new(code, boundary, self.step.clone(), message);
        if let Some(s) = self.status {
            cause = cause.with_evidence(format!("HTTP {s}"));
        }
        if let Some(says) = self.error.as_ref().filter(|says| !says.is_empty()) {
            cause = cause.with_evidence(says.clone());
        }
        (status, if remedy.is_empty() { cause } else { cause.with_remedy(remedy) })
    }

    /// The ending it stands for.
    pub(super) fn verdict(&self) -> (Status, Cause) {
        let make = |status, code: &str, boundary, message, remedy: &str| {
            self.named(status, code, boundary, message, remedy)
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
        let message = |what: &str| match http {
            200 => format!("the endpoint's answer states an error: {what}"),
            _ => format!("the endpoint answered {http}: {what}"),
        };
        let model = Boundary::Model;
        match self.meaning(http) {
            Meaning::Overflow => make(
                Status::ProviderError,
                CONTEXT_OVERFLOW,
                model,
                message("the conversation is longer than the model can read"),
                "give the agent less to read at once, or use a model with a larger context",
            ),
            Meaning::Filtered => make(
                Status::RefusedByModel,
                "content-filter",
                model,
                message("the vendor's filter refused the request"),
                "",
            ),
            Meaning::Quota => {
                let message = message(&format!("the quota is used up{}", self.comes_back()));
                make(Status::UsageExhausted, "quota", model, message, "")
            }
            Meaning::Overloaded => make(
                Status::ProviderBusy,
                "overloaded",
                model,
                message("the service is overloaded"),
                "try again later",
            ),
            Meaning::RateLimited => {
                let message = message(&format!("too many requests{}", self.comes_back()));
                make(Status::ProviderBusy, "rate-limited", model, message, "try again later")
            }
            Meaning::Status => self.by_status(http),
        }
    }

    /// When it may be tried again, only where the endpoint states it.
    fn comes_back(&self) -> String {
        match (self.retry_after_s, self.stated.resets_at_s) {
            (_, Some(at)) => format!(", it comes back at {}", text::utc_time(at)),
            (Some(s), None) => format!(", try again in {s} s"),
            (None, None) => String::new(),
        }
    }

    /// What an error says by its code, its type or its words, whatever its status.
    fn meaning(&self, http: u16) -> Meaning {
        let text = self.error.as_deref().unwrap_or_default().to_lowercase();
        let codes = [self.stated.code.as_deref(), self.stated.kind.as_deref()];
        let code_in = |list: &[&str]| codes.iter().flatten().any(|code| list.contains(code));
        let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
        let is_about_request = matches!(http, 200 | 400 | 413 | 422);
        let busy = text.contains("not your limit") || text.contains("busy");
        if code_in(&["context_length_exceeded"]) || is_about_request && says(&OVERFLOW_WORDS) {
            Meaning::Overflow
        } else if code_in(&["content_filter", "content_policy_violation", "invalid_prompt"])
            || is_about_request && says(&FILTER_WORDS)
        {
            Meaning::Filtered
        } else if code_in(&QUOTA_CODES)
            || says(&QUOTA_SENTENCES)
            || http == 429 && !busy && says(&QUOTA_WORDS)
        {
            Meaning::Quota
        } else if code_in(&BUSY_CODES) || matches!(http, 503 | 529) {
            Meaning::Overloaded
        } else if http == 429 || code_in(&["rate_limit_error", "rate_limit_exceeded"]) {
            Meaning::RateLimited
        } else {
            Meaning::Status
        }
    }

    /// What the status alone says.
    fn by_status(&self, http: u16) -> (Status, Cause) {
        let make = |status, code: &str, boundary, message, remedy: &str| {
            self.named(status, code, boundary, message, remedy)
        };
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
            413 => make(
                Status::ProviderError,
                "request-too-large",
                Boundary::Model,
                message("the request is larger than it takes"),
                "give the agent less to read at once",
            ),
            200 if self.stated != StatedError::default() => make(
                Status::ProviderError,
                "stated-error",
                Boundary::Model,
                "the endpoint's answer states an error".to_owned(),
                "",
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

/// What an error says.
enum Meaning {
    Overflow,
    Filtered,
    Quota,
    Overloaded,
    RateLimited,
    /// No more than its status.
    Status,
}
