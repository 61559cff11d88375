//! Answers made here.

use bytes::Bytes;
use hyper::{
    Response, StatusCode,
    header::{CONTENT_TYPE, HeaderValue},
};
use serde_json::json;

use crate::{agent_body::AgentBody, policy::StopAnswer};

/// An answer without a body.
pub(crate) fn empty(status: u16) -> Response<AgentBody> {
    let mut response = Response::new(AgentBody::Whole(None));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::NOT_FOUND);
    response
}

/// An error in the form that all three wire formats read.
pub(crate) fn error(status: StatusCode, code: &str, message: &str) -> Response<AgentBody> {
    let body = json!({
        "type": "error",
        "error": {"type": "gateway_error", "code": code, "message": format!("stockade: {message}")},
    });
    let mut response = Response::new(AgentBody::from(Bytes::from(body.to_string())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Tells the agent not to try again, where its profile knows how.
pub(crate) fn stop(response: &mut Response<AgentBody>, stop: &StopAnswer) {
    if let Some((name, value)) = &stop.header {
        response.headers_mut().insert(name, value.clone());
    }
    if let Some(status) = stop.status {
        *response.status_mut() = status;
    }
}
