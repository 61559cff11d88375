//! Hosts and ports that a network policy names, and addresses that a name alone never leads to.

mod address;
mod host;

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use self::{
    address::kept_from,
    host::{Host, HostError, HostName},
};

/// The port of the egress listener on 127.0.0.1 inside: fixed, so that an environment means the same everywhere.
pub const EGRESS_PORT: u16 = 3128;
/// The port of a destination that names none: only TLS leaves without being asked for.
pub const DEFAULT_PORT: u16 = 443;
/// Most destinations of one policy.
pub const DESTINATION_LIMIT: usize = 256;

/// A host and a port that the egress listener lets through, written `HOST[:PORT]`.
///
/// A name is compared as a whole. An address is one of its own: a name that leads to it is listed beside it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Destination {
    /// The host.
    pub host: Host,
    /// The port, never 0.
    pub port: u16,
}

/// Why a text is no destination. It repeats nothing that may be a password.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DestinationError {
    /// The host.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The port is no number from 1 to 65535.
    #[error("the port is not a number from 1 to 65535")]
    Port,
    /// A URL or a path.
    #[error("it is written HOST[:PORT], without scheme and path")]
    Url,
    /// A user or a password.
    #[error("it holds a user or a password")]
    UserInfo,
    /// An IPv6 address without brackets.
    #[error("an IPv6 address is written in brackets")]
    Brackets,
    /// No port where one is needed.
    #[error("it names no port")]
    NoPort,
}

impl Destination {
    /// Reads `HOST[:PORT]`; without a port it is [`DEFAULT_PORT`].
    pub fn parse(text: &str) -> Result<Self, DestinationError> {
        Self::read(text, Some(DEFAULT_PORT))
    }

    /// Reads an authority of a request; `default` is the port of its scheme, where it has one.
    pub fn read(text: &str, default: Option<u16>) -> Result<Self, DestinationError> {
        if text.contains('@') {
            return Err(DestinationError::UserInfo);
        }
        if text.contains(['/', '?', '#', '\\']) {
            return Err(DestinationError::Url);
        }
        let (host, port) = split(text)?;
        let port = match port {
            Some(digits) => port_of(digits)?,
            None => default.ok_or(DestinationError::NoPort)?,
        };
        Ok(Self { host: Host::parse(host)?, port })
    }
}

/// Host, with its brackets, and what follows the colon.
fn split(text: &str) -> Result<(&str, Option<&str>), DestinationError> {
    let in_brackets = text.starts_with('[');
    let end = if in_brackets { text.find(']').map_or(text.len(), |at| at + 1) } else { 0 };
    let (head, tail) = text.split_at_checked(end).unwrap_or((text, ""));
    match tail.split_once(':') {
        Some((_, rest)) if !in_brackets && rest.contains(':') => Err(DestinationError::Brackets),
        Some((host, rest)) if !in_brackets => Ok((host, Some(rest))),
        Some(("", rest)) => Ok((head, Some(rest))),
        // Something between bracket and colon is no part of an address.
        Some(_) => Err(HostError::Spelling.into()),
        None if in_brackets && tail.is_empty() => Ok((head, None)),
        None if in_brackets => Err(HostError::Spelling.into()),
        None => Ok((tail, None)),
    }
}

fn port_of(digits: &str) -> Result<u16, DestinationError> {
    // `u16::from_str` takes a sign, and leading zeros are an odd spelling.
    let plain = digits.bytes().all(|b| b.is_ascii_digit()) && !digits.starts_with('0');
    digits.parse().ok().filter(|_| plain).ok_or(DestinationError::Port)
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl FromStr for Destination {
    type Err = DestinationError;

    fn from_str(text: &str) -> Result<Self, DestinationError> {
        Self::parse(text)
    }
}

impl TryFrom<String> for Destination {
    type Error = DestinationError;

    fn try_from(text: String) -> Result<Self, DestinationError> {
        Self::parse(&text)
    }
}

impl From<Destination> for String {
    fn from(destination: Destination) -> Self {
        destination.to_string()
    }
}

/// What makes programs inside use the egress listener, by name and value. A convenience and no boundary: what ignores it
/// finds no route.
pub fn proxy_environment() -> [(&'static str, String); 9] {
    let proxy = format!("http://127.0.0.1:{EGRESS_PORT}");
    let direct = "127.0.0.1,localhost,::1".to_owned();
    [
        ("HTTPS_PROXY", proxy.clone()),
        ("https_proxy", proxy.clone()),
        ("HTTP_PROXY", proxy.clone()),
        ("http_proxy", proxy.clone()),
        ("ALL_PROXY", proxy.clone()),
        ("all_proxy", proxy),
        ("NO_PROXY", direct.clone()),
        ("no_proxy", direct),
        // Without it the fetch of Node looks at none of these.
        ("NODE_USE_ENV_PROXY", "1".to_owned()),
    ]
}

/// What makes programs inside trust the authorities in a file, by name and value. The file takes the place of the system's
/// own in most of them, so it has to hold those as well.
pub fn authority_environment(file: &str) -> [(&'static str, String); 5] {
    [
        // OpenSSL and what is built on it (curl, cargo, Python), Go, and rustls where it asks the system.
        "SSL_CERT_FILE",
        // What follows curl in this.
        "CURL_CA_BUNDLE",
        // A git whose curl is built with GnuTLS asks for neither.
        "GIT_SSL_CAINFO",
        // Node brings authorities of its own, and adds these.
        "NODE_EXTRA_CA_CERTS",
        // So do the requests of Python, pip among what uses them.
        "REQUESTS_CA_BUNDLE",
    ]
    .map(|name| (name, file.to_owned()))
}

/// An environment as an inline table of TOML, for agents that give their tools one of their own making.
pub fn toml_table(environment: &[(&'static str, String)]) -> String {
    if environment.is_empty() {
        return "{}".to_owned();
    }
    let each: Vec<String> = environment.iter().map(|(name, value)| format!("{name} = \"{value}\"")).collect();
    format!("{{ {} }}", each.join(", "))
}

#[cfg(test)]
mod tests;
