//! A gateway on a thread of its own, an endpoint and an agent that speak raw bytes.

mod agent;
mod endpoint;

use std::{
    net::{SocketAddr, TcpListener, UdpSocket},
    sync::{Arc, Mutex},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use secrecy::SecretString;
use stockade_core::{
    budget::Budget,
    event::{EventKind, NetworkVerdict},
    profile::{CredentialHeader, SideRequest},
};
use stockade_gateway::{Activity, Credential, Egress, EgressTotals, Gateway, ModelPolicy, Upstream};
use tokio::sync::{mpsc, oneshot};

pub(crate) use agent::Agent;
pub(crate) use endpoint::{After, Endpoint, Wire, chunk, respond};

pub(crate) const KEY: &str = "sk-real-0123456789abcdef";
pub(crate) const PLACEHOLDER: &str = "sk-placeholder-of-this-run";
pub(crate) const CHAT: &str = "/v1/chat/completions";
pub(crate) const STOP: &str = "x-should-retry";
pub(crate) const TURN: &str = r#"{"model":"m-1","messages":[],"tools":[{"type":"function","function":{"name":"read_file"}},{"type":"function","function":{"name":"grep"}}],"stream":true,"reasoning_effort":"low"}"#;
pub(crate) const TITLE: &str = r#"{"model":"m-1","tools":[{"function":{"name":"session_title"}}]}"#;
pub(crate) const ANSWER: &str = r#"{"model":"m-served","choices":[{"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}"#;

/// A policy like Grok's towards an endpoint at `url`.
pub(crate) fn policy(url: &str) -> ModelPolicy {
    let names = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
    ModelPolicy {
        upstream: Upstream::parse(url).unwrap(),
        base_path: "/v1".to_owned(),
        credential: Some(Credential { header: CredentialHeader::Bearer, secret: SecretString::from(KEY) }),
        extra_ca_pem: None,
        model_paths: vec![CHAT.to_owned()],
        models: names(&["m-1"]),
        classes: vec![
            ("turn".to_owned(), names(&["read_file", "grep"])),
            ("title".to_owned(), names(&["session_title"])),
        ],
        side_requests: vec![SideRequest { method: "GET".to_owned(), path: "/".to_owned(), status: 200 }],
        failures_before_stop: 2,
        stop_header: Some((STOP.to_owned(), "false".to_owned())),
        stop_status: None,
        budget: Budget::default(),
        placeholder_key: None,
    }
}

/// A running gateway and what it has told.
pub(crate) struct Stand {
    pub(crate) address: SocketAddr,
    pub(crate) names: SocketAddr,
    pub(crate) activity: Arc<Activity>,
    facts: Arc<Mutex<Vec<EventKind>>>,
    end: oneshot::Sender<()>,
    thread: JoinHandle<(Duration, Option<EgressTotals>)>,
}

impl Stand {
    pub(crate) fn start(policy: ModelPolicy) -> Self {
        Self::with_egress(policy, None)
    }

    /// A gateway whose egress listener lets through what is listed, and where that listens.
    pub(crate) fn allowing(listed: &[&str]) -> (Self, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let allowed = listed.iter().map(|text| text.parse().unwrap()).collect();
        let stand = Self::with_egress(policy("http://127.0.0.1:1/v1"), Some(Egress { listener, allowed }));
        (stand, address)
    }

    fn with_egress(policy: ModelPolicy, egress: Option<Egress>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (address, names) = (listener.local_addr().unwrap(), socket.local_addr().unwrap());
        let facts = Arc::new(Mutex::new(Vec::new()));
        let (end, ended) = oneshot::channel();
        let (ready, started) = std::sync::mpsc::channel();
        let kept = Arc::clone(&facts);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let (sender, mut receiver) = mpsc::channel(4);
                let gateway = Gateway::start(policy, listener, Some(socket), egress, sender).unwrap();
                ready.send(gateway.activity()).unwrap();
                let reader = tokio::spawn(async move {
                    while let Some(fact) = receiver.recv().await {
                        kept.lock().unwrap().push(fact);
                    }
                });
                ended.await.unwrap();
                let before = Instant::now();
                let totals = gateway.shutdown().await;
                let took = before.elapsed();
                // Ends only if nothing of the gateway keeps a sender.
                reader.await.unwrap();
                (took, totals)
            })
        });
        let activity = started.recv().unwrap();
        Self { address, names, activity, facts, end, thread }
    }

    pub(crate) fn agent(&self) -> Agent {
        Agent::connect(self.address)
    }

    /// Waits until `count` facts of a kind have been told and returns those.
    pub(crate) fn wait<T>(&self, count: usize, pick: impl Fn(&EventKind) -> Option<T>) -> Vec<T> {
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            let found: Vec<T> = self.facts.lock().unwrap().iter().filter_map(&pick).collect();
            if found.len() >= count {
                return found;
            }
            assert!(Instant::now() < deadline, "waited for {count}: {:#?}", self.facts.lock().unwrap());
            pause(5);
        }
    }

    pub(crate) fn responses(&self, count: usize) -> Vec<EventKind> {
        self.wait(count, |f| matches!(f, EventKind::ModelResponse { .. }).then(|| f.clone()))
    }

    pub(crate) fn decisions(&self, count: usize) -> Vec<Told> {
        self.wait(count, Told::of)
    }

    /// Ends the gateway; returns every fact and how long the end took.
    pub(crate) fn end(self) -> (Vec<EventKind>, Duration) {
        self.end.send(()).unwrap();
        let (took, _) = self.thread.join().unwrap();
        (std::mem::take(&mut self.facts.lock().unwrap()), took)
    }

    /// Ends the gateway; returns what went through its egress listener.
    pub(crate) fn totals(self) -> EgressTotals {
        self.end.send(()).unwrap();
        self.thread.join().unwrap().1.unwrap()
    }
}

/// A network decision without its kind.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) code: String,
    pub(crate) verdict: NetworkVerdict,
    pub(crate) target: String,
    pub(crate) detail: String,
}

impl Told {
    pub(crate) fn of(fact: &EventKind) -> Option<Self> {
        match fact.clone() {
            EventKind::NetworkDecision { target, verdict, code, detail } => {
                Some(Self { code, verdict, target, detail })
            }
            _ => None,
        }
    }
}

/// A request with the agent's own headers.
pub(crate) fn post(path: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: 127.0.0.1:8080\r\ncontent-type: application/json\r\nauthorization: Bearer {PLACEHOLDER}\r\n\
         x-grok-req-id: r-1\r\naccept-encoding: gzip\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

#[expect(clippy::disallowed_methods, reason = "raw endpoints and agents keep time on threads of their own")]
pub(crate) fn pause(milliseconds: u64) {
    std::thread::sleep(Duration::from_millis(milliseconds));
}
