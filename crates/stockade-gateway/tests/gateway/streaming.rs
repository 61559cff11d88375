//! Streams keep their gaps and their ends.

use std::time::Duration;

use stockade_core::event::{EventKind, failure_code};

use crate::support::{After, CHAT, Endpoint, Stand, TURN, Wire, chunk, pause, policy, post};

const PIECE: &str =
    "data: {\"model\":\"m-served\",\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":null}]}\n\n";
const FINISH: &str =
    "data: {\"model\":\"m-served\",\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
const DONE: &str = "data: [DONE]\n\n";

fn head(wire: &mut dyn Wire, framing: &str) {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n{framing}\r\n");
    wire.write_all(head.as_bytes()).unwrap();
}

fn cut(fact: &EventKind) -> (bool, Option<&str>, Option<&str>) {
    let EventKind::ModelResponse { cut, finish_reason, failure, .. } = fact else { panic!("{fact:?}") };
    (*cut, finish_reason.as_deref(), failure.as_deref())
}

#[test]
fn gaps_between_events_stay_as_they_are() {
    let endpoint = Endpoint::start(|_, wire| {
        head(wire, "transfer-encoding: chunked\r\n");
        for _ in 0..4 {
            chunk(wire, PIECE);
            pause(100);
        }
        chunk(wire, FINISH);
        chunk(wire, DONE);
        chunk(wire, "");
        After::Keep
    });
    let stand = Stand::start(policy(&endpoint.url()));
    let answer = stand.agent().ask(post(CHAT, TURN));
    assert!(!answer.broken);
    assert_eq!(answer.body, format!("{}{FINISH}{DONE}", PIECE.repeat(4)));
    let gaps: Vec<Duration> = answer.times.windows(2).take(3).map(|t| t[1] - t[0]).collect();
    // What is collected first arrives without gaps; a busy machine only moves them.
    assert!(gaps.iter().all(|gap| gap.as_millis() >= 30), "{gaps:?}");
    let facts = stand.responses(1);
    assert_eq!(cut(&facts[0]), (false, Some("stop"), None));
    let EventKind::ModelResponse { content_type, served_model, .. } = &facts[0] else { unreachable!() };
    assert_eq!(
        (content_type.as_deref(), served_model.as_deref()),
        (Some("text/event-stream"), Some("m-served"))
    );
}

#[test]
fn a_body_that_breaks_off_breaks_the_agents_connection() {
    let endpoint = Endpoint::start(|got, wire| {
        match got.number {
            0 => {
                head(wire, "transfer-encoding: chunked\r\n");
                chunk(wire, PIECE);
            }
            1 => {
                head(wire, "content-length: 5000\r\n");
                wire.write_all(PIECE.as_bytes()).unwrap();
            }
            _ => {
                head(wire, "connection: close\r\n");
                wire.write_all(PIECE.as_bytes()).unwrap();
            }
        }
        After::Close
    });
    let mut policy = policy(&endpoint.url());
    policy.failures_before_stop = 10;
    let stand = Stand::start(policy);
    for framing in ["chunked", "length", "until close"] {
        let mut agent = stand.agent();
        let answer = agent.ask(post(CHAT, TURN));
        assert!(answer.broken, "{framing}");
        assert_eq!(answer.body, PIECE, "{framing}: what arrived before is passed on");
        assert!(agent.closed(), "{framing}");
    }
    for fact in &stand.responses(3) {
        assert_eq!(cut(fact), (true, None, None));
    }
}

#[test]
fn a_stream_that_ends_cleanly_without_a_finish_is_cut_too() {
    let endpoint = Endpoint::start(|_, wire| {
        head(wire, "transfer-encoding: chunked\r\n");
        chunk(wire, PIECE);
        chunk(wire, "");
        After::Keep
    });
    let stand = Stand::start(policy(&endpoint.url()));
    let answer = stand.agent().ask(post(CHAT, TURN));
    assert!(!answer.broken, "its framing was whole");
    assert_eq!(cut(&stand.responses(1)[0]), (true, None, None));
}

#[test]
fn a_stream_until_close_with_its_finish_is_whole() {
    let endpoint = Endpoint::start(|_, wire| {
        head(wire, "connection: close\r\n");
        wire.write_all(format!("{PIECE}{FINISH}{DONE}").as_bytes()).unwrap();
        After::Close
    });
    let stand = Stand::start(policy(&endpoint.url()));
    let answer = stand.agent().ask(post(CHAT, TURN));
    assert!(!answer.broken);
    assert_eq!(cut(&stand.responses(1)[0]), (false, Some("stop"), None));
}

#[test]
fn an_agent_that_leaves_is_no_cut() {
    let endpoint = Endpoint::start(|got, wire| {
        if got.number == 0 {
            head(wire, "transfer-encoding: chunked\r\n");
            chunk(wire, PIECE);
        }
        pause(10_000);
        After::Close
    });
    let stand = Stand::start(policy(&endpoint.url()));
    let mut agent = stand.agent();
    agent.send(post(CHAT, TURN));
    agent.head();
    drop(agent);
    let facts = stand.responses(1);
    assert_eq!(cut(&facts[0]), (false, None, Some(failure_code::ABANDONED)));

    let mut agent = stand.agent();
    agent.send(post(CHAT, TURN));
    while endpoint.got().len() < 2 {
        pause(5);
    }
    drop(agent);
    let facts = stand.responses(2);
    assert!(
        matches!(&facts[1], EventKind::ModelResponse { status: None, failure: Some(f), .. } if f == failure_code::ABANDONED)
    );
}

#[test]
fn an_agent_that_leaves_after_the_finish_has_its_answer() {
    let endpoint = Endpoint::start(|_, wire| {
        head(wire, "transfer-encoding: chunked\r\n");
        chunk(wire, &format!("{PIECE}{FINISH}{DONE}"));
        pause(10_000);
        After::Close
    });
    let stand = Stand::start(policy(&endpoint.url()));
    let mut agent = stand.agent();
    agent.send(post(CHAT, TURN));
    agent.head();
    pause(50);
    drop(agent);
    assert_eq!(cut(&stand.responses(1)[0]), (false, Some("stop"), None));
}

#[test]
fn a_stated_error_within_a_stream_is_kept() {
    let endpoint = Endpoint::start(|_, wire| {
        head(wire, "transfer-encoding: chunked\r\n");
        chunk(wire, "data: {\"error\":{\"message\":\"overloaded\"}}\n\n");
        chunk(wire, "");
        After::Keep
    });
    let stand = Stand::start(policy(&endpoint.url()));
    stand.agent().ask(post(CHAT, TURN));
    let facts = stand.responses(1);
    assert!(
        matches!(&facts[0], EventKind::ModelResponse { cut: false, error: Some(e), .. } if e.contains("overloaded")),
        "{facts:?}"
    );
}
