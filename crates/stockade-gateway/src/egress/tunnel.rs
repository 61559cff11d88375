//! A tunnel: TLS for the host that was asked for, checked by its first message, then passed on unread.

use std::time::Duration;

use bytes::Bytes;
use stockade_core::{
    event::network_code,
    network::{Destination, Host, HostName},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::{Instant, timeout_at},
};

use super::{
    hello::{self, HELLO_LIMIT_BYTES, Hello},
    policy::TurnedAway,
    reach::Remote,
    relay,
    state::{Direction, State},
};

/// How long an agent may take to say hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// The alert `unrecognized_name` (RFC 8446, 6.2): what a server says that does not have the host.
const UNRECOGNIZED_NAME: [u8; 7] = [21, 3, 1, 0, 2, 2, 112];

/// A tunnel that the agent was promised.
#[derive(Debug)]
pub(super) struct Tunnel {
    pub(super) to: Destination,
    pub(super) remote: Remote,
}

/// Carries a tunnel; `early` is what came with the request.
pub(super) async fn carry(state: &State, tunnel: Tunnel, mut agent: TcpStream, early: Bytes) {
    let Tunnel { to, remote: Remote { tcp: mut remote, address } } = tunnel;
    let mut bytes = early.to_vec();
    let deadline = Instant::now() + HELLO_TIMEOUT;
    let hello = loop {
        match hello::read(&bytes) {
            Hello::More if bytes.len() < HELLO_LIMIT_BYTES => {}
            Hello::More => break Hello::Other,
            hello => break hello,
        }
        match timeout_at(deadline, agent.read_buf(&mut bytes)).await {
            Ok(Ok(1..)) => {}
            // It left, or says nothing.
            Ok(Ok(0) | Err(_)) | Err(_) => break Hello::More,
        }
    };
    if let Err(message) = fits(&to, &hello) {
        state.turn_away(&to.to_string(), &TurnedAway::forbidden(network_code::EGRESS_TLS, message)).await;
        if matches!(hello, Hello::Named(_) | Hello::Unnamed | Hello::Hidden) {
            // It may have left already.
            let _unheard = agent.write_all(&UNRECOGNIZED_NAME).await.is_err();
        }
        return;
    }
    state.pass(&to, &format!("a tunnel to {address}, TLS unread")).await;
    if remote.write_all(&bytes).await.is_ok() {
        state.carried(Direction::Out, bytes.len());
        drop(bytes);
        relay::both_ways(state, agent, remote).await;
    }
}

/// Records a tunnel that the agent did not wait for.
pub(super) async fn abandoned(state: &State, tunnel: &Tunnel) {
    let why = TurnedAway::forbidden(
        network_code::EGRESS_TLS,
        "the agent left before anything came through the tunnel",
    );
    state.turn_away(&tunnel.to.to_string(), &why).await;
}

/// Whether a hello asks for the host of the tunnel.
fn fits(to: &Destination, hello: &Hello) -> Result<(), String> {
    match (hello, &to.host) {
        (Hello::Named(name), Host::Name(host)) => {
            // RFC 6066, 3 has no trailing dot, which the reading of a name would forgive.
            let same = !name.ends_with('.') && HostName::parse(name).is_ok_and(|name| name == *host);
            if same { Ok(()) } else { Err("the TLS inside asks for another host".to_owned()) }
        }
        // An address has no name to ask for.
        (Hello::Unnamed, Host::Address(_)) => Ok(()),
        (Hello::Named(_), Host::Address(_)) => {
            Err("the TLS inside asks for a host, not for an address".to_owned())
        }
        (Hello::Unnamed, Host::Name(_)) => Err("the TLS inside does not say for which host it is".to_owned()),
        (Hello::Hidden, _) => Err("the TLS inside hides a second name (encrypted client hello)".to_owned()),
        (Hello::Other, _) => Err("what comes through the tunnel is no TLS".to_owned()),
        (Hello::More, _) => Err("nothing whole came through the tunnel".to_owned()),
    }
}
