//! Framing of requests: how long they are, and that one stays one.

use stockade_core::event::{EventKind, network_code};

use crate::support::{ANSWER, CHAT, Endpoint, Stand, TURN, pause, policy, post};

fn stand() -> (Endpoint, Stand) {
    let endpoint = Endpoint::answering(ANSWER);
    let stand = Stand::start(policy(&endpoint.url()));
    (endpoint, stand)
}

fn chunked(extra: &str) -> String {
    let (first, second) = TURN.split_at(40);
    format!(
        "POST {CHAT} HTTP/1.1\r\nhost: a\r\n{extra}\r\n{:x}\r\n{first}\r\n{:x}\r\n{second}\r\n0\r\n\r\n",
        first.len(),
        second.len()
    )
}

#[test]
fn a_chunked_request_arrives_with_a_length() {
    let (endpoint, stand) = stand();
    assert_eq!(stand.agent().ask(chunked("transfer-encoding: chunked\r\n")).status, 200);
    let got = endpoint.got();
    assert_eq!(got[0].body, TURN.as_bytes());
    assert_eq!(got[0].header("transfer-encoding"), None);
    assert_eq!(got[0].header("content-length"), Some(TURN.len().to_string().as_str()));
}

#[test]
fn an_agent_that_waits_for_100_continue_gets_it() {
    let (endpoint, stand) = stand();
    let request = post(CHAT, TURN);
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let mut agent = stand.agent();
    agent.send(format!("{head}\r\nexpect: 100-continue\r\n\r\n"));
    assert!(agent.head().starts_with("HTTP/1.1 100 "));
    assert_eq!(agent.ask(body).status, 200);
    assert_eq!(endpoint.got()[0].header("expect"), None);
}

#[test]
fn nothing_reaches_the_endpoint_before_the_request_is_whole() {
    let (endpoint, stand) = stand();
    let request = post(CHAT, TURN);
    let (most, rest) = request.split_at(request.len() - 1);
    let mut agent = stand.agent();
    agent.send(most);
    pause(100);
    assert_eq!(endpoint.connections(), 0);
    assert_eq!(agent.ask(rest).status, 200);
}

#[test]
fn eight_mebibytes_pass() {
    let (endpoint, stand) = stand();
    let body = TURN.replace("[]", &format!("[{{\"content\":\"{}\"}}]", "x".repeat(8 * 1024 * 1024)));
    assert_eq!(stand.agent().ask(post(CHAT, &body)).status, 200);
    assert_eq!(endpoint.got()[0].body, body.as_bytes());
}

#[test]
fn more_than_the_limit_is_refused_however_it_is_framed() {
    let (endpoint, stand) = stand();
    let stated = format!("POST {CHAT} HTTP/1.1\r\nhost: a\r\ncontent-length: 33554433\r\n\r\n");
    assert_eq!(stand.agent().ask(stated).status, 413);

    let mut agent = stand.agent();
    agent.send(format!("POST {CHAT} HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"));
    let mebibyte = format!("100000\r\n{}\r\n", " ".repeat(1024 * 1024));
    for _ in 0..32 {
        agent.send(&mebibyte);
    }
    agent.send("1\r\n \r\n");
    assert_eq!(agent.answer().status, 413);
    assert_eq!(endpoint.connections(), 0);
    assert!(stand.decisions(2).iter().all(|d| d.code == network_code::BAD_REQUEST));
}

#[test]
fn bodies_together_take_bounded_memory() {
    let (endpoint, stand) = stand();
    let mebibyte = " ".repeat(1024 * 1024);
    let mut agents: Vec<_> = (0..4).map(|_| stand.agent()).collect();
    for agent in &mut agents {
        agent.send(format!("POST {CHAT} HTTP/1.1\r\nhost: a\r\ncontent-length: 33554432\r\n\r\n"));
    }
    for agent in agents.iter_mut().take(3) {
        for _ in 0..31 {
            agent.send(&mebibyte);
        }
    }
    let held = 3 * 31 * 1024 * 1024;
    while stand.activity.bytes_from_agent() < held {
        pause(5);
    }
    // The gateway answers and closes in the middle of it.
    agents[3].send_until_closed(mebibyte.repeat(8).as_bytes());
    assert_eq!(stand.decisions(1)[0].detail, "too many large requests at once");
    // What the others held is free again once they are gone.
    drop(agents);
    pause(100);
    assert_eq!(stand.agent().ask(post(CHAT, TURN)).status, 200);
    assert_eq!(endpoint.got().len(), 1);
}

#[test]
fn a_head_over_the_limit_is_refused() {
    let (endpoint, stand) = stand();
    let mut agent = stand.agent();
    agent.send(format!("POST {CHAT} HTTP/1.1\r\nhost: a\r\nx-long: {}", "x".repeat(70_000)));
    assert_eq!(agent.answer().status, 431);
    assert_eq!(endpoint.connections(), 0);
}

#[test]
fn lengths_that_disagree_are_refused() {
    let (endpoint, stand) = stand();
    let request = post(CHAT, TURN);
    for length in ["0", "+5", "5, 6", "-1", "0x10", "99999999999999999999"] {
        let wrong = request.replacen("\r\n", &format!("\r\ncontent-length: {length}\r\n"), 1);
        assert_eq!(stand.agent().ask(&wrong).status, 400, "{length}");
    }
    for encoding in ["gzip", "chunked, gzip", "xchunked"] {
        let wrong = chunked(&format!("transfer-encoding: {encoding}\r\n"));
        assert_eq!(stand.agent().ask(wrong).status, 400, "{encoding}");
    }
    let old = chunked("transfer-encoding: chunked\r\n").replacen("HTTP/1.1", "HTTP/1.0", 1);
    assert_eq!(stand.agent().ask(old).status, 400);
    assert_eq!(endpoint.connections(), 0);
}

/// RFC 9112, 6.3: with both, the transfer encoding counts. Whatever else the agent's side made of it, the endpoint gets one
/// request with one length, made here; the rest never becomes a request of its own that was not checked.
#[test]
fn a_smuggled_request_does_not_leave() {
    let (endpoint, stand) = stand();
    let smuggled = "GET /v1/organizations/keys HTTP/1.1\r\nhost: a\r\n\r\n";
    for lengths in [
        "content-length: 4\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: chunked\r\ncontent-length: 4\r\n",
    ] {
        let mut agent = stand.agent();
        assert_eq!(agent.ask(format!("{}{smuggled}", chunked(lengths))).status, 200);
        assert!(agent.closed(), "nothing after such a request is read");
    }
    let got = endpoint.got();
    assert_eq!(got.len(), 2);
    for request in &got {
        assert_eq!(request.body, TURN.as_bytes());
        assert_eq!(request.head.matches("content-length").count(), 1);
        assert_eq!(request.header("transfer-encoding"), None);
    }
}

#[test]
fn a_second_request_right_behind_the_first_is_checked_too() {
    let (endpoint, stand) = stand();
    let mut agent = stand.agent();
    let second = "GET /v1/organizations/keys HTTP/1.1\r\nhost: a\r\n\r\n";
    assert_eq!(agent.ask(format!("{}{second}", post(CHAT, TURN))).status, 200);
    assert_eq!(agent.answer().status, 404);
    assert_eq!(endpoint.got().len(), 1);
    assert_eq!(stand.decisions(1)[0].target, "GET /v1/organizations/keys");
}

#[test]
fn a_length_given_twice_with_one_value_is_one_length() {
    let (endpoint, stand) = stand();
    let twice = post(CHAT, TURN).replacen("\r\n", &format!("\r\ncontent-length: {}\r\n", TURN.len()), 1);
    assert_eq!(stand.agent().ask(twice).status, 200);
    assert_eq!(endpoint.got()[0].head.matches("content-length").count(), 1);
}

#[test]
fn control_characters_in_headers_do_not_leave() {
    let (endpoint, stand) = stand();
    for value in ["a\rb: c", "a\0b", "a\nhost : x"] {
        let wrong = post(CHAT, TURN).replacen("\r\n", &format!("\r\nx-a: {value}\r\n"), 1);
        assert_eq!(stand.agent().ask(wrong).status, 400, "{value:?}");
    }
    assert_eq!(endpoint.connections(), 0);
}

#[test]
fn a_request_that_stops_in_its_middle_is_told() {
    let (endpoint, stand) = stand();
    let request = post(CHAT, TURN);
    let mut agent = stand.agent();
    agent.send(&request[..request.len() - 10]);
    pause(50);
    drop(agent);
    pause(100);
    assert_eq!(endpoint.connections(), 0);
    assert!(!stand.end().0.iter().any(|f| matches!(f, EventKind::ModelRequest { .. })));
}
