//! An endpoint that speaks raw bytes, one thread per connection.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Got {
    /// Which request over all connections, from 0.
    pub(crate) number: usize,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Got {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head
            .lines()
            .filter_map(|l| l.split_once(": "))
            .find(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, v)| v)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    Keep,
    Close,
}

pub(crate) trait Wire: Read + Write {}
impl<T: Read + Write> Wire for T {}

/// The endpoint and what reached it.
pub(crate) struct Endpoint {
    pub(crate) address: SocketAddr,
    got: Arc<Mutex<Vec<Got>>>,
    connections: Arc<AtomicUsize>,
}

type Handler = dyn Fn(&Got, &mut dyn Wire) -> After + Send + Sync;

impl Endpoint {
    pub(crate) fn start(handler: impl Fn(&Got, &mut dyn Wire) -> After + Send + Sync + 'static) -> Self {
        Self::start_over(|tcp| Some(Box::new(tcp)), handler)
    }

    /// `over` turns a connection into the wire, with TLS for instance.
    pub(crate) fn start_over(
        over: impl Fn(TcpStream) -> Option<Box<dyn Wire>> + Send + Sync + 'static,
        handler: impl Fn(&Got, &mut dyn Wire) -> After + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let got = Arc::new(Mutex::new(Vec::new()));
        let connections = Arc::new(AtomicUsize::new(0));
        let (kept, counted) = (Arc::clone(&got), Arc::clone(&connections));
        let (over, handler): (_, Arc<Handler>) = (Arc::new(over), Arc::new(handler));
        std::thread::spawn(move || {
            for tcp in listener.incoming() {
                let tcp = tcp.unwrap();
                tcp.set_nodelay(true).unwrap();
                counted.fetch_add(1, Ordering::SeqCst);
                let (kept, over, handler) = (Arc::clone(&kept), Arc::clone(&over), Arc::clone(&handler));
                std::thread::spawn(move || {
                    if let Some(mut wire) = over(tcp) {
                        serve(&mut *wire, &kept, &*handler);
                    }
                });
            }
        });
        Self { address, got, connections }
    }

    /// Answers everything with the same answer in one piece.
    pub(crate) fn answering(body: &'static str) -> Self {
        Self::start(move |_, wire| respond(wire, "200 OK", "application/json", body))
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    pub(crate) fn got(&self) -> Vec<Got> {
        self.got.lock().unwrap().clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

fn serve(wire: &mut dyn Wire, got: &Mutex<Vec<Got>>, handler: &Handler) {
    let mut buffer = Vec::new();
    loop {
        let end = loop {
            if let Some(end) = buffer.windows(4).position(|w| w == b"\r\n\r\n") {
                break end + 4;
            }
            if !more(wire, &mut buffer) {
                return;
            }
        };
        let head = String::from_utf8(buffer.drain(..end).collect()).unwrap();
        let mut request = Got { number: 0, head, body: Vec::new() };
        let length: usize = request.header("content-length").map_or(0, |v| v.parse().unwrap());
        while buffer.len() < length {
            if !more(wire, &mut buffer) {
                return;
            }
        }
        request.body = buffer.drain(..length).collect();
        {
            let mut got = got.lock().unwrap();
            request.number = got.len();
            got.push(request.clone());
        }
        if handler(&request, wire) == After::Close {
            return;
        }
    }
}

fn more(wire: &mut dyn Wire, buffer: &mut Vec<u8>) -> bool {
    let mut piece = [0; 16_384];
    match wire.read(&mut piece) {
        Ok(0) | Err(_) => false,
        Ok(n) => {
            buffer.extend_from_slice(&piece[..n]);
            true
        }
    }
}

/// Writes an answer in one piece.
pub(crate) fn respond(wire: &mut dyn Wire, status: &str, content_type: &str, body: &str) -> After {
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let written = wire.write_all(format!("{head}{body}").as_bytes()).and_then(|()| wire.flush());
    if written.is_ok() { After::Keep } else { After::Close }
}

/// Writes one chunk; the empty one ends the body.
pub(crate) fn chunk(wire: &mut dyn Wire, data: &str) {
    let written =
        wire.write_all(format!("{:x}\r\n{data}\r\n", data.len()).as_bytes()).and_then(|()| wire.flush());
    // The gateway may have left: the test says what it expects of that.
    drop(written);
}
