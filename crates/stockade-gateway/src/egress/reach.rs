//! From a destination that is listed to a connection with an address that may be reached.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
};

use stockade_core::{
    event::network_code,
    network::{Destination, Host},
};
use tokio::{
    net::TcpStream,
    time::{Instant, timeout_at},
};

use super::{policy::TurnedAway, state::State};
use crate::{connect, policy::CONNECT_TIMEOUT};

/// A connection, and with what.
#[derive(Debug)]
pub(super) struct Remote {
    pub(super) tcp: TcpStream,
    /// The address that was checked.
    pub(super) address: SocketAddr,
}

/// Connects to a listed destination. Names are looked up once, and what was checked is what is dialled.
pub(super) async fn reach(state: &State, to: &Destination) -> Result<Remote, TurnedAway> {
    let deadline = Instant::now() + CONNECT_TIMEOUT;
    let found = match &to.host {
        Host::Address(address) => vec![SocketAddr::new(*address, to.port)],
        Host::Name(name) => {
            let looked_up = timeout_at(deadline, state.lookups.addresses(name.as_str(), to.port));
            let found = looked_up.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
            let failed = |e: io::Error| {
                let message = format!("{name} cannot be looked up");
                TurnedAway::unreachable(network_code::EGRESS_NAME, message).recorded(e.to_string())
            };
            found.map_err(failed)?
        }
    };
    let checked = check(state, to, found)?;
    let unreachable = |e: io::Error| {
        let message = format!("{to} cannot be connected to");
        let tried: Vec<String> = checked.iter().map(ToString::to_string).collect();
        TurnedAway::unreachable(network_code::EGRESS_UNREACHABLE, message)
            .recorded(format!("{}: {e}", tried.join(", ")))
    };
    let tcp = connect::first(&checked, deadline).await.map_err(unreachable)?;
    let address = tcp.peer_addr().map_err(unreachable)?;
    Ok(Remote { tcp, address })
}

/// The addresses that may be dialled; an error where none is left.
fn check(state: &State, to: &Destination, found: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, TurnedAway> {
    let mut kept = Vec::new();
    let mut first_reason = None;
    for address in found {
        let listed = state.allowed.lists(&Destination { host: Host::Address(address.ip()), port: to.port });
        let reason = state
            .allowed
            .keeps_from(address)
            .or_else(|| (!listed && is_own(address.ip())).then_some("an address of this host"));
        match reason {
            None => kept.push(address),
            Some(reason) => _ = first_reason.get_or_insert((reason, address.ip())),
        }
    }
    match first_reason {
        Some((reason, address)) if kept.is_empty() => {
            let message = format!("{} leads to {reason}, which is not listed itself", to.host);
            Err(TurnedAway::forbidden(network_code::EGRESS_ADDRESS, message).recorded(address.to_string()))
        }
        _ => Ok(kept),
    }
}

/// Whether an address is one of this host's own, so that its services would be reached as from inside: only such an
/// address can be bound to.
fn is_own(address: IpAddr) -> bool {
    let binds = |address: IpAddr| UdpSocket::bind((address, 0)).is_ok();
    // On a host that lets anything be bound, binding says nothing.
    let nobodys: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::new(192, 0, 2, 1).into(),
        IpAddr::V6(_) => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
    };
    binds(address) && !binds(nobodys)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_this_host_is_known() {
        assert!(is_own(Ipv4Addr::LOCALHOST.into()));
        assert!(!is_own(Ipv4Addr::new(203, 0, 113, 9).into()));
    }
}
