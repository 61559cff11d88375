//! The gateway ends when it is told to, whatever the others do.

use std::{
    net::TcpListener,
    time::{Duration, Instant},
};

use stockade_core::event::{EventKind, failure_code};
use stockade_gateway::{Gateway, GatewayError};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::mpsc,
};

use crate::support::{ANSWER, After, CHAT, Endpoint, Stand, TURN, pause, policy, post};

#[test]
fn an_endpoint_that_never_answers_does_not_hold_the_end() {
    let endpoint = Endpoint::start(|_, _| {
        pause(30_000);
        After::Close
    });
    let stand = Stand::start(policy(&endpoint.url()));
    let mut agent = stand.agent();
    agent.send(post(CHAT, TURN));
    while endpoint.got().is_empty() {
        pause(5);
    }
    let (facts, took) = stand.end();
    assert!(took < Duration::from_millis(500), "{took:?}");
    assert!(
        matches!(&facts[1], EventKind::ModelResponse { failure: Some(f), cut: false, .. } if f == failure_code::ABANDONED),
        "{facts:?}"
    );
    assert!(agent.closed());
}

#[test]
fn idle_connections_do_not_hold_the_end_and_the_port_is_free_after_it() {
    let endpoint = Endpoint::answering(ANSWER);
    let stand = Stand::start(policy(&endpoint.url()));
    let address = stand.address;
    let mut agent = stand.agent();
    agent.ask(post(CHAT, TURN));
    let mut half = stand.agent();
    half.send("POST /v1/chat");
    let (_, took) = stand.end();
    assert!(took < Duration::from_millis(500), "{took:?}");
    assert!(agent.closed() && half.closed());
    assert!(std::net::TcpStream::connect(address).is_err());
}

#[tokio::test(flavor = "current_thread")]
async fn facts_that_nobody_reads_hold_requests_but_not_the_end() {
    let endpoint = Endpoint::answering(ANSWER);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, mut receiver) = mpsc::channel(1);
    let gateway = Gateway::start(policy(&endpoint.url()), listener, None, None, sender).unwrap();

    let mut agent = TcpStream::connect(address).await.unwrap();
    agent.write_all(post(CHAT, TURN).as_bytes()).await.unwrap();
    // The request's fact fills the channel, the answer's waits for room, and so does the answer's end.
    let mut answer = Vec::new();
    let whole = tokio::time::timeout(Duration::from_millis(300), agent.read_to_end(&mut answer)).await;
    assert!(whole.is_err(), "the connection is kept open");

    let before = Instant::now();
    gateway.shutdown().await;
    assert!(before.elapsed() < Duration::from_millis(500), "{:?}", before.elapsed());
    assert!(matches!(receiver.recv().await, Some(EventKind::ModelRequest { .. })));
    assert_eq!(receiver.recv().await, None);
}

#[tokio::test(flavor = "current_thread")]
async fn dropping_the_gateway_ends_it() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, mut receiver) = mpsc::channel(1);
    drop(Gateway::start(policy("http://127.0.0.1:1/v1"), listener, None, None, sender).unwrap());
    assert_eq!(receiver.recv().await, None);
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test(flavor = "current_thread")]
async fn a_policy_that_cannot_work_is_refused_at_the_start() {
    let start = |change: fn(&mut stockade_gateway::ModelPolicy)| {
        let mut policy = policy("http://127.0.0.1:1/v1");
        change(&mut policy);
        let (sender, _receiver) = mpsc::channel(1);
        Gateway::start(policy, TcpListener::bind("127.0.0.1:0").unwrap(), None, None, sender).unwrap_err()
    };
    assert!(matches!(start(|p| p.models.clear()), GatewayError::Empty("model")));
    assert!(matches!(start(|p| p.classes.clear()), GatewayError::Empty("request class")));
    assert!(matches!(start(|p| p.model_paths.clear()), GatewayError::Empty("model path")));
    assert!(matches!(start(|p| p.base_path = "/v2".to_owned()), GatewayError::ModelPath { .. }));
    assert!(matches!(
        start(|p| p.stop_header = Some(("a b".to_owned(), "c".to_owned()))),
        GatewayError::StopHeader { .. }
    ));
    let error = start(|p| p.stop_status = Some(503));
    assert!(matches!(error, GatewayError::StopStatus { status: 503 }));
    let error = start(|p| p.credential.as_mut().unwrap().secret = "key\nwith a line".to_owned().into());
    assert!(matches!(error, GatewayError::Credential));
    assert!(!format!("{error:?} {error}").contains("with a line"));
}
