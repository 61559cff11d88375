//! Reading a request whole, within bounds.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::{
    HeaderMap, StatusCode,
    body::{Body, Incoming},
    header::CONTENT_ENCODING,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    activity::Activity,
    policy::{BODY_LIMIT_BYTES, HELD_LIMIT_BYTES},
};

/// How much room is made for a body on its word alone, in bytes: most requests fit.
const RESERVED_BYTES: usize = 256 * 1024;

/// The share of memory that bodies may take over all connections, in bytes.
#[derive(Clone, Debug)]
pub(crate) struct Budget(Arc<Semaphore>);

impl Budget {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(HELD_LIMIT_BYTES)))
    }

    fn take(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0).try_acquire_many_owned(u32::try_from(bytes).ok()?).ok()
    }
}

/// A request body and its share of the budget.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) bytes: Bytes,
    pub(crate) share: Option<OwnedSemaphorePermit>,
}

/// Why a body was not read.
#[derive(Debug)]
pub(crate) struct Unread {
    pub(crate) status: StatusCode,
    pub(crate) reason: &'static str,
}

/// Reads a body of at most [`BODY_LIMIT_BYTES`].
pub(crate) async fn whole(
    headers: &HeaderMap,
    mut body: Incoming,
    budget: &Budget,
    activity: &Activity,
) -> Result<Held, Unread> {
    if headers.get(CONTENT_ENCODING).is_some_and(|v| !v.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return Err(Unread { status: StatusCode::UNSUPPORTED_MEDIA_TYPE, reason: "a compressed request" });
    }
    let too_large = || Unread { status: StatusCode::PAYLOAD_TOO_LARGE, reason: "a request over 32 MiB" };
    let stated = usize::try_from(body.size_hint().lower()).map_err(|_| too_large())?;
    if stated > BODY_LIMIT_BYTES {
        return Err(too_large());
    }
    let mut bytes = Vec::with_capacity(stated.min(RESERVED_BYTES));
    let mut share: Option<OwnedSemaphorePermit> = None;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Unread {
            status: StatusCode::BAD_REQUEST,
            reason: "a request that broke off or is malformed",
        })?;
        let Ok(data) = frame.into_data() else { continue };
        activity.heard_agent(data.len());
        if bytes.len() + data.len() > BODY_LIMIT_BYTES {
            return Err(too_large());
        }
        let more = budget.take(data.len()).ok_or(Unread {
            status: StatusCode::SERVICE_UNAVAILABLE,
            reason: "too many large requests at once",
        })?;
        match &mut share {
            Some(share) => share.merge(more),
            none => *none = Some(more),
        }
        bytes.extend_from_slice(&data);
    }
    Ok(Held { bytes: Bytes::from(bytes), share })
}
