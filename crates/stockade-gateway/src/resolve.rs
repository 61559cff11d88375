//! Names to addresses.

use std::{
    io,
    net::{IpAddr, SocketAddr, ToSocketAddrs},
    sync::Arc,
    thread,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// How many addresses of one name are tried.
const ADDRESS_LIMIT: usize = 8;
/// How many look-ups of the agent's doing run at once. One that its resolver does not answer keeps its place until it
/// ends.
const LOOKUP_LIMIT: usize = 16;

/// The addresses of a host. A literal address is not looked up.
pub(crate) async fn addresses(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    look_up(host, port, None).await
}

/// Look-ups that the agent can cause, of which only a few run at once.
#[derive(Debug)]
pub(crate) struct Lookups(Arc<Semaphore>);

impl Lookups {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(LOOKUP_LIMIT)))
    }

    /// The addresses of a name.
    pub(crate) async fn addresses(&self, name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let place = Arc::clone(&self.0).acquire_owned().await.map_err(io::Error::other)?;
        look_up(name, port, Some(place)).await
    }
}

/// The look-up runs on a thread of its own rather than in the runtime's pool: the pool is joined when the runtime ends,
/// and a resolver that does not answer would hold the end of the run.
async fn look_up(host: &str, port: u16, place: Option<OwnedSemaphorePermit>) -> io::Result<Vec<SocketAddr>> {
    let (sender, receiver) = oneshot::channel();
    let host = host.to_owned();
    thread::Builder::new().name("resolve".to_owned()).spawn(move || {
        let found =
            (host.as_str(), port).to_socket_addrs().map(|all| all.take(ADDRESS_LIMIT).collect::<Vec<_>>());
        // Nobody waits any more when the gateway has ended.
        let _unheard = sender.send(found).is_err();
        drop(place);
    })?;
    receiver.await.unwrap_or_else(|_| Err(io::Error::other("the look-up ended without an answer")))
}
