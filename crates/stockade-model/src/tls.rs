//! A certificate authority of its own, made anew for each start and forgotten at the end.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::ServerConfig;
use rustls::pki_types::PrivatePkcs8KeyDer;
use tokio_rustls::TlsAcceptor;

use crate::error::ModelError;

/// The names under which a loopback server is called.
const NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// What serving TLS takes.
pub(crate) struct Authority {
    /// The certificate of the authority, as PEM.
    pub(crate) pem: String,
    /// Accepts connections with a certificate of that authority.
    pub(crate) acceptor: TlsAcceptor,
}

impl Authority {
    /// Makes keys and certificates, for these names beside those of loopback. The authority's key is dropped here: nothing more can be signed.
    pub(crate) fn generate(names: &[String]) -> Result<Self, ModelError> {
        let (pem, leaf, key) = certificates(names).map_err(|source| ModelError::Certificate { source })?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| {
                let key = PrivatePkcs8KeyDer::from(key.serialize_der());
                builder.with_no_client_auth().with_single_cert(vec![leaf.der().clone()], key.into())
            })
            .map_err(|source| ModelError::Tls { source })?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { pem, acceptor: TlsAcceptor::from(Arc::new(config)) })
    }

    /// Writes the authority's certificate for everybody to read. An existing file is an error.
    pub(crate) fn write(&self, path: &Path) -> Result<(), ModelError> {
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o644)
            .open(path)
            .and_then(|mut file| file.write_all(self.pem.as_bytes()))
            .map_err(|source| ModelError::AuthorityFile { path: path.to_owned(), source })
    }
}

fn certificates(names: &[String]) -> Result<(String, rcgen::Certificate, KeyPair), rcgen::Error> {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.distinguished_name.push(DnType::CommonName, "Stockade scripted model CA");
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let authority_key = KeyPair::generate()?;
    let pem = authority.self_signed(&authority_key)?.pem();
    let issuer = Issuer::new(authority, authority_key);

    let mut leaf = CertificateParams::new([&NAMES.map(str::to_owned)[..], names].concat())?;
    leaf.distinguished_name.push(DnType::CommonName, "Stockade scripted model");
    leaf.use_authority_key_identifier_extension = true;
    leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let leaf_key = KeyPair::generate()?;
    let leaf = leaf.signed_by(&leaf_key, &issuer)?;
    Ok((pem, leaf, leaf_key))
}
