//! What reaches the endpoint, and how the answer comes back.

use stockade_core::event::{EventKind, Usage};

use crate::support::{ANSWER, CHAT, Endpoint, KEY, PLACEHOLDER, Stand, TITLE, TURN, policy, post, respond};

#[test]
fn the_credential_is_added_and_nothing_of_the_agents_own_arrives() {
    let endpoint = Endpoint::answering(ANSWER);
    let stand = Stand::start(policy(&endpoint.url()));
    let body = TURN;
    let request = format!(
        "POST {CHAT}?beta=1 HTTP/1.1\r\nhost: 127.0.0.1:8080\r\ncontent-type: text/plain\r\nauthorization: Bearer {PLACEHOLDER}\r\n\
         x-api-key: {PLACEHOLDER}\r\ncookie: a={PLACEHOLDER}\r\nproxy-authorization: Basic {PLACEHOLDER}\r\nx-secret: {PLACEHOLDER}\r\n\
         connection: keep-alive, x-secret\r\nx-forwarded-for: 1.2.3.4\r\nx-original-url: /v1/organizations/keys\r\n\
         x-http-method-override: GET\r\nopenai-organization: other\r\naccept-encoding: gzip\r\nuser-agent: grok\r\nx-grok-req-id: r-1\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let answer = stand.agent().ask(request);
    assert_eq!((answer.status, answer.body.as_str()), (200, ANSWER));
    assert_eq!(answer.header("content-length"), Some(ANSWER.len().to_string().as_str()));

    let got = endpoint.got();
    assert_eq!(got.len(), 1);
    assert!(got[0].head.starts_with("POST /v1/chat/completions?beta=1 HTTP/1.1\r\n"), "{}", got[0].head);
    assert_eq!(got[0].body, body.as_bytes());
    let mut headers: Vec<String> =
        got[0].head.lines().skip(1).filter(|l| !l.is_empty()).map(str::to_owned).collect();
    headers.sort();
    let mut expected = vec![
        "accept-encoding: identity".to_owned(),
        format!("authorization: Bearer {KEY}"),
        format!("content-length: {}", body.len()),
        "content-type: application/json".to_owned(),
        format!("host: {}", endpoint.address),
        "user-agent: grok".to_owned(),
        "x-grok-req-id: r-1".to_owned(),
    ];
    expected.sort();
    assert_eq!(headers, expected);
}

#[test]
fn the_path_prefix_inside_is_replaced_by_the_endpoints() {
    let endpoint = Endpoint::answering(ANSWER);
    let stand = Stand::start(policy(&format!("http://{}/proxy/openai/", endpoint.address)));
    assert_eq!(stand.agent().ask(post(CHAT, TURN)).status, 200);
    assert!(endpoint.got()[0].head.starts_with("POST /proxy/openai/chat/completions HTTP/1.1\r\n"));
}

#[test]
fn a_key_can_travel_in_x_api_key() {
    let endpoint = Endpoint::answering(ANSWER);
    let mut policy = policy(&endpoint.url());
    policy.credential.as_mut().unwrap().header = stockade_core::profile::CredentialHeader::XApiKey;
    let stand = Stand::start(policy);
    stand.agent().ask(post(CHAT, TURN));
    let got = endpoint.got();
    assert_eq!((got[0].header("x-api-key"), got[0].header("authorization")), (Some(KEY), None));
}

#[test]
fn without_a_credential_the_agents_own_does_not_arrive_either() {
    let endpoint = Endpoint::answering(ANSWER);
    let mut policy = policy(&endpoint.url());
    policy.credential = None;
    let stand = Stand::start(policy);
    stand.agent().ask(post(CHAT, TURN));
    assert!(!endpoint.got()[0].head.contains(PLACEHOLDER));
    assert_eq!(endpoint.got()[0].header("authorization"), None);
}

#[test]
fn a_request_and_its_answer_become_facts() {
    let endpoint = Endpoint::answering(ANSWER);
    let stand = Stand::start(policy(&endpoint.url()));
    let mut agent = stand.agent();
    agent.ask(post(CHAT, TURN));
    agent.ask(post(CHAT, TITLE));
    assert!(stand.activity.bytes_from_agent() >= (TURN.len() + TITLE.len()) as u64);
    assert_eq!(stand.activity.bytes_from_endpoint(), 2 * ANSWER.len() as u64);
    let (facts, _) = stand.end();
    assert_eq!(
        facts[0],
        EventKind::ModelRequest {
            request: 1,
            class: "turn".to_owned(),
            model: Some("m-1".to_owned()),
            tools: vec!["read_file".to_owned(), "grep".to_owned()],
            bytes: TURN.len() as u64,
            effort: Some("low".to_owned()),
        }
    );
    let EventKind::ModelResponse { elapsed_ms, .. } = facts[1] else { panic!("{facts:?}") };
    assert_eq!(
        facts[1],
        EventKind::ModelResponse {
            request: 1,
            class: "turn".to_owned(),
            status: Some(200),
            failure: None,
            finish_reason: Some("stop".to_owned()),
            served_model: Some("m-served".to_owned()),
            usage: Some(Usage {
                input_tokens: Some(3),
                output_tokens: Some(2),
                total_tokens: Some(5),
                ..Usage::default()
            }),
            cut: false,
            content_type: Some("application/json".to_owned()),
            retry_after_s: None,
            error: None,
            stated: None,
            elapsed_ms,
        }
    );
    assert!(matches!(&facts[2], EventKind::ModelRequest { request: 2, class, .. } if class == "title"));
    assert_eq!(facts.len(), 4);
}

#[test]
fn four_requests_on_one_connection_use_one_connection_outside() {
    let endpoint = Endpoint::answering(ANSWER);
    let stand = Stand::start(policy(&endpoint.url()));
    let mut agent = stand.agent();
    for _ in 0..4 {
        assert_eq!(agent.ask(post(CHAT, TURN)).status, 200);
    }
    assert_eq!((endpoint.got().len(), endpoint.connections()), (4, 1));
}

#[test]
fn a_kept_connection_that_the_endpoint_closed_is_replaced() {
    let endpoint = Endpoint::start(|_, wire| {
        respond(wire, "200 OK", "application/json", ANSWER);
        crate::support::After::Close
    });
    let stand = Stand::start(policy(&endpoint.url()));
    let mut agent = stand.agent();
    for _ in 0..3 {
        assert_eq!(agent.ask(post(CHAT, TURN)).status, 200);
        crate::support::pause(30);
    }
    assert_eq!((endpoint.got().len(), endpoint.connections()), (3, 3));
}

#[test]
fn cookies_and_a_repeated_key_do_not_come_back() {
    let endpoint = Endpoint::start(|got, wire| {
        let key = got.header("authorization").unwrap().to_owned();
        let body = format!("{{\"error\":{{\"message\":\"bad key: {key}\"}}}}");
        let head = format!(
            "HTTP/1.1 401 Unauthorized\r\ncontent-type: application/json\r\nset-cookie: a=b\r\nx-echo: {key}\r\nx-request-id: 7\r\n\
             keep-alive: timeout=5\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        // Cut within the key.
        let (first, second) = body.split_at(body.len() - 8);
        wire.write_all(format!("{head}{first}").as_bytes()).unwrap();
        crate::support::pause(30);
        wire.write_all(second.as_bytes()).unwrap();
        crate::support::After::Keep
    });
    let stand = Stand::start(policy(&endpoint.url()));
    let answer = stand.agent().ask(post(CHAT, TURN));
    assert_eq!(answer.status, 401);
    assert_eq!(answer.header("x-request-id"), Some("7"));
    for absent in ["set-cookie", "x-echo", "keep-alive"] {
        assert_eq!(answer.header(absent), None, "{absent}");
    }
    assert_eq!(
        answer.body,
        format!("{{\"error\":{{\"message\":\"bad key: Bearer {}\"}}}}", "*".repeat(KEY.len()))
    );
    let (facts, _) = stand.end();
    assert!(!format!("{facts:?}").contains(KEY), "{facts:?}");
    assert!(
        matches!(&facts[1], EventKind::ModelResponse { status: Some(401), error: Some(e), .. } if *e == answer.body)
    );
}
