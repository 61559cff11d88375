//! A plain request: sent on to the host that it names, one connection each.

use std::sync::Arc;

use http_body_util::Either;
use hyper::{
    Request, Response, StatusCode, Uri, Version,
    body::Incoming,
    client::conn::http1,
    header::{CONNECTION, EXPECT, HOST, HeaderValue},
    http::uri::PathAndQuery,
};
use hyper_util::rt::TokioIo;
use stockade_core::{event::network_code, network::Destination};
use tokio::{net::TcpStream, time::timeout};

use super::{
    body::{Passing, ProxyBody},
    policy::TurnedAway,
    relay::IDLE_LIMIT,
    request::PLAIN_PORT,
    state::{Direction, State},
};
use crate::{
    dial::chain,
    headers,
    policy::{BUFFER_BYTES, HEAD_LIMIT_BYTES},
};

/// Sends a request on and returns the answer as it begins to arrive.
pub(super) async fn send(
    state: &Arc<State>,
    to: &Destination,
    remote: TcpStream,
    request: Request<Incoming>,
) -> Result<Response<ProxyBody>, TurnedAway> {
    let broken = |e: &hyper::Error| {
        let message = format!("{to} broke the protocol");
        TurnedAway::unreachable(network_code::EGRESS_UNREACHABLE, message).recorded(chain(e))
    };
    let (mut line, connection) = http1::Builder::new()
        .max_header_size(HEAD_LIMIT_BYTES)
        .max_buf_size(BUFFER_BYTES)
        .handshake(TokioIo::new(remote))
        .await
        .map_err(|e| broken(&e))?;
    let mut stop = state.shared.tasks.stop();
    state.shared.tasks.spawn(async move {
        tokio::select! {
            // Errors reach whoever waits for the answer or reads its body.
            _ended = connection => {}
            () = stop.asked() => {}
        }
    });
    let request = rewritten(state, to, request).ok_or_else(|| {
        TurnedAway::malformed(network_code::EGRESS_REQUEST, "the request cannot be sent on")
    })?;
    let answer = timeout(IDLE_LIMIT, line.send_request(request)).await.map_err(|_| {
        TurnedAway::unreachable(network_code::EGRESS_UNREACHABLE, format!("{to} does not answer"))
    })?;
    let (parts, body) = answer.map_err(|e| broken(&e))?.into_parts();
    // Nobody asked for another protocol, which could not be judged.
    if parts.status == StatusCode::SWITCHING_PROTOCOLS {
        let message = format!("{to} wants to change the protocol");
        return Err(TurnedAway::unreachable(network_code::EGRESS_UNREACHABLE, message));
    }
    let mut response = Response::new(Either::Right(Passing::new(body, Arc::clone(state), Direction::In)));
    *response.status_mut() = parts.status;
    *response.headers_mut() = headers::end_to_end(&parts.headers);
    Ok(response)
}

/// The request as a server takes it, with the host that was judged.
fn rewritten(state: &Arc<State>, to: &Destination, request: Request<Incoming>) -> Option<Request<Passing>> {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    let mut sent = Request::new(Passing::new(body, Arc::clone(state), Direction::Out));
    *sent.method_mut() = parts.method;
    *sent.uri_mut() = Uri::from(path);
    *sent.version_mut() = Version::HTTP_11;
    *sent.headers_mut() = headers::end_to_end(&parts.headers);
    sent.headers_mut().remove(EXPECT);
    let host = if to.port == PLAIN_PORT { to.host.to_string() } else { to.to_string() };
    sent.headers_mut().insert(HOST, HeaderValue::try_from(host).ok()?);
    sent.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    Some(sent)
}
