//! A network of its own in which every connection attempt is seen, whoever makes it.
//!
//! Every address leads back to the same loopback, where nothing listens but what the test starts; a name server answers
//! for all names. So whatever a process tries arrives, is refused at once, and leaves its packets to be read.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{BufRead as _, BufReader},
    net::UdpSocket,
    num::NonZeroU32,
    os::fd::{AsFd as _, OwnedFd},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use rustix::{
    net::{AddressFamily, Protocol, RecvFlags, SocketFlags, SocketType, sockopt},
    thread::{LinkNameSpaceType, move_into_link_name_space},
};

/// `ETH_P_ALL` of linux/if_ether.h in network byte order: packets of every protocol.
const ALL_PROTOCOLS: NonZeroU32 = NonZeroU32::new((3_u16.to_be()) as u32).unwrap();
/// What the name server answers for every name: an address that is nobody's (RFC 5737).
pub const EVERY_NAME: [u8; 4] = [203, 0, 113, 7];
/// Packets wait here between two looks.
const QUEUE_BYTES: usize = 16 << 20;

/// An observed network. Ends when dropped.
#[derive(Debug)]
pub struct ObservedNetwork {
    holder: Child,
    _resolver: tempfile::TempDir,
    seen: Arc<Mutex<BTreeSet<String>>>,
    stop: Arc<AtomicBool>,
    observer: Option<JoinHandle<()>>,
}

impl ObservedNetwork {
    /// Makes the network.
    pub fn new() -> Self {
        let resolver = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(resolver.path().join(name), text).unwrap();
        write("resolv.conf", "nameserver 127.0.0.1\n");
        write("nsswitch.conf", "hosts: files dns\n");
        let set_up = "set -e; ip link set lo up; ip route add local default dev lo; \
                      if [ -e /proc/net/if_inet6 ]; then ip -6 route add local default dev lo; fi; \
                      for file in resolv.conf nsswitch.conf; do mount --bind \"$0/$file\" /etc/$file; done; \
                      echo ready; exec cat";
        let mut holder = Command::new("unshare")
            .args(["--net", "--mount", "sh", "-c", set_up])
            .arg(resolver.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare and ip are installed");
        let mut line = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(
            line, "ready\n",
            "the network cannot be made (root, `ip` and a mount namespace are needed)"
        );
        let namespace = File::open(format!("/proc/{}/ns/net", holder.id())).unwrap();
        let (packets, names) = sockets(namespace.into());
        let seen = Arc::new(Mutex::new(BTreeSet::new()));
        let stop = Arc::new(AtomicBool::new(false));
        let observer = std::thread::spawn({
            let (seen, stop) = (Arc::clone(&seen), Arc::clone(&stop));
            move || observe(&packets, &names, &seen, &stop)
        });
        Self { holder, _resolver: resolver, seen, stop, observer: Some(observer) }
    }

    /// The program that runs the rest of its arguments in there, in this folder.
    pub fn enter(&self, folder: &Path) -> Vec<String> {
        let target = self.holder.id().to_string();
        let folder = folder.display().to_string();
        let nsenter = ["/usr/bin/nsenter", "--target", &target, "--net", "--mount", "--"];
        let shell = ["/bin/sh", "-c", "cd \"$0\" && exec \"$@\"", &folder];
        nsenter.into_iter().chain(shell).map(str::to_owned).collect()
    }

    /// Every attempt since the last call: `tcp ADDRESS:PORT`, or `name NAME` for a look-up.
    ///
    /// A packet is queued when it is sent, so that those of a process that has ended are all there.
    pub fn attempts(&self) -> BTreeSet<String> {
        // The observer looks every few milliseconds: a marker that it has seen comes after everything before.
        let marker =
            format!("marker-{:?}", std::time::Instant::now()).replace(|c: char| !c.is_alphanumeric(), "");
        let query =
            [&[0; 12][..], &[u8::try_from(marker.len()).unwrap()], marker.as_bytes(), &[0; 5]].concat();
        let namespace = File::open(format!("/proc/{}/ns/net", self.holder.id())).unwrap();
        let socket = in_network(namespace.into(), || UdpSocket::bind("127.0.0.1:0").unwrap());
        socket.send_to(&query, "127.0.0.1:53").unwrap();
        let marker = format!("name {}", marker.to_lowercase());
        crate::outside::wait_until("the observer has caught up", || {
            self.seen.lock().unwrap().contains(&marker)
        });
        let mut seen = std::mem::take(&mut *self.seen.lock().unwrap());
        seen.remove(&marker);
        seen
    }
}

impl Default for ObservedNetwork {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for ObservedNetwork {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        drop(self.holder.stdin.take());
        let _reaped = self.holder.wait();
        if let Some(observer) = self.observer.take() {
            let _ended = observer.join();
        }
    }
}

/// Makes sockets in a network: they stay in it when the thread that made them ends.
pub(crate) fn in_network<T: Send + 'static>(
    namespace: OwnedFd,
    make: impl FnOnce() -> T + Send + 'static,
) -> T {
    let thread = std::thread::spawn(move || {
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        make()
    });
    thread.join().unwrap()
}

fn sockets(namespace: OwnedFd) -> (OwnedFd, UdpSocket) {
    in_network(namespace, || {
        let packets = rustix::net::socket_with(
            AddressFamily::PACKET,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            Some(Protocol::from_raw(ALL_PROTOCOLS)),
        )
        .unwrap();
        sockopt::set_socket_recv_buffer_size_force(&packets, QUEUE_BYTES).unwrap();
        let short = Some(Duration::from_millis(2));
        sockopt::set_socket_timeout(&packets, sockopt::Timeout::Recv, short).unwrap();
        let names = UdpSocket::bind("127.0.0.1:53").unwrap();
        names.set_read_timeout(short).unwrap();
        (packets, names)
    })
}

fn observe(packets: &OwnedFd, names: &UdpSocket, seen: &Mutex<BTreeSet<String>>, stop: &AtomicBool) {
    let mut buffer = [0; 512];
    while !stop.load(Ordering::Relaxed) {
        // Longer packets are cut: only their beginning matters.
        while let Ok((length, _)) = rustix::net::recv(packets, &mut buffer, RecvFlags::TRUNC) {
            if let Some(attempt) = attempt(&buffer[..length.min(buffer.len())]) {
                seen.lock().unwrap().insert(attempt);
            }
        }
        while let Ok((length, asker)) = names.recv_from(&mut buffer) {
            if let Some(answer) = answer(&buffer[..length]) {
                names.send_to(&answer, asker).unwrap();
            }
        }
    }
}

/// What a packet tries to reach; `None` for answers and for packets of a connection that stands.
fn attempt(packet: &[u8]) -> Option<String> {
    let (protocol, source, target, rest) = match packet.first()? >> 4 {
        4 => {
            let header = usize::from(packet.first()? & 15) * 4;
            let octets = <[u8; 4]>::try_from(packet.get(16..20)?).ok()?;
            (*packet.get(9)?, packet.get(12..16)?, std::net::IpAddr::from(octets), packet.get(header..)?)
        }
        6 => {
            let octets = <[u8; 16]>::try_from(packet.get(24..40)?).ok()?;
            (*packet.get(6)?, packet.get(8..24)?, std::net::IpAddr::from(octets), packet.get(40..)?)
        }
        _ => return Some(format!("odd packet {packet:x?}")),
    };
    let port = |at: usize| Some(u16::from_be_bytes(rest.get(at..at + 2)?.try_into().ok()?));
    match protocol {
        // SYN without ACK opens a connection.
        6 if rest.get(13)? & 0x12 == 0x02 => {
            Some(format!("tcp {}", std::net::SocketAddr::new(target, port(2)?)))
        }
        6 => None,
        17 if port(2)? == 53 => Some(format!("name {}", question(rest.get(8..)?)?)),
        17 if port(0)? == 53 => None,
        17 => Some(format!("udp {}", std::net::SocketAddr::new(target, port(2)?))),
        // The kernel's own "nobody listens here".
        1 if rest.first() == Some(&3) => None,
        // Neighbour discovery and multicast reports of the kernel itself.
        58 if source.iter().all(|b| *b == 0)
            || rest.first().is_some_and(|kind| *kind == 1 || *kind >= 130) =>
        {
            None
        }
        other => Some(format!("protocol {other} to {target}")),
    }
}

/// The name asked for, in lower case.
fn question(message: &[u8]) -> Option<String> {
    let mut labels = Vec::new();
    let mut at = 12;
    loop {
        let length = usize::from(*message.get(at)?);
        if length == 0 {
            return Some(labels.join("."));
        }
        labels.push(String::from_utf8_lossy(message.get(at + 1..at + 1 + length)?).to_lowercase());
        at += 1 + length;
    }
}

/// An answer with one address for a question of type A, and with none for any other.
fn answer(query: &[u8]) -> Option<Vec<u8>> {
    let end = 12 + query.get(12..)?.iter().position(|b| *b == 0)? + 5;
    let is_address = query.get(end - 4..end)? == [0, 1, 0, 1];
    let mut reply = query.get(..2)?.to_vec();
    reply.extend([0x81, 0x80, 0, 1, 0, u8::from(is_address), 0, 0, 0, 0]);
    reply.extend(query.get(12..end)?);
    if is_address {
        reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
        reply.extend(EVERY_NAME);
    }
    Some(reply)
}
