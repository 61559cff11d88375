//! TLS towards the endpoint.

use std::sync::Arc;

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

fn authorities(extra_pem: Option<&[u8]>) -> Result<RootCertStore, GatewayError> {
    let mut store = RootCertStore::empty();
    if let Some(pem) = extra_pem {
        let unusable = |reason: String| GatewayError::ExtraAuthorities { reason };
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|e| unusable(e.to_string()))?;
            store.add(certificate).map_err(|e| unusable(e.to_string()))?;
        }
        if store.is_empty() {
            return Err(unusable("no certificate found".to_owned()));
        }
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
