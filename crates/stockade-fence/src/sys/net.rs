//! The few network steps of an empty network namespace: loopback up and listeners.

use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::error::{FenceError, Step};

/// Connections waiting to be accepted on a listener of the fence.
const BACKLOG: i32 = 128;

/// Brings the loopback device of this network namespace up.
pub(crate) fn loopback_up() -> Result<(), FenceError> {
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
        .step("socket(INET, DGRAM)")?;
    let mut name = [0; libc::IFNAMSIZ];
    for (to, from) in name.iter_mut().zip(c"lo".to_bytes()) {
        *to = (*from).cast_signed();
    }
    #[expect(clippy::cast_possible_truncation, reason = "IFF_UP and IFF_RUNNING are 0x41")]
    let up = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    let request = libc::ifreq { ifr_name: name, ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_flags: up } };
    // SAFETY: the socket is open and the request is a complete `ifreq`, which is what SIOCSIFFLAGS reads.
    let answer = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, std::ptr::from_ref(&request)) };
    super::process::answer(i64::from(answer)).step("ioctl(SIOCSIFFLAGS lo)")?;
    Ok(())
}

/// A TCP listener on 127.0.0.1. Blocking; whoever accepts on it decides otherwise.
pub(crate) fn listen(port: u16) -> Result<TcpListener, FenceError> {
    let socket =
        rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .step("socket(INET, STREAM)")?;
    rustix::net::bind(&socket, &loopback(port)).step(format!("bind(127.0.0.1:{port}/tcp)"))?;
    rustix::net::listen(&socket, BACKLOG).step("listen")?;
    Ok(TcpListener::from(socket))
}

/// A UDP socket on 127.0.0.1.
pub(crate) fn bind_datagram(port: u16) -> Result<UdpSocket, FenceError> {
    let socket: OwnedFd =
        rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
            .step("socket(INET, DGRAM)")?;
    rustix::net::bind(&socket, &loopback(port)).step(format!("bind(127.0.0.1:{port}/udp)"))?;
    Ok(UdpSocket::from(socket))
}

fn loopback(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)
}
