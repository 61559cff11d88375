//! Measures connections and a transfer to `EGRESS_TARGET`, through the proxy of the environment where there is one, and
//! prints milliseconds as the result of an agent's turn: the median of a connection, then the transfer.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a measuring tool with a process of its own: what fails ends it"
)]

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Instant,
};

/// How many connections are measured.
const CONNECTIONS: usize = 200;
/// A hello of TLS without a name, as to an address: what a tunnel takes.
const HELLO: [u8; 52] = {
    let mut bytes = [0; 52];
    let (head, tail) = ([22, 3, 1, 0, 47, 1, 0, 0, 43, 3, 3], [0, 0, 2, 0x13, 1, 1, 0, 0, 0]);
    let mut at = 0;
    while at < head.len() {
        bytes[at] = head[at];
        at += 1;
    }
    at = 0;
    while at < tail.len() {
        bytes[head.len() + 32 + at] = tail[at];
        at += 1;
    }
    bytes
};

fn main() {
    let target = std::env::var("EGRESS_TARGET").expect("EGRESS_TARGET is HOST:PORT");
    let proxy = std::env::var("HTTPS_PROXY").ok().map(|url| url.trim_start_matches("http://").to_owned());
    let mut times: Vec<f64> = (0..CONNECTIONS)
        .map(|_| {
            let start = Instant::now();
            let mut tcp = connect(&target, proxy.as_deref());
            tcp.write_all(&[&HELLO[..], b"1"].concat()).unwrap();
            tcp.read_exact(&mut [0]).unwrap();
            start.elapsed().as_secs_f64() * 1_000.0
        })
        .collect();
    times.sort_by(f64::total_cmp);
    let start = Instant::now();
    let mut tcp = connect(&target, proxy.as_deref());
    tcp.write_all(&[&HELLO[..], b"G"].concat()).unwrap();
    let mut buffer = vec![0; 1 << 20];
    while tcp.read(&mut buffer).unwrap() > 0 {}
    let transfer = start.elapsed().as_secs_f64() * 1_000.0;
    println!(
        r#"{{"type":"result","subtype":"success","is_error":false,"result":"{:.4} {transfer:.1}","stop_reason":"end_turn"}}"#,
        times[CONNECTIONS / 2]
    );
}

fn connect(target: &str, proxy: Option<&str>) -> TcpStream {
    let mut tcp = TcpStream::connect(proxy.unwrap_or(target)).unwrap();
    tcp.set_nodelay(true).unwrap();
    if proxy.is_some() {
        tcp.write_all(format!("CONNECT {target} HTTP/1.1\r\nhost: {target}\r\n\r\n").as_bytes()).unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut piece = [0; 256];
            let count = tcp.read(&mut piece).unwrap();
            assert_ne!(count, 0, "the proxy closed");
            head.extend_from_slice(&piece[..count]);
        }
        assert!(head.starts_with(b"HTTP/1.1 200 "), "{}", head.escape_ascii());
    }
    tcp
}
