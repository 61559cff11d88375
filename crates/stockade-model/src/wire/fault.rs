//! Errors, in the words of each API.

use serde_json::{Value, json};

use super::Api;
use crate::scenario::Fault;

/// What an error says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Words {
    /// The HTTP status it comes with.
    pub(crate) status: u16,
    /// Its type.
    pub(crate) kind: &'static str,
    /// The finer word of OpenAI's APIs.
    pub(crate) code: String,
    pub(crate) message: String,
}

impl Words {
    /// The error that belongs to a status.
    pub(crate) fn of_status(status: u16, message: String) -> Self {
        let kind = match status {
            400 => "invalid_request_error",
            401 => "authentication_error",
            402 => "billing_error",
            403 => "permission_error",
            404 => "not_found_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            529 => "overloaded_error",
            _ => "api_error",
        };
        Self { status, kind, code: format!("scripted_{status}"), message }
    }

    /// A fault as the vendor of the API words it.
    pub(crate) fn of(api: Api, fault: Fault) -> Self {
        let (status, kind, code, message) = match (fault, api) {
            (Fault::Overloaded, Api::Messages) => (529, "overloaded_error", "", "Overloaded"),
            (Fault::Overloaded, Api::Chat | Api::Responses) => (
                503,
                "service_unavailable_error",
                "server_is_overloaded",
                "Our servers are currently overloaded. Please try again later.",
            ),
            (Fault::RateLimited, Api::Messages) => (
                429,
                "rate_limit_error",
                "",
                "This request would exceed the rate limit for your organization of 50 requests per minute.",
            ),
            (Fault::RateLimited, Api::Chat | Api::Responses) => (
                429,
                "requests",
                "rate_limit_exceeded",
                "Rate limit reached for requests. Please try again in 20s.",
            ),
            (Fault::Quota, Api::Messages) => (
                400,
                "invalid_request_error",
                "",
                "You have reached your specified API usage limits. You will regain access on 2030-01-01 at 00:00 UTC.",
            ),
            (Fault::Quota, Api::Chat | Api::Responses) => (
                429,
                "insufficient_quota",
                "insufficient_quota",
                "You exceeded your current quota, please check your plan and billing details.",
            ),
            (Fault::ContextOverflow, Api::Messages) => {
                (400, "invalid_request_error", "", "prompt is too long: 215338 tokens > 200000 maximum")
            }
            (Fault::ContextOverflow, Api::Chat) => (
                400,
                "invalid_request_error",
                "context_length_exceeded",
                "This model's maximum context length is 128000 tokens. However, your messages resulted in 140000 tokens.",
            ),
            (Fault::ContextOverflow, Api::Responses) => (
                400,
                "invalid_request_error",
                "context_length_exceeded",
                "Your input exceeds the context window of this model. Please adjust your input and try again.",
            ),
        };
        Self { status, kind, code: code.to_owned(), message: message.to_owned() }
    }
}

pub(super) fn openai_body(words: &Words) -> Value {
    json!({"error": {"message": words.message, "type": words.kind, "param": null, "code": words.code}})
}

pub(super) fn anthropic_body(words: &Words) -> Value {
    let error = json!({"type": words.kind, "message": words.message});
    json!({"type": "error", "error": error, "request_id": "req_scripted"})
}
