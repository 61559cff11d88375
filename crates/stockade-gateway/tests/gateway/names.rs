//! Look-ups of names.

use std::{
    net::UdpSocket,
    time::{Duration, Instant},
};

use stockade_core::event::{EventKind, NetworkVerdict, network_code};

use crate::support::{Stand, Told, policy};

fn question(id: u8, name: &str) -> Vec<u8> {
    let mut message = vec![0, id, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        message.push(u8::try_from(label.len()).unwrap());
        message.extend_from_slice(label.as_bytes());
    }
    message.extend_from_slice(&[0, 0, 1, 0, 1]);
    message
}

fn client(stand: &Stand) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(stand.names).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    socket
}

#[test]
fn a_question_is_answered_at_once_and_recorded_once() {
    let stand = Stand::start(policy("http://127.0.0.1:1/v1"));
    let socket = client(&stand);
    let mut reply = [0; 512];
    for (id, name) in [(1, "api.github.com"), (2, "API.github.com"), (3, "chatgpt.com")] {
        let before = Instant::now();
        // What is no question gets no answer and stops nothing.
        socket.send(&[1, 2, 3]).unwrap();
        socket.send(&question(id, name)).unwrap();
        let length = socket.recv(&mut reply).unwrap();
        assert!(before.elapsed() < Duration::from_millis(500));
        assert_eq!(reply[1], id);
        assert_eq!(reply[3] & 0x0f, 3, "no such name");
        assert_eq!(reply[12..length], question(id, name)[12..]);
    }
    assert_eq!(
        stand.decisions(2),
        ["api.github.com", "chatgpt.com"].map(|name| Told {
            code: network_code::NAME.to_owned(),
            verdict: NetworkVerdict::Refused,
            target: name.to_owned(),
            detail: "answered: no such name".to_owned(),
        })
    );
}

#[test]
fn a_flood_of_names_is_no_flood_of_facts() {
    let stand = Stand::start(policy("http://127.0.0.1:1/v1"));
    let socket = client(&stand);
    let mut reply = [0; 512];
    for n in 0..300 {
        socket.send(&question(1, &format!("n{n}.example"))).unwrap();
        socket.recv(&mut reply).unwrap();
    }
    let (facts, _) = stand.end();
    assert_eq!(facts.len(), 201);
    assert!(matches!(&facts[200], EventKind::Note { code, .. } if code == "more-name"));
}
