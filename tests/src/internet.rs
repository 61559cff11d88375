//! A small internet on one machine: a host's network and, behind a cable, another with addresses of every kind that the
//! host can really reach. A name server on the host's side answers as it is told.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufRead as _, BufReader, Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer},
};

use crate::network::in_network;

/// The host's own address on its cable: public, so that only being its own tells it apart.
pub const OWN_ADDRESS: &str = "45.45.45.1";
/// Addresses beyond the cable: of the public internet, private ones, and that of cloud metadata.
const BEYOND: [&str; 6] = [
    "1.2.3.4/32",
    "10.1.2.3/32",
    "10.9.9.9/32",
    "169.254.169.254/32",
    "2a00:1234::1/128",
    "fd00:1234::1/128",
];
/// How often a thread looks whether it should end.
const LOOK: Duration = Duration::from_millis(20);

/// The two networks. End when dropped.
#[derive(Debug)]
pub struct Internet {
    host: Holder,
    beyond: Holder,
    _files: tempfile::TempDir,
    stop: Arc<AtomicBool>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

/// A process that keeps namespaces alive.
#[derive(Debug)]
struct Holder(Child);

impl Holder {
    fn start(program: &[&str], script: &str, argument: &Path) -> Self {
        let mut child = Command::new("unshare")
            .args(program)
            .args(["sh", "-c", script])
            .arg(argument)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare is installed");
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "a network cannot be made (root, `ip` and namespaces are needed)");
        Self(child)
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }

    fn network(&self) -> std::os::fd::OwnedFd {
        File::open(format!("/proc/{}/ns/net", self.pid())).unwrap().into()
    }

    /// Runs `ip` in there.
    fn ip(&self, words: &str) {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.pid(), "--net", "ip"]).args(words.split(' '));
        let status = command.status().expect("nsenter and ip are installed");
        assert!(status.success(), "ip {words}: {status}");
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _reaped = self.0.wait();
    }
}

impl Internet {
    /// Makes the networks; `names` is what the name server knows.
    pub fn new(names: &[(&str, &[&str])]) -> Self {
        let files = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(files.path().join(name), text).unwrap();
        write("resolv.conf", "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n");
        write("nsswitch.conf", "hosts: files dns\n");
        let mounts = "set -e; ip link set lo up; \
                      for file in resolv.conf nsswitch.conf; do mount --bind \"$0/$file\" /etc/$file; done; \
                      echo ready; exec cat";
        let host = Holder::start(&["--net", "--mount"], mounts, files.path());
        let beyond = Holder::start(&["--net"], "ip link set lo up && echo ready && exec cat", files.path());
        host.ip(&format!("link add up0 type veth peer name up1 netns {}", beyond.pid()));
        host.ip(&format!("addr add {OWN_ADDRESS}/24 dev up0"));
        host.ip("link set up0 up");
        beyond.ip("addr add 45.45.45.2/24 dev up1");
        beyond.ip("link set up1 up");
        host.ip("route add default via 45.45.45.2");
        host.ip("-6 addr add 2a00:4545::1/64 dev up0 nodad");
        beyond.ip("-6 addr add 2a00:4545::2/64 dev up1 nodad");
        host.ip("-6 route add default via 2a00:4545::2");
        for address in BEYOND {
            // Else an address of IPv6 cannot be bound at first on a busy machine.
            let at_once = if address.contains(':') { " nodad" } else { "" };
            beyond.ip(&format!("addr add {address} dev lo{at_once}"));
        }
        let internet = Self {
            host,
            beyond,
            _files: files,
            stop: Arc::default(),
            threads: Mutex::default(),
            asked: Arc::default(),
        };
        internet.answer_names(names);
        internet
    }

    /// The program that runs the rest of its arguments on the host's side, in this folder.
    pub fn enter(&self, folder: &Path) -> Vec<String> {
        let target = self.host.pid();
        let folder = folder.display().to_string();
        let nsenter = ["/usr/bin/nsenter", "--target", &target, "--net", "--mount", "--"];
        let shell = ["/bin/sh", "-c", "cd \"$0\" && exec \"$@\"", &folder];
        nsenter.into_iter().chain(shell).map(str::to_owned).collect()
    }

    /// The names that were looked up so far, in order.
    pub fn looked_up(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    /// Whether the host itself can connect to an address.
    pub fn host_reaches(&self, address: &str) -> bool {
        let address: SocketAddr = address.parse().unwrap();
        in_network(self.host.network(), move || {
            TcpStream::connect_timeout(&address, Duration::from_secs(2)).is_ok()
        })
    }

    /// A site beyond the cable, or on the host's side where the address is its own.
    pub fn site(&self, address: &str, tls: Option<&Authority>) -> Site {
        let address: SocketAddr = address.parse().unwrap();
        let own = address.ip().is_loopback() || address.ip().to_string() == OWN_ADDRESS;
        let network = if own { self.host.network() } else { self.beyond.network() };
        let listener = in_network(network, move || TcpListener::bind(address).unwrap());
        listener.set_nonblocking(true).unwrap();
        let site = Site { seen: Arc::default() };
        let (stop, seen) = (Arc::clone(&self.stop), Arc::clone(&site.seen));
        let config = tls.map(|authority| Arc::clone(&authority.config));
        self.keep(std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((tcp, _)) => {
                        let (seen, config) = (Arc::clone(&seen), config.clone());
                        std::thread::spawn(move || serve(tcp, config, &seen));
                    }
                    Err(_) => std::thread::sleep(LOOK / 10),
                }
            }
        }));
        site
    }

    fn answer_names(&self, names: &[(&str, &[&str])]) {
        let known: BTreeMap<String, Vec<IpAddr>> = names
            .iter()
            .map(|(name, list)| ((*name).to_owned(), list.iter().map(|a| a.parse().unwrap()).collect()))
            .collect();
        let socket = in_network(self.host.network(), || UdpSocket::bind("127.0.0.1:53").unwrap());
        socket.set_read_timeout(Some(LOOK)).unwrap();
        let (stop, asked) = (Arc::clone(&self.stop), Arc::clone(&self.asked));
        self.keep(std::thread::spawn(move || {
            let mut buffer = [0; 512];
            while !stop.load(Ordering::Relaxed) {
                let Ok((length, asker)) = socket.recv_from(&mut buffer) else { continue };
                if let Some(reply) = answer(&buffer[..length], &known, &asked) {
                    socket.send_to(&reply, asker).unwrap();
                }
            }
        }));
    }

    fn keep(&self, thread: JoinHandle<()>) {
        self.threads.lock().unwrap().push(thread);
    }
}

impl Drop for Internet {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.lock().unwrap().drain(..) {
            let _ended = thread.join();
        }
    }
}

/// A server and what reached it.
#[derive(Clone, Debug)]
pub struct Site {
    seen: Arc<Mutex<Vec<String>>>,
}

impl Site {
    /// One entry a connection: the request lines that came through it, with their hosts.
    pub fn connections(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

/// A certificate authority and a server that it vouches for.
#[derive(Debug)]
pub struct Authority {
    /// Its certificate.
    pub pem: String,
    config: Arc<ServerConfig>,
}

impl Authority {
    /// Vouches for these names and addresses.
    pub fn of(names: &[&str]) -> Self {
        let ca_key = KeyPair::generate().unwrap();
        let mut ca = CertificateParams::new(Vec::new()).unwrap();
        // Without a name of its own it has that of the server, which is then taken for vouching for itself.
        ca.distinguished_name.push(DnType::CommonName, "Stockade test authority");
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = ca.self_signed(&ca_key).unwrap().pem();
        let key = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
        let certificate =
            CertificateParams::new(names).unwrap().signed_by(&key, &Issuer::new(ca, ca_key)).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![CertificateDer::from(certificate.der().to_vec())],
                PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
            )
            .unwrap();
        Self { pem, config: Arc::new(config) }
    }
}

fn serve(tcp: TcpStream, tls: Option<Arc<ServerConfig>>, seen: &Mutex<Vec<String>>) {
    let place = {
        let mut seen = seen.lock().unwrap();
        seen.push(String::new());
        seen.len() - 1
    };
    // A client that goes away, or is no client of this site, is what some tests are about.
    let note = |line: &str| seen.lock().unwrap()[place].push_str(line);
    tcp.set_nonblocking(false).unwrap();
    tcp.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let _ended = match tls {
        None => converse(tcp, note),
        Some(config) => converse(StreamOwned::new(ServerConnection::new(config).unwrap(), tcp), note),
    }
    .is_err();
}

/// Answers every request of a connection with `here`.
fn converse(wire: impl Read + Write, note: impl Fn(&str)) -> std::io::Result<()> {
    let mut wire = BufReader::new(wire);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if wire.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        let host = head.lines().find_map(|l| l.to_lowercase().strip_prefix("host: ").map(str::to_owned));
        note(&format!("{} for {}; ", head.lines().next().unwrap_or_default(), host.unwrap_or_default()));
        wire.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nhere")?;
        wire.get_mut().flush()?;
    }
}

/// An answer with what is known of a name; an unknown one does not exist.
fn answer(
    query: &[u8],
    known: &BTreeMap<String, Vec<IpAddr>>,
    asked: &Mutex<Vec<String>>,
) -> Option<Vec<u8>> {
    let (mut labels, mut at) = (Vec::new(), 12);
    loop {
        let length = usize::from(*query.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        labels.push(String::from_utf8_lossy(query.get(at..at + length)?).to_lowercase());
        at += length;
    }
    let (name, kind) = (labels.join("."), *query.get(at + 1)?);
    let addresses = known.get(&name);
    if kind == 1 {
        asked.lock().unwrap().push(name);
    }
    let records: Vec<Vec<u8>> = addresses
        .into_iter()
        .flatten()
        .filter_map(|address| match (address, kind) {
            (IpAddr::V4(v4), 1) => Some(v4.octets().to_vec()),
            (IpAddr::V6(v6), 28) => Some(v6.octets().to_vec()),
            _ => None,
        })
        .collect();
    let mut reply = query.get(..2)?.to_vec();
    let code = if addresses.is_some() { 0 } else { 3 };
    reply.extend([0x81, 0x80 | code, 0, 1, 0, u8::try_from(records.len()).ok()?, 0, 0, 0, 0]);
    reply.extend(query.get(12..at + 4)?);
    for record in records {
        reply.extend([0xc0, 12, 0, kind, 0, 1, 0, 0, 0, 1, 0, u8::try_from(record.len()).ok()?]);
        reply.extend(record);
    }
    Some(reply)
}
