//! What never reaches the endpoint.

use stockade_core::{
    budget::{Budget, Price, Usd},
    event::{EventKind, NetworkVerdict, network_code},
};

use crate::support::{
    ANSWER, CHAT, Endpoint, KEY, PLACEHOLDER, STOP, Stand, TITLE, TURN, Told, policy, post, respond,
};

fn stand() -> (Endpoint, Stand) {
    let endpoint = Endpoint::answering(ANSWER);
    let stand = Stand::start(policy(&endpoint.url()));
    (endpoint, stand)
}

#[test]
fn the_keys_of_an_account_cannot_be_listed() {
    let (endpoint, stand) = stand();
    let mut agent = stand.agent();
    for (request, status) in [
        ("GET /v1/models HTTP/1.1\r\nhost: a\r\n\r\n".to_owned(), 404),
        ("GET /v1/organizations/keys HTTP/1.1\r\nhost: a\r\n\r\n".to_owned(), 404),
        (format!("GET {CHAT} HTTP/1.1\r\nhost: a\r\n\r\n"), 404),
        ("OPTIONS * HTTP/1.1\r\nhost: a\r\n\r\n".to_owned(), 404),
        (post("/v1/other", TURN), 404),
        (post("/v1/chat/completions/../organizations/keys", TURN), 404),
    ] {
        let answer = agent.ask(&request);
        assert_eq!(answer.status, status, "{request}");
        assert!(answer.body.contains("not-a-model-call"), "{}", answer.body);
    }
    assert_eq!(endpoint.connections(), 0);
    let decisions = stand.decisions(6);
    assert_eq!(
        decisions[1],
        Told {
            code: network_code::NOT_A_MODEL_CALL.to_owned(),
            verdict: NetworkVerdict::AnsweredHere,
            target: "GET /v1/organizations/keys".to_owned(),
            detail: "not forwarded: only calls of the model are".to_owned(),
        }
    );
    assert_eq!(decisions.len(), 6);
}

#[test]
fn a_side_request_is_answered_without_a_note() {
    let (endpoint, stand) = stand();
    let answer = stand.agent().ask("GET /?x=1 HTTP/1.1\r\nhost: a\r\n\r\n");
    assert_eq!((answer.status, answer.body.as_str()), (200, ""));
    assert_eq!(endpoint.connections(), 0);
    assert_eq!(stand.end().0, []);
}

#[test]
fn a_proxys_forms_and_upgrades_are_answered_here() {
    let (endpoint, stand) = stand();
    let host = endpoint.address;
    for (request, status) in [
        (format!("CONNECT {host} HTTP/1.1\r\nhost: {host}\r\n\r\n"), 405),
        (format!("GET http://{host}/v1/models HTTP/1.1\r\nhost: {host}\r\n\r\n"), 404),
        (post(&format!("http://{host}{CHAT}"), TURN), 404),
        (format!("GET {CHAT} HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"), 405),
        (post(CHAT, TURN).replacen("\r\n", "\r\nconnection: upgrade\r\nupgrade: h2c\r\n", 1), 405),
    ] {
        assert_eq!(stand.agent().ask(&request).status, status, "{request}");
    }
    assert_eq!(endpoint.connections(), 0);
    assert_eq!(stand.decisions(5).len(), 5);
}

#[test]
fn another_model_is_refused_before_anything_leaves() {
    let (endpoint, stand) = stand();
    let mut agent = stand.agent();
    let answer = agent.ask(post(CHAT, &TURN.replace("m-1", "m-2")));
    assert_eq!((answer.status, answer.header(STOP)), (403, Some("false")));
    assert!(answer.body.contains("asked for m-1, seen m-2"), "{}", answer.body);
    // Nothing is forwarded after that, not even what was planned.
    assert_eq!(agent.ask(post(CHAT, TURN)).status, 403);
    assert_eq!(endpoint.connections(), 0);
    let decisions = stand.decisions(2);
    let codes: Vec<_> = decisions.iter().map(|d| (d.code.as_str(), d.verdict)).collect();
    assert_eq!(codes, [(network_code::MODEL_MISMATCH, NetworkVerdict::Refused); 2]);
    assert_eq!(decisions[0].detail, "asked for m-1, seen m-2");
}

#[test]
fn another_tool_list_is_refused_before_anything_leaves() {
    let (endpoint, stand) = stand();
    let body = TURN.replace("\"grep\"", "\"write\"");
    let answer = stand.agent().ask(post(CHAT, &body));
    assert_eq!(answer.status, 403);
    // Another connection is refused too.
    assert_eq!(stand.agent().ask(post(CHAT, TITLE)).status, 403);
    assert_eq!(endpoint.connections(), 0);
    let decisions = stand.decisions(2);
    assert_eq!(decisions[0].code, network_code::TOOLSET_MISMATCH);
    assert_eq!(decisions[0].detail, "against class turn: unexpected: write; missing: grep");
    assert_eq!(decisions[1].code, network_code::TOOLSET_MISMATCH);
    assert!(!stand.end().0.iter().any(|f| matches!(f, EventKind::ModelRequest { .. })));
}

#[test]
fn what_cannot_be_read_is_a_bad_request_and_ends_nothing() {
    let (endpoint, stand) = stand();
    let mut agent = stand.agent();
    for body in ["hello", "{\"messages\":[]}", "{\"model\":\"m-1\",\"model\":\"m-2\"}"] {
        assert_eq!(agent.ask(post(CHAT, body)).status, 400, "{body}");
    }
    let compressed = post(CHAT, TURN).replacen("\r\n", "\r\ncontent-encoding: gzip\r\n", 1);
    assert_eq!(stand.agent().ask(compressed).status, 415);
    assert_eq!(endpoint.connections(), 0);
    assert!(stand.decisions(4).iter().all(|d| d.code == network_code::BAD_REQUEST));
    assert_eq!(stand.agent().ask(post(CHAT, TURN)).status, 200);
}

#[test]
fn where_others_reach_the_listener_the_key_of_the_run_is_demanded() {
    let endpoint = Endpoint::answering(ANSWER);
    let mut policy = policy(&endpoint.url());
    policy.placeholder_key = Some(PLACEHOLDER.to_owned());
    let stand = Stand::start(policy);
    let right = post(CHAT, TURN);
    for wrong in [
        right.replace(PLACEHOLDER, "sk-placeholder-of-this-ruN"),
        right.replace(PLACEHOLDER, "sk-placeholder-of-this-run2"),
        right.replace(PLACEHOLDER, KEY),
        right.replace(&format!("authorization: Bearer {PLACEHOLDER}\r\n"), ""),
    ] {
        assert_eq!(stand.agent().ask(wrong).status, 401);
    }
    assert_eq!(endpoint.connections(), 0);
    assert!(stand.decisions(4).iter().all(|d| d.code == network_code::PLACEHOLDER_MISSING));
    assert_eq!(stand.agent().ask(&right).status, 200);
    let in_other_header = right.replace("authorization: Bearer", "x-api-key:");
    assert_eq!(stand.agent().ask(in_other_header).status, 200);
}

#[test]
fn a_flood_of_requests_is_no_flood_of_facts() {
    let (_endpoint, stand) = stand();
    let mut agent = stand.agent();
    for n in 0..250 {
        agent.ask(format!("GET /v1/{n} HTTP/1.1\r\nhost: a\r\n\r\n"));
    }
    let (facts, _) = stand.end();
    assert_eq!(facts.len(), 201);
    assert!(matches!(&facts[200], EventKind::Note { code, .. } if code == "more-not-a-model-call"));
}

/// What a budget refused: the limit, its value and what was measured.
fn limits(stand: &Stand, count: usize) -> Vec<(String, String, String)> {
    stand.wait(count, |fact| match fact {
        EventKind::LimitReached { limit, value, measured } => {
            Some((limit.clone(), value.clone(), measured.clone()))
        }
        _ => None,
    })
}

#[test]
fn a_budget_of_turns_refuses_the_turn_after_the_last_and_counts_no_failures_and_no_titles() {
    let endpoint = Endpoint::start(|got, wire| match got.number {
        0 => respond(wire, "500 Oops", "text/plain", "oops"),
        _ => respond(wire, "200 OK", "application/json", ANSWER),
    });
    let mut policy = policy(&endpoint.url());
    policy.budget.max_turns = Some(2);
    let stand = Stand::start(policy);
    let mut agent = stand.agent();
    let statuses: Vec<u16> =
        [TURN, TITLE, TURN, TURN, TURN, TITLE].map(|body| agent.ask(post(CHAT, body)).status).into();
    assert_eq!(statuses, [500, 200, 200, 200, 403, 200]);
    assert_eq!(endpoint.got().len(), 5);
    assert_eq!(agent.ask(post(CHAT, TURN)).status, 403);
    let measured = "2 turns answered; one more was asked for".to_owned();
    assert_eq!(limits(&stand, 1), [("turns".to_owned(), "2".to_owned(), measured)], "told once");
}

#[test]
fn a_budget_of_tokens_or_money_is_counted_over_all_answers() {
    let price = Price {
        input: Usd::of_millionths(1_000_000),
        cached_input: None,
        cache_write: None,
        output: Usd::of_millionths(2_000_000),
    };
    // Each answer states three tokens sent and two generated: seven millionths of a dollar.
    let cost = Budget { max_cost: Some(Usd::of_millionths(10)), price: Some(price), ..Budget::default() };
    let tokens = Budget { max_tokens: Some(10), ..Budget::default() };
    for (budget, told) in
        [(tokens, ["tokens", "10", "10 tokens"]), (cost, ["cost", "0.00001 USD", "0.000014 USD"])]
    {
        let endpoint = Endpoint::answering(ANSWER);
        let mut policy = policy(&endpoint.url());
        policy.budget = budget;
        let stand = Stand::start(policy);
        let mut agent = stand.agent();
        let statuses = [TURN, TITLE, TITLE].map(|body| agent.ask(post(CHAT, body)).status);
        assert_eq!(statuses, [200, 200, 403]);
        let [limit, value, measured] = told.map(str::to_owned);
        assert_eq!(limits(&stand, 1), [(limit, value, measured)]);
    }
}

#[test]
fn nothing_is_asked_where_tokens_have_to_be_counted_and_an_answer_did_not_state_them() {
    let endpoint = Endpoint::answering(r#"{"model":"m-served","choices":[{"finish_reason":"stop"}]}"#);
    let mut policy = policy(&endpoint.url());
    policy.budget.max_tokens = Some(1_000);
    let stand = Stand::start(policy);
    let mut agent = stand.agent();
    assert_eq!([TURN, TURN].map(|body| agent.ask(post(CHAT, body)).status), [200, 403]);
    assert_eq!(limits(&stand, 1)[0].2, "unknown: the answer to request 1 states no tokens");
}
