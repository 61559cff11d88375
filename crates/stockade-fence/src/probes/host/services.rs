//! Services that nothing inside a fence should reach, and a record of who was reached.

use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags};

use crate::error::{FenceError, Step};

/// Tries for a port that is free for all three services.
const PORT_TRIES: usize = 32;

/// Contacts are counted to this many; one is too many.
const RECORD_LIMIT: usize = 1000;

#[derive(Debug)]
pub(super) struct Services {
    port: u16,
    contacts: Arc<Mutex<Vec<String>>>,
    stop: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

enum Socket {
    Tcp(TcpListener),
    Udp(UdpSocket),
    Stream(UnixListener),
    Datagram(UnixDatagram),
}

struct Service {
    name: String,
    socket: Socket,
}

impl Services {
    pub(super) fn start(root: &Path, in_workspace: Option<PathBuf>, token: &str) -> Result<Self, FenceError> {
        let (mut services, port) = on_one_port()?;
        let paths = [
            root.join("run/docker.sock"),
            root.join("home/.docker/run/docker.sock"),
            root.join("tmp/ssh-x/agent.1"),
            root.join("run/user/bus"),
            root.join("tmp/tmux-x/default"),
        ];
        for path in paths.into_iter().chain(in_workspace) {
            let name = path.display().to_string();
            let socket = UnixListener::bind(&path).step_on("bind", path)?;
            services.push(Service { name, socket: Socket::Stream(socket) });
        }
        let stream = SocketAddr::from_abstract_name(token).and_then(|name| UnixListener::bind_addr(&name));
        let stream = stream.step("bind(abstract)")?;
        services.push(Service { name: "abstract stream socket".into(), socket: Socket::Stream(stream) });
        let datagram = SocketAddr::from_abstract_name(format!("{token}-datagram"));
        let datagram = datagram.and_then(|name| UnixDatagram::bind_addr(&name)).step("bind(abstract)")?;
        services
            .push(Service { name: "abstract datagram socket".into(), socket: Socket::Datagram(datagram) });

        let (stopped, stop) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).step("pipe2")?;
        let contacts = Arc::new(Mutex::new(Vec::new()));
        let record = Arc::clone(&contacts);
        let thread = std::thread::Builder::new()
            .name("services".into())
            .spawn(move || serve(&services, &stopped, &record))
            .step("thread")?;
        Ok(Self { port, contacts, stop: Some(stop), thread: Some(thread) })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Who was reached.
    pub(super) fn contacts(&self) -> Vec<String> {
        self.contacts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Services {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has ended too.
            let _ended = thread.join();
        }
    }
}

/// TCP on 127.0.0.1 and, where there is IPv6, on ::1, and UDP on 127.0.0.1, all on one port.
fn on_one_port() -> Result<(Vec<Service>, u16), FenceError> {
    let mut last = None;
    for _ in 0..PORT_TRIES {
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).step("bind(127.0.0.1)")?;
        let port = tcp.local_addr().step("getsockname")?.port();
        match UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).step("bind(udp)") {
            Ok(udp) => {
                let mut services = vec![
                    Service { name: "TCP service".into(), socket: Socket::Tcp(tcp) },
                    Service { name: "UDP service".into(), socket: Socket::Udp(udp) },
                ];
                if let Ok(tcp6) = TcpListener::bind((Ipv6Addr::LOCALHOST, port)) {
                    services.push(Service { name: "TCP service on IPv6".into(), socket: Socket::Tcp(tcp6) });
                }
                return Ok((services, port));
            }
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| FenceError::bare(crate::FenceErrorKind::Source, "no port is free")))
}

fn serve(services: &[Service], stopped: &OwnedFd, record: &Mutex<Vec<String>>) {
    loop {
        let mut polled: Vec<PollFd<'_>> = services
            .iter()
            .map(|service| PollFd::from_borrowed_fd(service.socket.fd(), PollFlags::IN))
            .collect();
        polled.push(PollFd::new(stopped, PollFlags::IN));
        match rustix::event::poll(&mut polled, None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return,
        }
        let ready: Vec<bool> = polled.iter().map(|fd| !fd.revents().is_empty()).collect();
        if ready.last() != Some(&false) {
            return;
        }
        for (service, _) in services.iter().zip(ready).filter(|(_, ready)| *ready) {
            service.socket.answer();
            let mut record = record.lock().unwrap_or_else(PoisonError::into_inner);
            if record.len() < RECORD_LIMIT {
                record.push(service.name.clone());
            }
        }
    }
}

impl Socket {
    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(socket) => socket.as_fd(),
            Self::Udp(socket) => socket.as_fd(),
            Self::Stream(socket) => socket.as_fd(),
            Self::Datagram(socket) => socket.as_fd(),
        }
    }

    /// Says hello. A peer that has gone does not hear it.
    fn answer(&self) {
        let mut buffer = [0_u8; 64];
        match self {
            Self::Tcp(socket) => {
                if let Ok((mut peer, _)) = socket.accept() {
                    let _heard = peer.write_all(b"HELLO");
                }
            }
            Self::Stream(socket) => {
                if let Ok((mut peer, _)) = socket.accept() {
                    let _heard = peer.write_all(b"HELLO");
                }
            }
            Self::Udp(socket) => {
                if let Ok((_, peer)) = socket.recv_from(&mut buffer) {
                    let _heard = socket.send_to(b"pong", peer);
                }
            }
            Self::Datagram(socket) => {
                let _received = socket.recv(&mut buffer);
            }
        }
    }
}
