//! Each request on the wire with its answer, as far as a receipt has room.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::event::{EventKind, Usage};

use super::fold::{LIST_LIMIT, clipped};

/// One call of the model, as it went over the wire.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequestRecord {
    /// Counts from 1 over the run.
    pub request: u64,
    /// The request class of the profile.
    pub class: String,
    /// The model asked for.
    pub asked: Option<String>,
    /// The effort as sent.
    pub effort: Option<String>,
    /// The model that the answer names.
    pub served: Option<String>,
    /// The HTTP status; null: no answer arrived.
    pub status: Option<u16>,
    /// Why no answer arrived, or none that is known of.
    pub failure: Option<String>,
    /// The finish reason, in the word of the API.
    pub finish_reason: Option<String>,
    /// Whether the answer was cut off.
    pub cut: bool,
    /// The code of an error, or its type.
    pub error: Option<String>,
    /// Tokens, where stated.
    pub usage: Option<Usage>,
    /// Milliseconds from the request to the end of the answer; null: it had not ended.
    pub elapsed_ms: Option<u64>,
}

/// Notes a request; the oldest gives way.
pub(super) fn asked(list: &mut Vec<RequestRecord>, event: &EventKind) {
    let EventKind::ModelRequest { request, class, model, effort, .. } = event else { return };
    if list.len() == LIST_LIMIT {
        list.remove(0);
    }
    list.push(RequestRecord {
        request: *request,
        class: clipped(class),
        asked: model.as_deref().map(clipped),
        effort: effort.as_deref().map(clipped),
        served: None,
        status: None,
        failure: None,
        finish_reason: None,
        cut: false,
        error: None,
        usage: None,
        elapsed_ms: None,
    });
}

/// Notes the answer to a request.
pub(super) fn answered(list: &mut [RequestRecord], event: &EventKind) {
    let EventKind::ModelResponse {
        request,
        status,
        failure,
        finish_reason,
        served_model,
        usage,
        cut,
        stated,
        elapsed_ms,
        ..
    } = event
    else {
        return;
    };
    let Some(record) = list.iter_mut().rev().find(|record| record.request == *request) else { return };
    record.served = served_model.as_deref().map(clipped);
    record.status = *status;
    record.failure = failure.as_deref().map(clipped);
    record.finish_reason = finish_reason.as_deref().map(clipped);
    record.cut = *cut;
    let stated = stated.as_deref();
    record.error = stated.and_then(|s| s.code.as_deref().or(s.kind.as_deref())).map(clipped);
    record.usage.clone_from(usage);
    record.elapsed_ms = Some(*elapsed_ms);
}
