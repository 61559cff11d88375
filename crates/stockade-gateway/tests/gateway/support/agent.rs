//! An agent that speaks raw bytes.

use std::{
    io::{BufRead, BufReader, ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

/// An answer as the agent got it.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
    /// The body ended before its own end.
    pub(crate) broken: bool,
    /// When each chunk arrived.
    pub(crate) times: Vec<Instant>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head
            .lines()
            .filter_map(|l| l.split_once(": "))
            .find(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, v)| v)
    }
}

/// One connection to the gateway.
pub(crate) struct Agent(BufReader<TcpStream>);

impl Agent {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let tcp = TcpStream::connect(address).unwrap();
        tcp.set_nodelay(true).unwrap();
        tcp.set_read_timeout(Some(Duration::from_secs(15))).unwrap();
        Self(BufReader::new(tcp))
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.get_mut().write_all(bytes.as_ref()).unwrap();
    }

    /// Sends to a gateway that may close before the end.
    pub(crate) fn send_until_closed(&mut self, bytes: &[u8]) {
        if let Err(error) = self.0.get_mut().write_all(bytes) {
            assert!(matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{error}");
        }
    }

    pub(crate) fn ask(&mut self, request: impl AsRef<[u8]>) -> Answer {
        self.send(request);
        self.answer()
    }

    pub(crate) fn head(&mut self) -> String {
        let mut head = String::new();
        loop {
            let mut line = String::new();
            assert_ne!(self.0.read_line(&mut line).unwrap(), 0, "closed within the head: {head:?}");
            if line == "\r\n" {
                return head;
            }
            head.push_str(&line);
        }
    }

    pub(crate) fn answer(&mut self) -> Answer {
        let head = self.head();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut answer = Answer { status, head, body: String::new(), broken: false, times: Vec::new() };
        if let Some(length) = answer.header("content-length") {
            let mut body = vec![0; length.parse().unwrap()];
            let mut at = 0;
            while at < body.len() {
                match self.0.read(&mut body[at..]) {
                    Ok(0) => break,
                    Ok(n) => at += n,
                    Err(e) if e.kind() == ErrorKind::ConnectionReset => break,
                    Err(e) => panic!("{e}"),
                }
            }
            answer.broken = at < body.len();
            answer.body = String::from_utf8(body[..at].to_vec()).unwrap();
        } else if answer.header("transfer-encoding").is_some() {
            answer.broken = !self.chunks(&mut answer);
        }
        answer
    }

    /// Reads chunks; false: the last one never came.
    fn chunks(&mut self, answer: &mut Answer) -> bool {
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).unwrap_or(0) == 0 {
                return false;
            }
            let length = usize::from_str_radix(line.trim(), 16).unwrap();
            let mut data = vec![0; length + 2];
            if self.0.read_exact(&mut data).is_err() {
                return false;
            }
            if length == 0 {
                return true;
            }
            answer.times.push(Instant::now());
            answer.body.push_str(std::str::from_utf8(&data[..length]).unwrap());
        }
    }

    /// Whether the gateway closes the connection.
    pub(crate) fn closed(&mut self) -> bool {
        match self.0.read(&mut [0]) {
            Ok(n) => n == 0,
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        }
    }
}
