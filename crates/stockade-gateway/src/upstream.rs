//! The one endpoint that model calls go to.

use std::{fmt, net::IpAddr};

use hyper::Uri;
use thiserror::Error;

/// How the endpoint is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Plain HTTP.
    Http,
    /// HTTP over TLS.
    Https,
}

impl Scheme {
    const fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

/// Why a text is no endpoint. The text itself is never repeated where it may hold a password.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum UpstreamError {
    /// It is no URL.
    #[error("`{0}` is not a URL")]
    NotAUrl(String),
    /// Neither http nor https.
    #[error("the endpoint has to begin with http:// or https://, not {0}://")]
    Scheme(String),
    /// No scheme, as in `api.example.com/v1`.
    #[error("the endpoint has to begin with http:// or https://")]
    NoScheme,
    /// It holds a user name or a password.
    #[error("the endpoint holds a user name or password, which would be recorded")]
    UserInfo,
    /// It has a query or a fragment.
    #[error("the endpoint must not have a query or a fragment")]
    Query,
    /// The port is no number from 1 to 65535.
    #[error("the endpoint's port is not a number from 1 to 65535")]
    Port,
}

/// The one endpoint that model calls go to, as parsed from `https://host[:port][/prefix]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    scheme: Scheme,
    host: String,
    port: u16,
    prefix: String,
}

impl Upstream {
    /// Parses an endpoint. The path is kept as a prefix without a trailing slash.
    pub fn parse(url: &str) -> Result<Self, UpstreamError> {
        if url.contains(['?', '#']) {
            return Err(UpstreamError::Query);
        }
        // Before anything else can repeat the text in a message.
        if url
            .split_once("://")
            .map_or(url, |(_, rest)| rest)
            .split('/')
            .next()
            .is_some_and(|a| a.contains('@'))
        {
            return Err(UpstreamError::UserInfo);
        }
        let uri: Uri = url.parse().map_err(|_| UpstreamError::NotAUrl(url.to_owned()))?;
        let scheme = match uri.scheme_str() {
            Some("http") => Scheme::Http,
            Some("https") => Scheme::Https,
            Some(other) => return Err(UpstreamError::Scheme(other.to_owned())),
            None => return Err(UpstreamError::NoScheme),
        };
        let authority = uri.authority().ok_or_else(|| UpstreamError::NotAUrl(url.to_owned()))?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        if host.is_empty() {
            return Err(UpstreamError::NotAUrl(url.to_owned()));
        }
        // `Authority::port_u16` is silent about a port that does not fit.
        let written = authority.as_str().rsplit_once(']').map_or(authority.as_str(), |(_, rest)| rest);
        let port = match written.rsplit_once(':') {
            None => scheme.default_port(),
            Some((_, digits)) => match digits.parse::<u16>() {
                Ok(port) if port != 0 => port,
                _ => return Err(UpstreamError::Port),
            },
        };
        Ok(Self { scheme, host, port, prefix: uri.path().trim_end_matches('/').to_owned() })
    }

    /// How it is reached.
    pub const fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The host, an IPv6 address without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The path before every request path: `/v1`, or empty.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Whether it names this host: `localhost` or a loopback address.
    pub fn is_loopback(&self) -> bool {
        match self.host.parse::<IpAddr>() {
            Ok(address) => address.is_loopback(),
            Err(_) => self.host == "localhost" || self.host.ends_with(".localhost"),
        }
    }

    /// The value of the `host` header: the port only where it is not the scheme's own.
    pub(crate) fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.port == self.scheme.default_port() { host } else { format!("{host}:{}", self.port) }
    }
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.scheme.name(), self.authority(), self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(url: &str) -> (Scheme, String, u16, String) {
        let u = Upstream::parse(url).unwrap();
        (u.scheme(), u.host().to_owned(), u.port(), u.prefix().to_owned())
    }

    #[test]
    fn reads_scheme_host_port_and_prefix() {
        assert_eq!(
            parts("https://API.x.ai/v1/"),
            (Scheme::Https, "api.x.ai".to_owned(), 443, "/v1".to_owned())
        );
        assert_eq!(
            parts("http://127.0.0.1:8099"),
            (Scheme::Http, "127.0.0.1".to_owned(), 8099, String::new())
        );
        assert_eq!(parts("https://[::1]:9/a/b"), (Scheme::Https, "::1".to_owned(), 9, "/a/b".to_owned()));
        assert_eq!(parts("https://[::1]/a"), (Scheme::Https, "::1".to_owned(), 443, "/a".to_owned()));
    }

    #[test]
    fn names_what_is_wrong() {
        let wrong = |url: &str| Upstream::parse(url).unwrap_err();
        assert_eq!(wrong("api.x.ai"), UpstreamError::NoScheme);
        assert_eq!(wrong("ftp://a/"), UpstreamError::Scheme("ftp".to_owned()));
        assert_eq!(wrong("https://me:secret@a/"), UpstreamError::UserInfo);
        assert_eq!(wrong("https://a/?key=1"), UpstreamError::Query);
        assert_eq!(wrong("https://a/#x"), UpstreamError::Query);
        assert_eq!(wrong("https://a:99999/"), UpstreamError::Port);
        assert_eq!(wrong("https://a:0/"), UpstreamError::Port);
        assert_eq!(wrong("https://a:/"), UpstreamError::Port);
        assert!(matches!(wrong("https://a b/"), UpstreamError::NotAUrl(_)));
        assert!(matches!(wrong("https://"), UpstreamError::NotAUrl(_)));
        assert!(matches!(wrong(""), UpstreamError::NotAUrl(_)));
    }

    #[test]
    fn tells_loopback_from_the_rest_and_prints_itself() {
        for (url, loopback) in [
            ("http://localhost:1/v1", true),
            ("http://127.0.0.53/v1", true),
            ("http://[::1]:1/v1", true),
            ("http://127.0.0.1.example.com/v1", false),
            ("http://localhost.example.com/v1", false),
        ] {
            let upstream = Upstream::parse(url).unwrap();
            assert_eq!(upstream.is_loopback(), loopback, "{url}");
            assert_eq!(upstream.to_string(), url);
        }
    }
}
