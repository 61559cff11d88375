//! TLS under the model's own authority.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::harness::{Client, Model, turn};

fn connector(roots: RootCertStore) -> TlsConnector {
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

async fn tls_model() -> (Model, RootCertStore) {
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    let model = Model::start_with(r#"{"text":"over TLS"}"#, |options| {
        options.tls = true;
        options.ca_out = Some(ca.clone());
    })
    .await;
    assert_eq!(std::fs::metadata(&ca).unwrap().permissions().mode() & 0o777, 0o644);
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&ca).unwrap()).unwrap();
    (model, roots)
}

#[tokio::test]
async fn a_client_that_trusts_the_authority_is_served_under_every_loopback_name() {
    let (model, roots) = tls_model().await;
    assert_eq!(model.url, format!("https://{}/v1", model.address));
    for name in ["localhost", "127.0.0.1", "::1"] {
        let stream = TcpStream::connect(model.address).await.unwrap();
        let stream =
            connector(roots.clone()).connect(ServerName::try_from(name).unwrap(), stream).await.unwrap();
        let (send, connection) = handshake(TokioIo::new(stream)).await.unwrap();
        let mut client = Client::over(send, tokio::spawn(connection));
        assert_eq!(client.post(&turn(0)).await.unwrap().text(), "over TLS");
        assert_eq!(client.post(&turn(0)).await.unwrap().text(), "over TLS");
    }
    assert_eq!(model.requests().len(), 6);
}

#[tokio::test]
async fn other_names_other_authorities_and_plain_http_get_nowhere() {
    let (model, roots) = tls_model().await;
    let (_, foreign) = tls_model().await;
    for (name, roots) in [("example.org", roots), ("localhost", foreign)] {
        let stream = TcpStream::connect(model.address).await.unwrap();
        let error = connector(roots).connect(ServerName::try_from(name).unwrap(), stream).await.unwrap_err();
        assert!(error.to_string().contains("certificate"), "{name}: {error}");
    }
    model.connect().await.post(&turn(0)).await.unwrap_err();
    assert!(model.requests().is_empty());
}
