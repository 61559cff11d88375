//! Which headers cross the gateway, and what they state.

use std::time::UNIX_EPOCH;

use hyper::{
    HeaderMap,
    header::{
        ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, DATE, EXPECT,
        FORWARDED, HOST, HeaderName, HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, RETRY_AFTER,
        SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
    },
};

use crate::{mask::Mask, policy::Prepared};

/// Headers that concern one connection only (RFC 9110, 7.6.1).
const HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    HeaderName::from_static("proxy-connection"),
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// What an agent sends and the gateway sets itself.
const REPLACED: [HeaderName; 5] = [HOST, CONTENT_LENGTH, CONTENT_TYPE, ACCEPT_ENCODING, EXPECT];

/// Credentials: none but the gateway's own reaches the endpoint.
const CREDENTIALS: [HeaderName; 5] = [
    AUTHORIZATION,
    COOKIE,
    HeaderName::from_static("x-api-key"),
    HeaderName::from_static("api-key"),
    HeaderName::from_static("x-goog-api-key"),
];

/// What could turn a call of the model into another request, or charge it to another account of the same key.
const REDIRECTING: [HeaderName; 9] = [
    FORWARDED,
    HeaderName::from_static("x-original-url"),
    HeaderName::from_static("x-rewrite-url"),
    HeaderName::from_static("x-http-method"),
    HeaderName::from_static("x-http-method-override"),
    HeaderName::from_static("x-method-override"),
    HeaderName::from_static("openai-organization"),
    HeaderName::from_static("openai-project"),
    HeaderName::from_static("chatgpt-account-id"),
];

/// The headers of a forwarded request. The body was read as JSON, so it is sent as JSON.
pub(crate) fn to_endpoint(agent: &HeaderMap, prepared: &Prepared) -> HeaderMap {
    let named = named_by_connection(agent);
    let mut out = HeaderMap::with_capacity(agent.len() + 4);
    for (name, value) in agent {
        let dropped =
            [&HOP_BY_HOP[..], &REPLACED, &CREDENTIALS, &REDIRECTING].iter().any(|l| l.contains(name))
                || name.as_str().starts_with("x-forwarded-")
                || named.contains(name);
        if !dropped {
            out.append(name, value.clone());
        }
    }
    out.insert(HOST, prepared.host.clone());
    out.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    out.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    if let Some((name, value)) = &prepared.credential {
        out.insert(name, value.clone());
    }
    out
}

/// The headers of an answer that passes to the agent.
pub(crate) fn to_agent(endpoint: &HeaderMap, mask: &Mask) -> HeaderMap {
    let named = named_by_connection(endpoint);
    // With both, the length is not the one that counts.
    let chunked = endpoint.contains_key(TRANSFER_ENCODING);
    let mut out = HeaderMap::with_capacity(endpoint.len());
    for (name, value) in endpoint {
        let dropped = HOP_BY_HOP.contains(name)
            || *name == SET_COOKIE
            || (chunked && *name == CONTENT_LENGTH)
            || named.contains(name)
            || mask.finds(value.as_bytes());
        if !dropped {
            out.append(name, value.clone());
        }
    }
    out
}

/// The headers of a plain request or its answer that concern more than one connection. The credentials of a proxy are
/// meant for this one.
pub(crate) fn end_to_end(headers: &HeaderMap) -> HeaderMap {
    let named = named_by_connection(headers);
    // With both, the length is not the one that counts.
    let chunked = headers.contains_key(TRANSFER_ENCODING);
    let mut out = HeaderMap::with_capacity(headers.len() + 2);
    for (name, value) in headers {
        let dropped =
            HOP_BY_HOP.contains(name) || (chunked && *name == CONTENT_LENGTH) || named.contains(name);
        if !dropped {
            out.append(name, value.clone());
        }
    }
    out
}

fn named_by_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','))
        .filter_map(|name| HeaderName::try_from(name.trim()).ok())
        .collect()
}

/// The content type without parameters, in lower case.
pub(crate) fn content_type(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    Some(value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
}

/// The end of the year 9999, the last that a date of a header can name, in seconds since 1970.
pub(crate) const LAST_SECOND: u64 = 253_402_300_799;

/// In how many seconds it can be tried again: `retry-after`, where it is a date by the clock of the answer itself.
pub(crate) fn retry_after_s(headers: &HeaderMap) -> Option<u64> {
    number(headers, RETRY_AFTER.as_str()).or_else(|| {
        let until = date(headers, RETRY_AFTER.as_str())?;
        Some(until.saturating_sub(date(headers, DATE.as_str())?))
    })
}

/// When what is used up comes back, where a header states it, in seconds since 1970.
pub(crate) fn resets_at_s(headers: &HeaderMap) -> Option<u64> {
    // That of Anthropic's plans.
    number(headers, "anthropic-ratelimit-unified-reset")
        .filter(|at| *at <= LAST_SECOND)
        .or_else(|| date(headers, RETRY_AFTER.as_str()))
}

fn number(headers: &HeaderMap, name: &str) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok()
}

/// A date of HTTP (RFC 9110, 5.6.7), in seconds since 1970.
fn date(headers: &HeaderMap, name: &str) -> Option<u64> {
    let at = httpdate::parse_http_date(headers.get(name)?.to_str().ok()?.trim()).ok()?;
    at.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_to_try_again_is_read_in_every_form_and_never_guessed() {
        const LATER: &str = "Fri, 31 Dec 2027 23:59:59 GMT";
        let read = |pairs: &[(&'static str, &str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.append(*name, HeaderValue::from_str(value).unwrap());
            }
            (retry_after_s(&headers), resets_at_s(&headers))
        };
        let at = Some(1_830_297_599);
        for (pairs, expected) in [
            (&[][..], (None, None)),
            (&[("retry-after", " 120 ")], (Some(120), None)),
            (&[("retry-after", LATER)], (None, at)),
            (&[("retry-after", LATER), ("date", "Fri, 31 Dec 2027 23:58:59 GMT")], (Some(60), at)),
            // The other two forms, which are still read.
            (&[("retry-after", "Friday, 31-Dec-27 23:59:59 GMT")], (None, at)),
            (&[("retry-after", "Fri Dec 31 23:59:59 2027")], (None, at)),
            // What has passed is no time to wait.
            (&[("retry-after", LATER), ("date", "Sat, 01 Jan 2028 23:58:59 GMT")], (Some(0), at)),
            (&[("retry-after", "-5")], (None, None)),
            (&[("retry-after", "1.5")], (None, None)),
            (&[("retry-after", "soon")], (None, None)),
            (&[("retry-after", "Fri, 31 Dec 12027 23:59:59 GMT")], (None, None)),
            (&[("anthropic-ratelimit-unified-reset", "1893456000")], (None, Some(1_893_456_000))),
            (&[("anthropic-ratelimit-unified-reset", "18934560000000")], (None, None)),
        ] {
            assert_eq!(read(pairs), expected, "{pairs:?}");
        }
    }
}
