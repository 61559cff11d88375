//! Endpoints that fail, and agents that do not give up.

use std::net::TcpListener;

use stockade_core::event::{EventKind, NetworkVerdict, failure_code, network_code};

use crate::support::{ANSWER, After, CHAT, Endpoint, STOP, Stand, TITLE, TURN, policy, post, respond};

fn unused_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn failure(fact: &EventKind) -> &str {
    let EventKind::ModelResponse { status: None, failure: Some(code), error: Some(text), .. } = fact else {
        panic!("{fact:?}")
    };
    assert!(!text.is_empty());
    code
}

#[test]
fn an_endpoint_that_refuses_is_unreachable() {
    let stand = Stand::start(policy(&format!("http://127.0.0.1:{}/v1", unused_port())));
    let answer = stand.agent().ask(post(CHAT, TURN));
    assert_eq!((answer.status, answer.header(STOP)), (502, Some("false")));
    assert!(answer.body.contains("unreachable"), "{}", answer.body);
    assert_eq!(failure(&stand.responses(1)[0]), failure_code::UNREACHABLE);
}

#[test]
fn a_name_that_does_not_resolve_is_told_apart() {
    let stand = Stand::start(policy("http://no-such-host.invalid/v1"));
    let answer = stand.agent().ask(post(CHAT, TURN));
    assert_eq!(answer.status, 502);
    assert_eq!(failure(&stand.responses(1)[0]), failure_code::NAME);
}

#[test]
fn an_endpoint_that_closes_or_talks_nonsense_breaks_the_protocol() {
    let endpoint = Endpoint::start(|got, wire| {
        if got.number == 1 {
            wire.write_all(b"SSH-2.0-OpenSSH\r\n\r\n").unwrap();
        }
        After::Close
    });
    let stand = Stand::start(policy(&endpoint.url()));
    for _ in 0..2 {
        assert_eq!(stand.agent().ask(post(CHAT, TURN)).status, 502);
    }
    assert_eq!(endpoint.got().len(), 2, "a request that may have arrived is not sent again");
    for fact in &stand.responses(2) {
        assert_eq!(failure(fact), failure_code::PROTOCOL);
    }
}

#[test]
fn html_passes_and_is_told() {
    let endpoint =
        Endpoint::start(|_, wire| respond(wire, "200 OK", "text/html; charset=utf-8", "<html>hello</html>"));
    let stand = Stand::start(policy(&endpoint.url()));
    assert_eq!(stand.agent().ask(post(CHAT, TURN)).body, "<html>hello</html>");
    let facts = stand.responses(1);
    let EventKind::ModelResponse { status, content_type, error, cut, .. } = &facts[0] else { unreachable!() };
    assert_eq!((*status, content_type.as_deref(), *cut), (Some(200), Some("text/html"), false));
    assert_eq!(error.as_deref(), Some("<html>hello</html>"));
}

#[test]
fn a_redirect_is_not_followed() {
    let endpoint = Endpoint::start(|_, wire| {
        wire.write_all(b"HTTP/1.1 307 Temporary Redirect\r\nlocation: http://127.0.0.1:1/steal\r\ncontent-length: 0\r\n\r\n")
            .unwrap();
        After::Keep
    });
    let stand = Stand::start(policy(&endpoint.url()));
    assert_eq!(stand.agent().ask(post(CHAT, TURN)).status, 307);
    assert_eq!(endpoint.got().len(), 1);
    assert!(matches!(stand.responses(1)[0], EventKind::ModelResponse { status: Some(307), .. }));
}

#[test]
fn a_retry_storm_is_ended() {
    let endpoint = Endpoint::start(|got, wire| {
        if got.body == TITLE.as_bytes() {
            return respond(wire, "200 OK", "application/json", ANSWER);
        }
        respond(wire, "503 Service Unavailable", "application/json", "{\"error\":{\"message\":\"busy\"}}")
    });
    let stand = Stand::start(policy(&endpoint.url()));
    let mut agent = stand.agent();
    let stops: Vec<_> = (0..6)
        .map(|_| {
            let answer = agent.ask(post(CHAT, TURN));
            assert_eq!(answer.status, 503);
            answer.header(STOP).map(str::to_owned)
        })
        .collect();
    let stop = Some("false".to_owned());
    assert_eq!(stops, [None, stop.clone(), stop.clone(), stop.clone(), stop.clone(), stop]);
    assert_eq!(endpoint.got().len(), 4, "two failures, two repeats; the third repeat is not forwarded");
    let decisions = stand.decisions(2);
    assert!(
        decisions.iter().all(|d| d.code == network_code::RETRY_STORM && d.verdict == NetworkVerdict::Refused)
    );
    let facts = stand.responses(4);
    assert!(
        matches!(&facts[3], EventKind::ModelResponse { status: Some(503), error: Some(e), .. } if e.contains("busy"))
    );
    assert_eq!(agent.ask(post(CHAT, TITLE)).status, 200, "another class goes on");
}

#[test]
fn an_answer_between_failures_starts_the_count_again() {
    let endpoint = Endpoint::start(|got, wire| match got.number {
        1 => respond(wire, "200 OK", "application/json", ANSWER),
        _ => respond(wire, "500 Internal Server Error", "text/plain", "oops"),
    });
    let stand = Stand::start(policy(&endpoint.url()));
    let mut agent = stand.agent();
    let stops: Vec<bool> = (0..4).map(|_| agent.ask(post(CHAT, TURN)).header(STOP).is_some()).collect();
    assert_eq!(stops, [false, false, false, true]);
}

#[test]
fn answers_that_break_off_are_not_asked_for_again_and_again() {
    let endpoint = Endpoint::start(|_, wire| {
        wire.write_all(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 99\r\n\r\ndata: {}\n\n",
        )
        .unwrap();
        After::Close
    });
    let stand = Stand::start(policy(&endpoint.url()));
    for _ in 0..2 {
        assert!(stand.agent().ask(post(CHAT, TURN)).broken);
    }
    assert_eq!(
        stand.decisions(1)[0].code,
        network_code::RETRY_STORM,
        "told at once, not when the agent asks again"
    );
    let answer = stand.agent().ask(post(CHAT, TURN));
    assert_eq!((answer.status, answer.header(STOP)), (503, Some("false")));
    assert_eq!(endpoint.got().len(), 2);
    assert_eq!(stand.decisions(2)[1].code, network_code::RETRY_STORM);
}

#[test]
fn streams_without_an_end_and_answers_without_use_are_not_asked_for_again_and_again() {
    let whole = |kind: &'static str, body: &'static str| {
        Endpoint::start(move |_, wire| respond(wire, "200 OK", kind, body))
    };
    for endpoint in [
        whole(
            "text/event-stream",
            "data: {\"model\":\"m-1\",\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n",
        ),
        whole(
            "text/event-stream",
            "data: {\"error\":{\"message\":\"overloaded\",\"type\":\"overloaded_error\"}}\n\n",
        ),
        whole("text/html", "<html>sorry</html>"),
        whole("application/json", "{nonsense"),
    ] {
        let stand = Stand::start(policy(&endpoint.url()));
        let mut agent = stand.agent();
        for _ in 0..2 {
            assert_eq!(agent.ask(post(CHAT, TURN)).status, 200);
        }
        assert_eq!(stand.decisions(1)[0].code, network_code::RETRY_STORM);
        assert_eq!(agent.ask(post(CHAT, TURN)).header(STOP), Some("false"));
        assert_eq!(endpoint.got().len(), 2);
    }
}

#[test]
fn what_no_repetition_mends_is_not_repeated() {
    let endpoint = Endpoint::start(|_, wire| {
        respond(
            wire,
            "401 Unauthorized",
            "application/json",
            "{\"error\":{\"type\":\"authentication_error\"}}",
        )
    });
    let stand = Stand::start(policy(&endpoint.url()));
    let answer = stand.agent().ask(post(CHAT, TURN));
    assert_eq!((answer.status, answer.header(STOP)), (401, Some("false")));
    let facts = stand.responses(1);
    assert!(
        matches!(&facts[0], EventKind::ModelResponse { stated: Some(stated), .. } if stated.kind.as_deref() == Some("authentication_error")),
        "{facts:?}"
    );
}

#[test]
fn the_status_that_ends_retries_stands_in_the_answer_and_the_endpoints_own_in_the_facts() {
    let endpoint = Endpoint::start(|_, wire| respond(wire, "500 Oops", "application/json", "{\"error\":{}}"));
    let mut policy = policy(&endpoint.url());
    (policy.stop_header, policy.stop_status) = (None, Some(400));
    let stand = Stand::start(policy);
    let mut agent = stand.agent();
    let answers: Vec<_> = (0..3).map(|_| agent.ask(post(CHAT, TURN))).collect();
    let statuses: Vec<_> = answers.iter().map(|answer| answer.status).collect();
    assert_eq!(statuses, [500, 400, 400]);
    assert_eq!(answers[1].body, "{\"error\":{}}", "in the endpoint's own words");
    for fact in stand.responses(3) {
        assert!(matches!(fact, EventKind::ModelResponse { status: Some(500), .. }), "{fact:?}");
    }
}

#[test]
fn an_agent_that_cannot_be_told_is_ended_with_the_last_allowed_failure() {
    let mut policy = policy(&format!("http://127.0.0.1:{}/v1", unused_port()));
    policy.stop_header = None;
    let stand = Stand::start(policy);
    for _ in 0..2 {
        assert_eq!(stand.agent().ask(post(CHAT, TURN)).status, 502);
    }
    assert_eq!(stand.decisions(1)[0].code, network_code::RETRY_STORM);
}

#[test]
fn a_long_wait_is_not_waited_for() {
    let endpoint = Endpoint::start(|got, wire| {
        let seconds = if got.number == 0 { 10 } else { 11 };
        let head = format!(
            "HTTP/1.1 429 Too Many Requests\r\nretry-after: {seconds}\r\ncontent-length: 2\r\n\r\n{{}}"
        );
        wire.write_all(head.as_bytes()).unwrap();
        After::Keep
    });
    let stand = Stand::start(policy(&endpoint.url()));
    let mut agent = stand.agent();
    assert_eq!(agent.ask(post(CHAT, TURN)).header(STOP), None);
    assert_eq!(agent.ask(post(CHAT, TURN)).header(STOP), Some("false"));
    let waits: Vec<_> = stand
        .responses(2)
        .iter()
        .map(|f| match f {
            EventKind::ModelResponse { retry_after_s, .. } => *retry_after_s,
            _ => None,
        })
        .collect();
    assert_eq!(waits, [Some(10), Some(11)]);
}

#[test]
fn the_head_of_a_long_error_is_kept() {
    let long: &'static str = Box::leak("e".repeat(100_000).into_boxed_str());
    let endpoint = Endpoint::start(move |_, wire| respond(wire, "400 Bad Request", "text/plain", long));
    let stand = Stand::start(policy(&endpoint.url()));
    assert_eq!(stand.agent().ask(post(CHAT, TURN)).body.len(), 100_000);
    let facts = stand.responses(1);
    assert!(matches!(&facts[0], EventKind::ModelResponse { error: Some(e), .. } if e.len() == 2_000));
}

#[test]
fn a_head_of_an_answer_over_the_limit_breaks_the_protocol() {
    let endpoint = Endpoint::start(|_, wire| {
        let head = format!("HTTP/1.1 200 OK\r\nx-long: {}\r\n\r\n", "x".repeat(100_000));
        // The gateway leaves in the middle of it.
        drop(wire.write_all(head.as_bytes()));
        After::Close
    });
    let stand = Stand::start(policy(&endpoint.url()));
    assert_eq!(stand.agent().ask(post(CHAT, TURN)).status, 502);
    assert_eq!(failure(&stand.responses(1)[0]), failure_code::PROTOCOL);
}
