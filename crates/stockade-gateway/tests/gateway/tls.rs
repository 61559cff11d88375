//! TLS towards the endpoint.

use std::{net::TcpListener, sync::Arc};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer},
};
use stockade_core::event::{EventKind, failure_code};
use stockade_gateway::{Gateway, GatewayError};

use crate::support::{ANSWER, CHAT, Endpoint, KEY, Stand, TURN, Wire, policy, post, respond};

pub(crate) struct Authority {
    pub(crate) pem: Vec<u8>,
    pub(crate) config: Arc<ServerConfig>,
}

pub(crate) fn authority(name: &str) -> Authority {
    let ca_key = KeyPair::generate().unwrap();
    let mut ca = CertificateParams::new(Vec::new()).unwrap();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_certificate = ca.self_signed(&ca_key).unwrap();
    let issuer = Issuer::new(ca, ca_key);
    let key = KeyPair::generate().unwrap();
    let certificate =
        CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from(certificate.der().to_vec())],
            PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
        .unwrap();
    Authority { pem: ca_certificate.pem().into_bytes(), config: Arc::new(config) }
}

pub(crate) fn endpoint(config: Arc<ServerConfig>) -> Endpoint {
    Endpoint::start_over(
        move |tcp| {
            let connection = ServerConnection::new(Arc::clone(&config)).ok()?;
            let wire: Box<dyn Wire> = Box::new(StreamOwned::new(connection, tcp));
            Some(wire)
        },
        |_, wire| respond(wire, "200 OK", "application/json", ANSWER),
    )
}

fn failure(stand: &Stand) -> (String, String) {
    match &stand.responses(1)[0] {
        EventKind::ModelResponse { status: None, failure: Some(code), error: Some(text), .. } => {
            (code.clone(), text.clone())
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_private_authority_is_trusted_when_given() {
    let authority = authority("localhost");
    let endpoint = endpoint(authority.config);
    let mut policy = policy(&format!("https://localhost:{}/v1", endpoint.address.port()));
    policy.extra_ca_pem = Some(authority.pem);
    let stand = Stand::start(policy);
    let mut agent = stand.agent();
    for _ in 0..2 {
        assert_eq!(agent.ask(post(CHAT, TURN)).body, ANSWER);
    }
    let got = endpoint.got();
    assert_eq!(got[0].header("authorization"), Some(format!("Bearer {KEY}").as_str()));
    assert_eq!((got.len(), endpoint.connections()), (2, 1), "one handshake");
}

#[test]
fn an_address_can_be_vouched_for() {
    let authority = authority("127.0.0.1");
    let endpoint = endpoint(authority.config);
    let mut policy = policy(&format!("https://127.0.0.1:{}/v1", endpoint.address.port()));
    policy.extra_ca_pem = Some(authority.pem);
    assert_eq!(Stand::start(policy).agent().ask(post(CHAT, TURN)).status, 200);
}

#[test]
fn an_unknown_authority_is_a_tls_failure_and_the_key_stays() {
    let endpoint = endpoint(authority("localhost").config);
    let mut policy = policy(&format!("https://localhost:{}/v1", endpoint.address.port()));
    // Another one, so that the test does not depend on the system's.
    policy.extra_ca_pem = Some(authority("localhost").pem);
    let stand = Stand::start(policy);
    assert_eq!(stand.agent().ask(post(CHAT, TURN)).status, 502);
    let (code, text) = failure(&stand);
    assert_eq!(code, failure_code::TLS);
    assert!(text.contains("certificate"), "{text}");
    assert_eq!(endpoint.got().len(), 0);
}

#[test]
fn a_certificate_for_another_name_is_a_tls_failure() {
    let authority = authority("example.com");
    let endpoint = endpoint(authority.config);
    let mut policy = policy(&format!("https://localhost:{}/v1", endpoint.address.port()));
    policy.extra_ca_pem = Some(authority.pem);
    let stand = Stand::start(policy);
    assert_eq!(stand.agent().ask(post(CHAT, TURN)).status, 502);
    assert_eq!(failure(&stand).0, failure_code::TLS);
}

#[test]
fn plain_http_behind_https_is_a_tls_failure() {
    let endpoint = Endpoint::answering(ANSWER);
    let mut policy = policy(&format!("https://localhost:{}/v1", endpoint.address.port()));
    policy.extra_ca_pem = Some(authority("localhost").pem);
    let stand = Stand::start(policy);
    // The endpoint waits for a request that is none: it never answers the handshake and is given up after the limit.
    let answer = stand.agent().ask(post(CHAT, TURN));
    assert_eq!(answer.status, 502);
    assert_eq!(failure(&stand).0, failure_code::TLS);
}

#[tokio::test(flavor = "current_thread")]
async fn unusable_certificates_are_named_at_the_start() {
    for pem in ["", "hello", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        let mut policy = policy("https://localhost:1/v1");
        policy.extra_ca_pem = Some(pem.as_bytes().to_vec());
        let (sender, _receiver) = tokio::sync::mpsc::channel(1);
        let started = Gateway::start(policy, TcpListener::bind("127.0.0.1:0").unwrap(), None, None, sender);
        assert!(matches!(started, Err(GatewayError::ExtraAuthorities { .. })), "{pem:?}: {started:?}");
    }
}
