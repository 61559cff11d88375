//! Why a gateway does not start.

use std::io;

use thiserror::Error;

/// Why a gateway does not start. Nothing was listened to when it is returned.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum GatewayError {
    /// The policy names no request class, no model or no model path.
    #[error("the policy names no {0}")]
    Empty(&'static str),
    /// A model path lies outside the base path.
    #[error("model path {path} does not begin with the base path {base}")]
    ModelPath {
        /// The model path.
        path: String,
        /// The base path.
        base: String,
    },
    /// The credential holds bytes that a header cannot carry.
    #[error("the credential cannot be sent in a header: it holds control or non-ASCII characters")]
    Credential,
    /// The stop header is no header.
    #[error("the stop header {name} is not a valid header")]
    StopHeader {
        /// Its name.
        name: String,
    },
    /// The stop status is none of a failure that is the caller's.
    #[error("the stop status {status} is not between 400 and 499")]
    StopStatus {
        /// The status.
        status: u16,
    },
    /// The system's certificates cannot be read and none were given.
    #[error("no certificate authority to trust: {reason}")]
    NoAuthorities {
        /// What the system's store said.
        reason: String,
    },
    /// The additional certificates are no PEM certificates.
    #[error("the additional certificates cannot be used: {reason}")]
    ExtraAuthorities {
        /// What is wrong.
        reason: String,
    },
    /// TLS cannot be set up.
    #[error("cannot set up TLS: {0}")]
    Tls(#[source] rustls::Error),
    /// The endpoint's host cannot be verified by a certificate.
    #[error("{host} is not a name that a certificate can vouch for")]
    ServerName {
        /// The host.
        host: String,
    },
    /// A listener cannot be handed to the runtime.
    #[error("cannot register the {listener} listener: {source}")]
    Listener {
        /// `model`, `names` or `egress`.
        listener: &'static str,
        /// The cause.
        source: io::Error,
    },
}
