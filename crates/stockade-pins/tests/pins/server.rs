//! A registry on loopback, in the clear or over TLS, and a proxy in front of it.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// How a registry answers every request.
#[derive(Clone)]
pub(crate) enum Reply {
    /// The whole body.
    Whole(Vec<u8>),
    /// The whole body without saying how long it is.
    Unannounced(Vec<u8>),
    /// Half of the body, then the end of the connection.
    Cut(Vec<u8>),
    /// Half of the body, then silence.
    Hang(Vec<u8>),
    /// A status without a body.
    Status(u16),
    /// A redirection.
    Redirect(String),
}

/// A running server; its threads end with the test program.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    pub(crate) fn plain(reply: Reply) -> Self {
        Self::start(reply, Some)
    }

    /// A server over TLS and its certificate in PEM.
    pub(crate) fn tls(reply: Reply) -> (Self, String) {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key.into())
            .unwrap();
        let config = Arc::new(config);
        let server = Self::start(reply, move |mut stream| {
            let mut connection = ServerConnection::new(config.clone()).unwrap();
            connection.complete_io(&mut stream).ok()?;
            Some(StreamOwned::new(connection, stream))
        });
        (server, made.cert.pem())
    }

    pub(crate) fn http(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn https(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The request lines so far.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    fn start<S: Read + Write>(
        reply: Reply,
        open: impl Fn(TcpStream) -> Option<S> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (log, open) = (asked.clone(), Arc::new(open));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, log, open, reply) = (stream.unwrap(), log.clone(), open.clone(), reply.clone());
                thread::spawn(move || {
                    if let Some(mut stream) = open(stream) {
                        let head = read_head(&mut stream);
                        log.lock().unwrap().push(head.lines().next().unwrap_or_default().to_owned());
                        // A client that gives up closes the connection; nothing is owed to it.
                        let _gone = answer(&mut stream, &reply);
                    }
                });
            }
        });
        Self { address, asked }
    }
}

fn read_head(stream: &mut impl Read) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|count| count == 1) {
        head.push(byte[0]);
    }
    String::from_utf8_lossy(&head).into_owned()
}

fn answer(stream: &mut (impl Read + Write), reply: &Reply) -> std::io::Result<()> {
    match reply {
        Reply::Whole(body) => {
            write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len())?;
            stream.write_all(body)
        }
        Reply::Unannounced(body) => {
            write!(stream, "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n")?;
            stream.write_all(body)
        }
        Reply::Cut(body) => {
            write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len())?;
            stream.write_all(&body[..body.len() / 2])
        }
        Reply::Hang(body) => {
            write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len())?;
            stream.write_all(&body[..body.len() / 2])?;
            stream.flush()?;
            // Ends when the client goes away.
            stream.read(&mut [0]).map(|_| ())
        }
        Reply::Status(status) => write!(stream, "HTTP/1.1 {status} Nope\r\ncontent-length: 0\r\n\r\n"),
        Reply::Redirect(to) => {
            write!(stream, "HTTP/1.1 302 Found\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n")
        }
    }?;
    stream.flush()
}

/// A proxy that tunnels CONNECT requests and remembers them.
pub(crate) struct ConnectProxy {
    pub(crate) address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl ConnectProxy {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = asked.clone();
        thread::spawn(move || {
            for client in listener.incoming() {
                let log = log.clone();
                thread::spawn(move || tunnel(client.unwrap(), &log));
            }
        });
        Self { address, asked }
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn tunnel(mut client: TcpStream, log: &Mutex<Vec<String>>) {
    let mut line = String::new();
    let mut reader = BufReader::new(client.try_clone().unwrap());
    reader.read_line(&mut line).unwrap();
    let mut other = String::new();
    while reader.read_line(&mut other).is_ok_and(|count| count > 2) {
        other.clear();
    }
    log.lock().unwrap().push(line.trim().to_owned());
    let mut server = TcpStream::connect(line.split(' ').nth(1).unwrap()).unwrap();
    client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").unwrap();
    let (mut up, mut up_to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    thread::spawn(move || std::io::copy(&mut up, &mut up_to));
    let _closed = std::io::copy(&mut server, &mut client);
}
