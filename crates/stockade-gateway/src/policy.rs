//! What a run may ask of its model, and how that is sent on.

use std::time::Duration;

use hyper::{
    StatusCode,
    header::{AUTHORIZATION, HeaderName, HeaderValue},
};
use secrecy::{ExposeSecret, SecretString};
use stockade_core::{
    budget::Budget,
    profile::{CredentialHeader, SideRequest},
};

use crate::{error::GatewayError, mask::Mask, upstream::Upstream};

/// The longest request body, in bytes. Requests of agents grow with the session; the largest measured were a few
/// hundred kilobytes.
pub(crate) const BODY_LIMIT_BYTES: usize = 32 * 1024 * 1024;
/// How many bytes of request bodies are held at once over all connections.
pub(crate) const HELD_LIMIT_BYTES: usize = 96 * 1024 * 1024;
/// The longest head of a request or an answer, in bytes.
pub(crate) const HEAD_LIMIT_BYTES: usize = 64 * 1024;
/// The largest read or write buffer of one connection, in bytes: a head has to fit.
pub(crate) const BUFFER_BYTES: usize = 2 * HEAD_LIMIT_BYTES;
/// How many connections are served at once inside; others wait in the listener's queue.
pub(crate) const CONNECTION_LIMIT: usize = 64;
/// How long it may take to reach the endpoint: name, TCP and TLS together.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A `retry-after` beyond this is not waited for: the agent is told to stop.
pub(crate) const LONGEST_RETRY_AFTER_S: u64 = 10;

/// The credential for the endpoint and the header that carries it.
#[derive(Clone, Debug)]
pub struct Credential {
    /// How it is sent.
    pub header: CredentialHeader,
    /// The secret.
    pub secret: SecretString,
}

impl Credential {
    fn header(&self) -> Result<(HeaderName, HeaderValue), GatewayError> {
        let secret = self.secret.expose_secret();
        let (name, text) = match self.header {
            CredentialHeader::Bearer => (AUTHORIZATION, format!("Bearer {secret}")),
            CredentialHeader::XApiKey => (HeaderName::from_static("x-api-key"), secret.to_owned()),
        };
        let mut value = HeaderValue::from_str(&text).map_err(|_| GatewayError::Credential)?;
        value.set_sensitive(true);
        Ok((name, value))
    }
}

/// What a run may ask of its model, and how that is sent on.
#[derive(Clone, Debug)]
pub struct ModelPolicy {
    /// The endpoint.
    pub upstream: Upstream,
    /// The path prefix that the agent uses inside, without a trailing slash: `/v1`. It is replaced by the endpoint's.
    pub base_path: String,
    /// The credential; `None`: requests are sent without one.
    pub credential: Option<Credential>,
    /// Certificates (PEM) trusted beside the system's.
    pub extra_ca_pem: Option<Vec<u8>>,
    /// The paths that are model calls, query left out. Only POST to these is forwarded. None, and no class either: nothing is.
    pub model_paths: Vec<String>,
    /// The values of `model` that may be asked for.
    pub models: Vec<String>,
    /// The request classes: name and exact set of tools in the run's mode. The first is the main turn.
    pub classes: Vec<(String, Vec<String>)>,
    /// Requests answered here without a note.
    pub side_requests: Vec<SideRequest>,
    /// From this many failures of one class in a row on, the agent is told to stop; 0 means 1.
    pub failures_before_stop: u32,
    /// The response header, name and value, that tells the agent not to try again.
    pub stop_header: Option<(String, String)>,
    /// The status, in place of a failure's own, on which the agent does not try again.
    pub stop_status: Option<u16>,
    /// What the run may spend.
    pub budget: Budget,
    /// The key that callers have to show, needed where others than the agent can reach the listener.
    pub placeholder_key: Option<String>,
}

/// What an answer has that ends the agent's retries.
#[derive(Debug)]
pub(crate) struct StopAnswer {
    pub(crate) header: Option<(HeaderName, HeaderValue)>,
    pub(crate) status: Option<StatusCode>,
}

impl StopAnswer {
    /// Whether there is such an answer at all.
    pub(crate) fn is_known(&self) -> bool {
        self.header.is_some() || self.status.is_some()
    }
}

/// What has to be sent and hidden, checked once at the start.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) credential: Option<(HeaderName, HeaderValue)>,
    pub(crate) stop: StopAnswer,
    pub(crate) host: HeaderValue,
    pub(crate) mask: Mask,
}

impl ModelPolicy {
    pub(crate) fn prepare(&self) -> Result<Prepared, GatewayError> {
        // With neither, nothing is forwarded and nothing has to be compared.
        let forwards = !(self.model_paths.is_empty() && self.classes.is_empty());
        for (is_empty, what) in [
            (forwards && self.model_paths.is_empty(), "model path"),
            (self.models.is_empty(), "model"),
            (forwards && self.classes.is_empty(), "request class"),
        ] {
            if is_empty {
                return Err(GatewayError::Empty(what));
            }
        }
        for path in &self.model_paths {
            if self.after_base(path).is_none() {
                return Err(GatewayError::ModelPath { path: path.clone(), base: self.base_path.clone() });
            }
        }
        let stop_header = match &self.stop_header {
            None => None,
            Some((name, value)) => {
                let parsed = HeaderName::try_from(name).ok().zip(HeaderValue::from_str(value).ok());
                Some(parsed.ok_or_else(|| GatewayError::StopHeader { name: name.clone() })?)
            }
        };
        let stop_status = match self.stop_status {
            None => None,
            Some(status) => {
                let parsed = StatusCode::from_u16(status).ok().filter(StatusCode::is_client_error);
                Some(parsed.ok_or(GatewayError::StopStatus { status })?)
            }
        };
        let host = HeaderValue::from_str(&self.upstream.authority())
            .map_err(|_| GatewayError::ServerName { host: self.upstream.host().to_owned() })?;
        Ok(Prepared {
            credential: self.credential.as_ref().map(Credential::header).transpose()?,
            stop: StopAnswer { header: stop_header, status: stop_status },
            host,
            mask: Mask::new(self.credential.as_ref().map(|c| c.secret.expose_secret())),
        })
    }

    /// The part of a path after the base path, with its leading slash.
    pub(crate) fn after_base<'a>(&self, path: &'a str) -> Option<&'a str> {
        path.strip_prefix(self.base_path.trim_end_matches('/')).filter(|rest| rest.starts_with('/'))
    }
}
