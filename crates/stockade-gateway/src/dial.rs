//! Reaching the endpoint.

use std::{error::Error, sync::Arc};

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use stockade_core::event::failure_code;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{Instant, timeout_at},
};

use crate::{
    connect,
    policy::{BUFFER_BYTES, CONNECT_TIMEOUT, HEAD_LIMIT_BYTES},
    resolve,
    tasks::Tasks,
    tls::Tls,
    upstream::Upstream,
};

/// Why no answer arrived.
#[derive(Debug)]
pub(crate) struct NoAnswer {
    /// One of [`failure_code`].
    pub(crate) code: &'static str,
    pub(crate) text: String,
}

impl NoAnswer {
    pub(crate) fn new(code: &'static str, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }
}

/// An error with its causes in one line.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}

/// A connection to the endpoint that takes one request at a time.
pub(crate) type Line = SendRequest<Full<Bytes>>;

trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

/// Opens connections to the endpoint.
#[derive(Debug)]
pub(crate) struct Dialer {
    pub(crate) upstream: Upstream,
    /// `None` for plain HTTP.
    pub(crate) tls: Option<Tls>,
    pub(crate) tasks: Arc<Tasks>,
}

impl Dialer {
    /// Opens a connection within [`CONNECT_TIMEOUT`].
    pub(crate) async fn dial(&self) -> Result<Line, NoAnswer> {
        let deadline = Instant::now() + CONNECT_TIMEOUT;
        let host = self.upstream.host();
        let found = timeout_at(deadline, resolve::addresses(host, self.upstream.port()))
            .await
            .map_err(|_| NoAnswer::new(failure_code::NAME, format!("looking up {host} took too long")))?
            .map_err(|e| NoAnswer::new(failure_code::NAME, format!("cannot look up {host}: {e}")))?;
        let tcp = connect::first(&found, deadline).await.map_err(|last| {
            let target = format!("{host} port {}", self.upstream.port());
            NoAnswer::new(failure_code::UNREACHABLE, format!("cannot connect to {target}: {last}"))
        })?;
        let wire: Box<dyn Wire> = match &self.tls {
            None => Box::new(tcp),
            Some(tls) => {
                let handshake = tls.connector.connect(tls.name.clone(), tcp);
                let stream = timeout_at(deadline, handshake)
                    .await
                    .map_err(|_| NoAnswer::new(failure_code::TLS, "the TLS handshake took too long"))?
                    .map_err(|e| {
                        NoAnswer::new(failure_code::TLS, format!("TLS with {host}: {}", chain(&e)))
                    })?;
                Box::new(stream)
            }
        };
        let (line, connection) = http1::Builder::new()
            .max_header_size(HEAD_LIMIT_BYTES)
            .max_buf_size(BUFFER_BYTES)
            .handshake(TokioIo::new(wire))
            .await
            .map_err(|e| NoAnswer::new(failure_code::PROTOCOL, chain(&e)))?;
        let mut stop = self.tasks.stop();
        self.tasks.spawn(async move {
            tokio::select! {
                // Errors reach whoever waits for the answer.
                _ended = connection => {}
                () = stop.asked() => {}
            }
        });
        Ok(line)
    }
}
