//! Opening a connection to one of several addresses.

use std::{io, net::SocketAddr, time::Duration};

use tokio::{
    net::TcpStream,
    time::{Instant, timeout_at},
};

/// How long one address may take while others are left.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(3);

/// Tries each address in turn until the deadline; the error is the last one's.
pub(crate) async fn first(addresses: &[SocketAddr], deadline: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for (index, address) in addresses.iter().enumerate() {
        let until = if index + 1 == addresses.len() {
            deadline
        } else {
            deadline.min(Instant::now() + ADDRESS_TIMEOUT)
        };
        match timeout_at(until, TcpStream::connect(address)).await {
            Ok(Ok(tcp)) => {
                // Whole requests and single events are written at once: waiting for more only adds delay.
                let _as_it_was = tcp.set_nodelay(true).is_err();
                return Ok(tcp);
            }
            Ok(Err(error)) => last = error,
            Err(_) => last = io::Error::from(io::ErrorKind::TimedOut),
        }
    }
    Err(last)
}
