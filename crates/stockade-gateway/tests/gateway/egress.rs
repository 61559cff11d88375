//! The egress listener between a raw agent and raw servers on loopback, which are listed as such.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::Arc,
    thread::JoinHandle,
    time::Duration,
};

use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, pki_types::ServerName};
use stockade_core::event::{
    NetworkVerdict,
    network_code::{self, EGRESS, EGRESS_LITERAL, EGRESS_NOT_LISTED, EGRESS_PORT, EGRESS_REQUEST},
};

use crate::{
    support::{After, Endpoint, Stand, respond},
    tls::{Authority, authority, endpoint},
};

fn listed(port: u16) -> [String; 2] {
    // The name, and the address that it leads to.
    [format!("localhost:{port}"), format!("127.0.0.1:{port}")]
}

fn stand_for(port: u16) -> (Stand, SocketAddr) {
    Stand::allowing(&listed(port).each_ref().map(String::as_str))
}

fn connect(proxy: SocketAddr) -> TcpStream {
    let tcp = TcpStream::connect(proxy).unwrap();
    tcp.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    tcp.set_nodelay(true).unwrap();
    tcp
}

/// Reads a head, byte for byte, so that nothing of what follows is lost.
fn head(tcp: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if tcp.read(&mut byte).unwrap_or(0) == 0 {
            break;
        }
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

fn tunnel(proxy: SocketAddr, target: &str) -> TcpStream {
    let mut tcp = connect(proxy);
    write!(tcp, "CONNECT {target} HTTP/1.1\r\nhost: {target}\r\n\r\n").unwrap();
    let head = head(&mut tcp);
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    tcp
}

fn tls(tcp: TcpStream, name: &str, authority: &Authority) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    let pem = rustls::pki_types::pem::PemObject::from_pem_slice(&authority.pem).unwrap();
    roots.add(pem).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), tcp)
}

/// A server for one connection.
fn server(serve: impl FnOnce(TcpStream) + Send + 'static) -> (u16, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    (port, std::thread::spawn(move || serve(listener.accept().unwrap().0)))
}

/// A hello without a name, as to an address.
const HELLO: [u8; 52] = {
    let mut bytes = [0; 52];
    let head = [22, 3, 1, 0, 47, 1, 0, 0, 43, 3, 3];
    let mut at = 0;
    while at < head.len() {
        bytes[at] = head[at];
        at += 1;
    }
    // Random bytes, an empty session, one cipher, one compression, no extensions.
    let tail = [0, 0, 2, 0x13, 1, 1, 0, 0, 0];
    at = 0;
    while at < tail.len() {
        bytes[11 + 32 + at] = tail[at];
        at += 1;
    }
    bytes
};

#[test]
fn tls_for_a_listed_host_goes_through_and_is_counted() {
    let authority = authority("localhost");
    let server = endpoint(Arc::clone(&authority.config));
    let port = server.address.port();
    let (stand, proxy) = stand_for(port);
    for _ in 0..2 {
        let mut wire = tls(tunnel(proxy, &format!("LOCALHOST:{port}")), "localhost", &authority);
        wire.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
        let mut first = [0; 15];
        wire.read_exact(&mut first).unwrap();
        assert_eq!(&first, b"HTTP/1.1 200 OK");
    }
    let told = stand.decisions(2);
    assert_eq!((told[0].code.as_str(), told[0].verdict), (network_code::EGRESS, NetworkVerdict::Allowed));
    assert_eq!(told[0].target, format!("localhost:{port}"));
    assert_eq!(told[0].detail, format!("a tunnel to 127.0.0.1:{port}, TLS unread"));
    let totals = stand.totals();
    assert_eq!(totals.passed.into_iter().collect::<Vec<_>>(), [(format!("localhost:{port}"), 2)]);
    assert!(totals.turned_away.is_empty());
    assert!(
        totals.bytes_sent > 400 && totals.bytes_received > 1_000,
        "{totals:?}",
        totals = (totals.bytes_sent, totals.bytes_received)
    );
}

#[test]
fn what_is_not_listed_is_turned_away_on_every_request_of_a_connection() {
    let server = Endpoint::start(|_, wire| respond(wire, "200 OK", "text/plain", "here"));
    let port = server.address.port();
    let (stand, proxy) = stand_for(port);
    let mut agent = crate::support::Agent::connect(proxy);
    let good = format!("GET http://localhost:{port}/x HTTP/1.1\r\nhost: localhost:{port}\r\n\r\n");
    for (request, status) in [
        (good.clone(), 200),
        ("GET http://other.example/ HTTP/1.1\r\nhost: other.example\r\n\r\n".to_owned(), 403),
        (format!("GET http://localhost:{port}/ HTTP/1.1\r\nhost: other.example\r\n\r\n"), 400),
        ("CONNECT other.example:443 HTTP/1.1\r\n\r\n".to_owned(), 403),
        ("CONNECT 127.0.0.1:22 HTTP/1.1\r\n\r\n".to_owned(), 403),
        ("CONNECT localhost:22 HTTP/1.1\r\n\r\n".to_owned(), 403),
        ("GET / HTTP/1.1\r\nhost: a\r\n\r\n".to_owned(), 400),
        (format!("GET http://u:secret@localhost:{port}/ HTTP/1.1\r\nhost: a\r\n\r\n"), 400),
        ("GET https://localhost/ HTTP/1.1\r\nhost: localhost\r\n\r\n".to_owned(), 400),
        (good, 200),
    ] {
        assert_eq!(agent.ask(&request).status, status, "{request}");
    }
    let told = stand.decisions(10);
    assert!(told.iter().all(|t| !t.detail.contains("secret") && !t.target.contains("secret")));
    let codes: Vec<&str> = told.iter().map(|t| t.code.as_str()).collect();
    assert_eq!(
        codes,
        [
            EGRESS,
            EGRESS_NOT_LISTED,
            EGRESS_REQUEST,
            EGRESS_NOT_LISTED,
            EGRESS_LITERAL,
            EGRESS_PORT,
            EGRESS_REQUEST,
            EGRESS_REQUEST,
            EGRESS_REQUEST,
            EGRESS,
        ]
    );
    let paths: Vec<String> =
        server.got().iter().map(|got| got.head.lines().next().unwrap().to_owned()).collect();
    assert_eq!(paths, ["GET /x HTTP/1.1", "GET /x HTTP/1.1"]);
}

#[test]
fn a_plain_request_is_rewritten_for_its_host_and_streams_both_ways() {
    let server = Endpoint::start(|got, wire| {
        let answer = format!("{} bytes", got.body.len());
        let head = "HTTP/1.1 200 OK\r\nkeep-alive: timeout=5\r\nx-own: 1\r\ncontent-length: ";
        wire.write_all(format!("{head}{}\r\n\r\n{answer}", answer.len()).as_bytes()).unwrap();
        After::Keep
    });
    let port = server.address.port();
    let (_stand, proxy) = stand_for(port);
    let mut agent = crate::support::Agent::connect(proxy);
    let body = "x".repeat(300_000);
    let answer = agent.ask(format!(
        "POST http://localhost:{port}/a?b=c HTTP/1.1\r\nhost: localhost:{port}\r\nproxy-authorization: Basic x\r\n\
         proxy-connection: keep-alive\r\nconnection: x-hop\r\nx-hop: 1\r\nupgrade: h2c\r\nauthorization: own\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    ));
    assert_eq!((answer.status, answer.body.as_str()), (200, "300000 bytes"));
    assert_eq!((answer.header("x-own"), answer.header("keep-alive")), (Some("1"), None));
    let got = &server.got()[0];
    assert!(got.head.starts_with("POST /a?b=c HTTP/1.1\r\n"), "{}", got.head);
    assert_eq!(got.header("host"), Some(format!("localhost:{port}").as_str()));
    assert_eq!(got.header("authorization"), Some("own"));
    for gone in ["proxy-authorization", "proxy-connection", "x-hop", "upgrade"] {
        assert_eq!(got.header(gone), None, "{gone}");
    }
}

/// RFC 9112, 6.3: with both, the transfer encoding counts. What the length would have left over is read as a request, and
/// judged.
#[test]
fn a_smuggled_request_is_judged_like_any_other() {
    let server = Endpoint::start(|got, wire| {
        let chunked = got.header("transfer-encoding").is_some();
        assert_eq!((chunked, got.header("content-length")), (true, None), "{}", got.head);
        respond(wire, "200 OK", "text/plain", "here");
        After::Close
    });
    let port = server.address.port();
    let (stand, proxy) = stand_for(port);
    for lengths in [
        "content-length: 4\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: chunked\r\ncontent-length: 4\r\n",
    ] {
        let mut agent = crate::support::Agent::connect(proxy);
        let first = format!(
            "POST http://localhost:{port}/ HTTP/1.1\r\nhost: localhost:{port}\r\n{lengths}\r\n0\r\n\r\n"
        );
        let second = "GET http://other.example/ HTTP/1.1\r\nhost: other.example\r\n\r\n";
        assert_eq!(agent.ask(format!("{first}{second}")).status, 200);
        // A connection on which two lengths were stated is closed, or its next request judged.
        assert!(agent.closed() || stand.decisions(2).iter().any(|t| t.code == EGRESS_NOT_LISTED));
    }
    assert_eq!(server.got().len(), 2);
}

#[test]
fn connections_beyond_the_limit_wait_for_a_place() {
    let (_stand, proxy) = Stand::allowing(&["a.example"]);
    let mut held: Vec<TcpStream> = (0..128).map(|_| connect(proxy)).collect();
    let mut late = connect(proxy);
    late.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    late.write_all(b"CONNECT b.example:443 HTTP/1.1\r\n\r\n").unwrap();
    assert!(late.read(&mut [0]).is_err(), "it is served beside 128 others");
    late.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    held.pop();
    assert!(head(&mut late).starts_with("HTTP/1.1 403 "));
}

#[test]
fn a_name_that_leads_to_this_host_is_no_way_to_its_services() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    listener.set_nonblocking(true).unwrap();
    let (stand, proxy) = Stand::allowing(&[&format!("localhost:{port}")]);
    for request in [
        format!("CONNECT localhost:{port} HTTP/1.1\r\n\r\n"),
        format!("GET http://localhost:{port}/ HTTP/1.1\r\n\r\n"),
    ] {
        let answer = crate::support::Agent::connect(proxy).ask(request);
        assert_eq!(answer.status, 403);
        assert!(
            answer.body.contains("a loopback address") && !answer.body.contains("127."),
            "{}",
            answer.body
        );
    }
    let told = stand.decisions(2);
    assert!(told.iter().all(|t| t.code == network_code::EGRESS_ADDRESS), "{told:?}");
    assert!(listener.accept().is_err(), "nobody was connected to");
}

#[test]
fn what_is_no_tls_for_the_host_gets_nothing_through_a_tunnel() {
    let authority = authority("localhost");
    let mut sent: Vec<(&str, Vec<u8>)> = vec![
        ("SSH", b"SSH-2.0-x\r\n".to_vec()),
        ("HTTP", b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n".to_vec()),
        ("a hello without a name", HELLO.to_vec()),
    ];
    let mut other = tls(connect(Endpoint::answering("x").address), "other.example", &authority);
    let mut hello = Vec::new();
    other.conn.write_tls(&mut hello).unwrap();
    sent.push(("a hello for another name", hello));
    for (what, bytes) in sent {
        let (port, served) = server(|mut tcp| {
            let mut got = Vec::new();
            tcp.read_to_end(&mut got).unwrap();
            assert_eq!(got, b"", "nothing was passed on");
        });
        let (stand, proxy) = stand_for(port);
        let mut agent = tunnel(proxy, &format!("localhost:{port}"));
        agent.write_all(&bytes).unwrap();
        let mut answer = Vec::new();
        // A reset says as much as an end.
        let _closed = agent.read_to_end(&mut answer).is_err();
        assert!(answer.is_empty() || answer == [21, 3, 1, 0, 2, 2, 112], "{what}: {answer:?}");
        served.join().unwrap();
        assert_eq!(stand.decisions(1)[0].code, network_code::EGRESS_TLS, "{what}");
        let totals = stand.totals();
        assert_eq!((totals.bytes_sent, totals.passed.len()), (0, 0), "{what}");
    }
}

#[test]
fn each_direction_ends_by_itself() {
    let (port, served) = server(|mut tcp| {
        let mut got = Vec::new();
        tcp.read_to_end(&mut got).unwrap();
        assert_eq!(got, [&HELLO[..], b"all of it"].concat());
        // The agent has ended its direction; this one goes on.
        tcp.write_all(b"and the answer").unwrap();
    });
    let (_stand, proxy) = stand_for(port);
    let mut agent = tunnel(proxy, &format!("127.0.0.1:{port}"));
    agent.write_all(&HELLO).unwrap();
    agent.write_all(b"all of it").unwrap();
    agent.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    agent.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "and the answer");
    served.join().unwrap();
}

#[test]
fn a_hello_that_comes_with_the_request_or_byte_by_byte_is_taken() {
    for early in [true, false] {
        let (port, served) = server(|mut tcp| {
            let mut got = [0; HELLO.len()];
            tcp.read_exact(&mut got).unwrap();
            assert_eq!(got, HELLO);
            tcp.write_all(b"!").unwrap();
        });
        let (_stand, proxy) = stand_for(port);
        let mut agent = connect(proxy);
        let request = format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n");
        if early {
            agent.write_all(&[request.as_bytes(), &HELLO].concat()).unwrap();
            assert!(head(&mut agent).starts_with("HTTP/1.1 200 "));
        } else {
            agent.write_all(request.as_bytes()).unwrap();
            assert!(head(&mut agent).starts_with("HTTP/1.1 200 "));
            for byte in HELLO {
                agent.write_all(&[byte]).unwrap();
            }
        }
        let mut answer = [0];
        agent.read_exact(&mut answer).unwrap();
        served.join().unwrap();
    }
}

#[test]
fn a_host_that_nobody_serves_is_unreachable_and_a_name_that_nobody_has_is_unknown() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (stand, proxy) = Stand::allowing(&[&format!("127.0.0.1:{port}"), "no-such-name.invalid"]);
    let mut agent = crate::support::Agent::connect(proxy);
    for (target, code) in [
        (format!("127.0.0.1:{port}"), network_code::EGRESS_UNREACHABLE),
        ("no-such-name.invalid:443".to_owned(), network_code::EGRESS_NAME),
    ] {
        assert_eq!(agent.ask(format!("CONNECT {target} HTTP/1.1\r\n\r\n")).status, 502);
        let told = stand.wait(1, |fact| crate::support::Told::of(fact).filter(|t| t.code == code));
        assert_eq!(told[0].target, target);
    }
}

#[test]
fn a_flood_is_counted_whole_and_told_in_part() {
    let (stand, proxy) = Stand::allowing(&["a.example"]);
    let mut agent = crate::support::Agent::connect(proxy);
    for n in 0..300 {
        assert_eq!(agent.ask(format!("CONNECT n{n}.example:443 HTTP/1.1\r\n\r\n")).status, 403);
    }
    assert_eq!(stand.decisions(200).len(), 200);
    let totals = stand.totals();
    assert_eq!(totals.turned_away.into_iter().collect::<Vec<_>>(), [("egress-not-listed".to_owned(), 300)]);
}

#[test]
fn an_agent_that_does_not_wait_connects_to_nothing_unrecorded() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (accepted, connections) = std::sync::mpsc::channel();
    std::thread::spawn(move || listener.incoming().for_each(|tcp| drop(accepted.send(tcp.unwrap()))));
    let (stand, proxy) = stand_for(port);
    let mut count = 0;
    for turn in 0..20 {
        let mut agent = connect(proxy);
        write!(agent, "CONNECT localhost:{port} HTTP/1.1\r\n\r\n").unwrap();
        if turn % 2 == 0 {
            connections.recv_timeout(Duration::from_secs(5)).unwrap();
            count += 1;
        }
    }
    // Of the others some were read before they were gone.
    let told = stand.wait(count, crate::support::Told::of);
    assert!(told.iter().all(|t| t.code == network_code::EGRESS_TLS), "{told:?}");
    crate::support::pause(100);
    count += connections.try_iter().count();
    assert_eq!(stand.decisions(count).len(), count);
}

#[test]
fn the_end_of_the_run_ends_tunnels() {
    let (port, served) = server(|mut tcp| {
        let mut got = Vec::new();
        let _reset = tcp.read_to_end(&mut got).is_err();
        assert_eq!(got, HELLO);
    });
    let (stand, proxy) = stand_for(port);
    let mut agent = tunnel(proxy, &format!("127.0.0.1:{port}"));
    agent.write_all(&HELLO).unwrap();
    stand.decisions(1);
    let (_, took) = stand.end();
    assert!(took < Duration::from_millis(500), "{took:?}");
    served.join().unwrap();
}
