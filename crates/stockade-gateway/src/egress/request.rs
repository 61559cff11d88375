//! What a request asks of the proxy: a pure function of its head.

use hyper::{
    HeaderMap, Method, Uri,
    header::{CONTENT_LENGTH, HOST, HeaderValue, TRANSFER_ENCODING},
};
use stockade_core::{event::network_code, network::Destination};

use super::policy::TurnedAway;

/// The port of a plain request that names none.
pub(super) const PLAIN_PORT: u16 = 80;

/// How something is to be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// By a tunnel that takes TLS.
    Tunnel,
    /// By one plain request.
    Plain,
}

/// What a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) way: Way,
    pub(crate) to: Destination,
}

/// Reads the head of a request. What is wrong is told without repeating it: it may hold a password.
pub(crate) fn read(method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<Asked, TurnedAway> {
    if *method == Method::CONNECT { tunnel(uri, headers) } else { plain(uri, headers) }
}

fn tunnel(uri: &Uri, headers: &HeaderMap) -> Result<Asked, TurnedAway> {
    let authority = uri.authority().filter(|_| uri.scheme().is_none() && uri.path().is_empty());
    let authority = authority.ok_or_else(|| malformed("CONNECT names HOST:PORT and nothing else"))?;
    let has_body = headers.contains_key(TRANSFER_ENCODING)
        || headers.get_all(CONTENT_LENGTH).iter().any(|length| length.as_bytes() != b"0");
    if has_body {
        return Err(malformed("CONNECT has no body"));
    }
    Ok(Asked { way: Way::Tunnel, to: destination(authority.as_str(), None)? })
}

fn plain(uri: &Uri, headers: &HeaderMap) -> Result<Asked, TurnedAway> {
    match uri.scheme_str() {
        Some("http") => {}
        Some(_) => return Err(malformed("only http:// is taken in plain; https goes through CONNECT")),
        None => return Err(malformed("this is a proxy: a request names its host")),
    }
    let authority = uri.authority().ok_or_else(|| malformed("the request names no host"))?;
    let to = destination(authority.as_str(), Some(PLAIN_PORT))?;
    let mut hosts = headers.get_all(HOST).iter();
    let named = hosts.next().map(HeaderValue::to_str);
    // A server that goes by the header would answer for another host than the one that was judged.
    let agrees = match named {
        None => true,
        Some(Ok(text)) => Destination::read(text, Some(PLAIN_PORT)).is_ok_and(|host| host == to),
        Some(Err(_)) => false,
    };
    if !agrees || hosts.next().is_some() {
        return Err(malformed("the host header names another host than the request"));
    }
    Ok(Asked { way: Way::Plain, to })
}

fn destination(authority: &str, default: Option<u16>) -> Result<Destination, TurnedAway> {
    Destination::read(authority, default).map_err(|e| malformed(format!("no host is asked for: {e}")))
}

fn malformed(message: impl Into<String>) -> TurnedAway {
    TurnedAway::malformed(network_code::EGRESS_REQUEST, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(method: &str, target: &str, headers: &[(&'static str, &str)]) -> Result<String, String> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_str(value).unwrap());
        }
        let uri: Uri = target.parse().map_err(|_| "no URI".to_owned())?;
        read(&method.parse().unwrap(), &uri, &map)
            .map(|a| format!("{:?} {}", a.way, a.to))
            .map_err(|t| t.message)
    }

    #[test]
    fn both_forms_name_a_destination() {
        for (method, target, headers, expected) in [
            ("CONNECT", "a.example:443", &[("host", "other")][..], "Tunnel a.example:443"),
            ("CONNECT", "[::1]:443", &[("content-length", "0")], "Tunnel [::1]:443"),
            ("GET", "http://a.example/x?y", &[("host", "a.example:80")], "Plain a.example:80"),
            ("POST", "http://A.example:81", &[], "Plain a.example:81"),
        ] {
            assert_eq!(asked(method, target, headers), Ok(expected.to_owned()), "{method} {target}");
        }
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_turned_away_and_never_repeated() {
        for (method, target, headers) in [
            ("CONNECT", "a.example", &[][..]),
            ("CONNECT", "http://a.example:443/", &[]),
            ("CONNECT", "secret:pw@a.example:443", &[]),
            ("CONNECT", "a.example:443", &[("content-length", "5")]),
            ("CONNECT", "a.example:443", &[("transfer-encoding", "chunked")]),
            ("CONNECT", "0x7f.1:443", &[]),
            ("CONNECT", "127.1:443", &[]),
            ("CONNECT", "[::ffff:127.0.0.1]:443", &[]),
            ("CONNECT", "a.example:0", &[]),
            ("GET", "/x", &[("host", "a.example")]),
            ("GET", "https://a.example/", &[]),
            ("GET", "ftp://a.example/", &[]),
            ("GET", "http://me:secret@a.example/", &[]),
            ("GET", "http://a.example/", &[("host", "b.example")]),
            ("GET", "http://a.example/", &[("host", "a.example:81")]),
            ("GET", "http://a.example/", &[("host", "a.example"), ("host", "a.example")]),
            ("GET", "http://a.example/", &[("host", "a.example, b.example")]),
            ("OPTIONS", "*", &[("host", "a.example")]),
        ] {
            let message = asked(method, target, headers).unwrap_err();
            assert!(!message.contains("secret"), "{message}");
        }
    }
}
