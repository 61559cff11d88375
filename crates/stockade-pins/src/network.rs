//! How the registry is reached: address, proxy and certificates.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls_native_certs::{CertificateResult, load_certs_from_paths, load_native_certs};
use ureq::http::Uri;
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::{Agent, Proxy, ProxyProtocol};

use crate::error::{PinError, PinErrorKind, Step};

/// The public npm registry.
pub const NPM_REGISTRY: &str = "https://registry.npmjs.org";

const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// No byte for this long means the connection is dead.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
const WHOLE_TIMEOUT: Duration = Duration::from_secs(60 * 60);
/// A mirror may point to its storage, and that to a nearer one.
const MAX_REDIRECTS: u32 = 5;

/// How to reach the registry. The caller fills in what it read from its flags and its environment.
#[derive(Clone)]
pub struct Network {
    /// The registry's base address: HTTPS, or plain HTTP to a loopback address.
    pub registry: String,
    /// The proxy for HTTPS, as in `HTTPS_PROXY`; none means a direct connection.
    pub https_proxy: Option<String>,
    /// Hosts reached without the proxy, separated by commas, as in `NO_PROXY`; a name also means the names below it.
    pub no_proxy: Option<String>,
    /// A file of certificates to trust instead of the system's, as in `SSL_CERT_FILE`.
    pub ssl_cert_file: Option<PathBuf>,
    /// Folders of certificates to trust instead of the system's, separated by colons, as in `SSL_CERT_DIR`.
    pub ssl_cert_dir: Option<OsString>,
}

impl Default for Network {
    fn default() -> Self {
        Self {
            registry: NPM_REGISTRY.to_owned(),
            https_proxy: None,
            no_proxy: None,
            ssl_cert_file: None,
            ssl_cert_dir: None,
        }
    }
}

impl std::fmt::Debug for Network {
    /// Leaves out the proxy's address: it may hold a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Network")
            .field("registry", &self.registry)
            .field("has_proxy", &self.https_proxy.is_some())
            .finish_non_exhaustive()
    }
}

/// Whether the way to the registry is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    Https,
    LoopbackHttp,
}

impl Network {
    /// The address of a tarball.
    pub(crate) fn url(&self, registry_path: &str) -> String {
        format!("{}/{registry_path}", self.registry.trim_end_matches('/'))
    }

    /// A client for this registry.
    pub(crate) fn agent(&self) -> Result<Agent, PinError> {
        let scheme = self.scheme()?;
        let builder = Agent::config_builder()
            .user_agent(concat!("stockade/", env!("CARGO_PKG_VERSION")))
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_recv_response(Some(ANSWER_TIMEOUT))
            .timeout_per_read(Some(READ_TIMEOUT))
            .timeout_global(Some(WHOLE_TIMEOUT));
        let config = match scheme {
            Scheme::Https => builder
                .https_only(true)
                .max_redirects(MAX_REDIRECTS)
                .proxy(self.proxy()?)
                .tls_config(self.tls()?)
                .build(),
            // Nothing may lead from a loopback server to another host in the clear.
            Scheme::LoopbackHttp => {
                builder.max_redirects(0).max_redirects_will_error(false).proxy(None).build()
            }
        };
        Ok(config.new_agent())
    }

    fn scheme(&self) -> Result<Scheme, PinError> {
        let wrong = |detail: &str| {
            PinError::new(
                PinErrorKind::Usage,
                Step::ReadRequest,
                format!("the registry address `{}` {detail}", self.registry),
            )
        };
        let uri: Uri = self.registry.parse().map_err(|_| wrong("is no address"))?;
        let authority = uri.authority().ok_or_else(|| wrong("names no host"))?;
        if authority.as_str().contains('@') {
            return Err(PinError::new(
                PinErrorKind::Usage,
                Step::ReadRequest,
                "the registry address must not hold a user name or a password",
            ));
        }
        if uri.query().is_some() {
            return Err(wrong("must not hold a query"));
        }
        match uri.scheme_str() {
            Some("https") => Ok(Scheme::Https),
            Some("http") if is_loopback(authority.host()) => Ok(Scheme::LoopbackHttp),
            Some("http") => Err(wrong("is plain HTTP to another machine").hinted("use an https:// address")),
            _ => Err(wrong("is not HTTPS")),
        }
    }

    fn proxy(&self) -> Result<Option<Proxy>, PinError> {
        let Some(address) = self.https_proxy.as_deref().filter(|address| !address.is_empty()) else {
            return Ok(None);
        };
        // The address itself stays out of the message: it may hold a password.
        let wrong = |detail: &str| {
            PinError::new(PinErrorKind::Usage, Step::ReadRequest, detail)
                .hinted("HTTPS_PROXY has the form http://HOST:PORT or https://HOST:PORT")
        };
        let proxy = Proxy::new(address).map_err(|_| wrong("the HTTPS proxy is no address"))?;
        if !matches!(proxy.protocol(), ProxyProtocol::Http | ProxyProtocol::Https) {
            return Err(wrong("the HTTPS proxy is not an HTTP or HTTPS one"));
        }
        let mut builder = Proxy::builder(proxy.protocol()).host(proxy.host()).port(proxy.port());
        if let Some(name) = proxy.username() {
            builder = builder.username(name).password(proxy.password().unwrap_or_default());
        }
        for host in no_proxy_hosts(self.no_proxy.as_deref().unwrap_or_default()) {
            builder = builder.no_proxy(&host);
        }
        builder.build().map(Some).map_err(|_| wrong("the HTTPS proxy is no address"))
    }

    fn tls(&self) -> Result<TlsConfig, PinError> {
        let found = self.certificates()?;
        let certificates: Vec<Certificate<'static>> =
            found.certs.iter().map(|der| Certificate::from_der(der.as_ref()).to_owned()).collect();
        Ok(TlsConfig::builder()
            .root_certs(RootCerts::new_with_certs(&certificates))
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .build())
    }

    /// Every certificate of the named places, or the system's where none is named; none at all is an error.
    fn certificates(&self) -> Result<CertificateResult, PinError> {
        let folders: Vec<PathBuf> = self
            .ssl_cert_dir
            .iter()
            .flat_map(std::env::split_paths)
            .filter(|folder| !folder.as_os_str().is_empty())
            .collect();
        let named = self.ssl_cert_file.is_some() || !folders.is_empty();
        let mut found = if named {
            load_certs_from_paths(self.ssl_cert_file.as_deref(), None)
        } else {
            load_native_certs()
        };
        for folder in &folders {
            let more = load_certs_from_paths(None, Some(folder));
            found.certs.extend(more.certs);
            found.errors.extend(more.errors);
        }
        if !found.certs.is_empty() {
            return Ok(found);
        }
        let reason =
            found.errors.first().map_or_else(|| "no certificate found".to_owned(), ToString::to_string);
        let kind = if named { PinErrorKind::Usage } else { PinErrorKind::Unreachable };
        let error = PinError::new(kind, Step::ReadCertificates, reason)
            .hinted("install ca-certificates, or name a file of certificates in SSL_CERT_FILE");
        Err(match self.ssl_cert_file.as_deref().or(folders.first().map(PathBuf::as_path)) {
            Some(path) => error.at(path),
            None => error.at(Path::new("/etc/ssl/certs")),
        })
    }
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare == "localhost" || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The entries of `NO_PROXY` as the client wants them: each name itself, and every name below it.
fn no_proxy_hosts(list: &str) -> Vec<String> {
    let mut hosts = Vec::new();
    for entry in list.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        if entry == "*" {
            hosts.push(entry.to_owned());
            continue;
        }
        let name = entry.trim_start_matches('*').trim_start_matches('.');
        hosts.push(name.to_owned());
        hosts.push(format!(".{name}"));
    }
    hosts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_is_for_loopback_only() {
        for (registry, good) in [
            ("https://registry.npmjs.org", true),
            ("http://127.0.0.1:4873/npm", true),
            ("http://[::1]:4873", true),
            ("http://localhost:4873", true),
            ("http://registry.npmjs.org", false),
            ("http://127.0.0.1.example.org", false),
            ("ftp://registry.npmjs.org", false),
            ("file:///etc/passwd", false),
            ("https://name:secret@registry.npmjs.org", false),
            ("https://registry.npmjs.org/?x=", false),
            ("", false),
        ] {
            let network = Network { registry: registry.to_owned(), ..Network::default() };
            assert_eq!(network.scheme().is_ok(), good, "{registry}");
        }
    }

    #[test]
    fn passwords_stay_out_of_messages() {
        let registry = "https://name:secret@example.org".to_owned();
        let error = Network { registry, ..Network::default() }.scheme().unwrap_err();
        assert!(!error.to_string().contains("secret"));
        let proxy = Some("socks5://name:secret@example.org".to_owned());
        let network = Network { https_proxy: proxy, ..Network::default() };
        assert!(!network.proxy().unwrap_err().to_string().contains("secret"));
        assert!(!format!("{network:?}").contains("secret"));
    }

    #[test]
    fn no_proxy_means_a_name_and_what_is_below_it() {
        assert_eq!(
            no_proxy_hosts("a.org, .b.org ,,*.c.org"),
            ["a.org", ".a.org", "b.org", ".b.org", "c.org", ".c.org"]
        );
        let network = Network {
            https_proxy: Some("http://u:p%40@proxy:3128".to_owned()),
            no_proxy: Some("npmjs.org".to_owned()),
            ..Network::default()
        };
        let proxy = network.proxy().unwrap().unwrap();
        assert!(proxy.is_no_proxy(&"https://registry.npmjs.org/x".parse().unwrap()));
        assert!(!proxy.is_no_proxy(&"https://notnpmjs.org/x".parse().unwrap()));
        assert_eq!((proxy.host(), proxy.port(), proxy.password()), ("proxy", 3128, Some("p@")));
    }

    #[test]
    fn an_unreadable_certificate_file_is_named() {
        let file = Some(PathBuf::from("/nonexistent/ca.pem"));
        let error = Network { ssl_cert_file: file, ..Network::default() }.certificates().unwrap_err();
        assert_eq!(
            (error.kind(), error.path()),
            (PinErrorKind::Usage, Some(Path::new("/nonexistent/ca.pem")))
        );
    }
}
