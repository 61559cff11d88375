//! Names to addresses.

use std::{
    io,
    net::{IpAddr, SocketAddr, ToSocketAddrs},
    thread,
};

use tokio::sync::oneshot;

/// How many addresses of one name are tried.
const ADDRESS_LIMIT: usize = 8;

/// The addresses of a host. A literal address is not looked up.
///
/// The look-up runs on a thread of its own rather than in the runtime's pool: the pool is joined when the runtime ends,
/// and a resolver that does not answer would hold the end of the run.
pub(crate) async fn addresses(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let (sender, receiver) = oneshot::channel();
    let host = host.to_owned();
    thread::Builder::new().name("resolve".to_owned()).spawn(move || {
        let found =
            (host.as_str(), port).to_socket_addrs().map(|all| all.take(ADDRESS_LIMIT).collect::<Vec<_>>());
        // Nobody waits any more when the gateway has ended.
        let _unheard = sender.send(found).is_err();
    })?;
    receiver.await.unwrap_or_else(|_| Err(io::Error::other("the look-up ended without an answer")))
}
