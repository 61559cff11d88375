//! TLS towards the endpoint, and whom it trusts.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tokio_rustls::TlsConnector;

use crate::{error::GatewayError, upstream::Upstream};

/// TLS for one endpoint.
#[derive(Clone)]
pub(crate) struct Tls {
    pub(crate) connector: TlsConnector,
    pub(crate) name: ServerName<'static>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Tls {
    /// Trusts the system's certificates and the given ones.
    pub(crate) fn new(upstream: &Upstream, extra_pem: Option<&[u8]>) -> Result<Self, GatewayError> {
        let name = ServerName::try_from(upstream.host().to_owned())
            .map_err(|_| GatewayError::ServerName { host: upstream.host().to_owned() })?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(GatewayError::Tls)?
            .with_root_certificates(authorities(extra_pem)?)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), name })
    }
}

/// The certificates that the gateway trusts, as a PEM file for others: the given ones and the system's.
pub fn authorities_pem(extra_pem: &[u8]) -> Result<Vec<u8>, GatewayError> {
    let mut certificates = extra(extra_pem)?;
    certificates.extend(rustls_native_certs::load_native_certs().certs);
    let mut file = Vec::new();
    for certificate in &certificates {
        file.extend_from_slice(b"-----BEGIN CERTIFICATE-----\n");
        // Lines of 64 characters (RFC 7468, 2).
        for line in STANDARD.encode(certificate).as_bytes().chunks(64) {
            file.extend_from_slice(line);
            file.push(b'\n');
        }
        file.extend_from_slice(b"-----END CERTIFICATE-----\n");
    }
    Ok(file)
}

/// The certificates of a PEM file that the caller named, each of them usable.
fn extra(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, GatewayError> {
    let unusable = |reason: String| GatewayError::ExtraAuthorities { reason };
    let mut certificates = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|e| unusable(e.to_string()))?;
        RootCertStore::empty().add(certificate.clone()).map_err(|e| unusable(e.to_string()))?;
        certificates.push(certificate);
    }
    if certificates.is_empty() {
        return Err(unusable("no certificate found".to_owned()));
    }
    Ok(certificates)
}

fn authorities(extra_pem: Option<&[u8]>) -> Result<RootCertStore, GatewayError> {
    let mut store = RootCertStore::empty();
    if let Some(pem) = extra_pem {
        store.add_parsable_certificates(extra(pem)?);
    }
    let system = rustls_native_certs::load_native_certs();
    store.add_parsable_certificates(system.certs);
    if store.is_empty() {
        let reason =
            system.errors.first().map_or_else(|| "the system has none".to_owned(), ToString::to_string);
        return Err(GatewayError::NoAuthorities { reason });
    }
    Ok(store)
}
