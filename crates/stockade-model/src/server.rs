//! Listening and accepting.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::answer::{Stage, handle};
use crate::control::{Control, Holds};
use crate::error::ModelError;
use crate::log::Log;
use crate::scenario::Scenario;
use crate::tls::Authority;

/// How many connections are served at once; more wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 64;
/// How long a client may take to agree on TLS.
const HANDSHAKE_WAIT: Duration = Duration::from_secs(10);
/// The pause after a connection could not be accepted for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How to serve a scenario.
#[derive(Clone)]
pub struct ServeOptions {
    /// Where to listen; port 0 takes a free one. Any address that is not on loopback is refused.
    pub listen: SocketAddr,
    /// Whether to speak TLS, under an authority made for this start.
    pub tls: bool,
    /// Further names of the certificate, beside those of loopback.
    pub tls_names: Vec<String>,
    /// Where to write the authority's certificate (PEM, 0644). Must not exist; needs `tls`.
    pub ca_out: Option<PathBuf>,
    /// The control socket to make (0600). Must not exist; removed at the end.
    pub control: Option<PathBuf>,
    /// The log to write (0600: it holds authorizations). Must not exist.
    pub log: Option<PathBuf>,
    /// The key that completions and the list of models demand as bearer token; without one, anything goes.
    pub api_key: Option<String>,
    /// The values for `{{name}}` in the scenario.
    pub variables: BTreeMap<String, String>,
}

impl ServeOptions {
    /// Plain HTTP on a free port of 127.0.0.1, with nothing else.
    pub fn new() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            tls: false,
            tls_names: Vec::new(),
            ca_out: None,
            control: None,
            log: None,
            api_key: None,
            variables: BTreeMap::new(),
        }
    }
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// Leaves the key out.
impl fmt::Debug for ServeOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ServeOptions")
            .field("listen", &self.listen)
            .field("tls", &self.tls)
            .field("tls_names", &self.tls_names)
            .field("ca_out", &self.ca_out)
            .field("control", &self.control)
            .field("log", &self.log)
            .field("variables", &self.variables)
            .finish_non_exhaustive()
    }
}

/// Where the model can be reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Ready {
    /// The bound address.
    pub address: SocketAddr,
    /// The base URL to give to an agent.
    pub url: String,
}

/// Serves a scenario until `stop` completes. `ready` is called once, when connections are accepted and certificate
/// file, log and control socket are there.
pub async fn serve(
    scenario: Scenario,
    options: ServeOptions,
    ready: impl FnOnce(Ready),
    stop: impl Future<Output = ()>,
) -> Result<(), ModelError> {
    let (failure, mut failed) = mpsc::channel(1);
    let scenario = scenario.with_variables(&options.variables)?;
    let (listener, address) = listen(options.listen).await?;
    let authority = authority(&options)?;
    let log = Log::create(options.log.as_deref(), failure)?;
    let holds = Arc::new(Holds::new(&scenario));
    let control = options.control.as_deref().map(Control::bind).transpose()?;
    let stage = Arc::new(Stage {
        scenario,
        holds: Arc::clone(&holds),
        log,
        api_key: options.api_key,
        requests: AtomicU64::new(0),
    });

    let scheme = if authority.is_some() { "https" } else { "http" };
    ready(Ready { address, url: format!("{scheme}://{address}/v1") });
    let control = async {
        match &control {
            Some(control) => control.serve(holds).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = stop => Ok(()),
        failure = accept(&listener, authority.map(|authority| authority.acceptor), &stage) => Err(failure),
        failure = control => Err(failure),
        Some(failure) = failed.recv() => Err(failure),
    }
}

async fn listen(wanted: SocketAddr) -> Result<(TcpListener, SocketAddr), ModelError> {
    if !wanted.ip().is_loopback() {
        return Err(ModelError::NotLoopback { address: wanted });
    }
    let failed = |source| ModelError::Listen { address: wanted, source };
    let listener = TcpListener::bind(wanted).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

fn authority(options: &ServeOptions) -> Result<Option<Authority>, ModelError> {
    match (options.tls, &options.ca_out) {
        (false, Some(path)) => Err(ModelError::AuthorityWithoutTls { path: path.clone() }),
        (false, None) => Ok(None),
        (true, path) => {
            let authority = Authority::generate(&options.tls_names)?;
            if let Some(path) = path {
                authority.write(path)?;
            }
            Ok(Some(authority))
        }
    }
}

/// Accepts connections until this is dropped, which ends all of them, or the listener fails.
async fn accept(listener: &TcpListener, tls: Option<TlsAcceptor>, stage: &Arc<Stage>) -> ModelError {
    let mut connections = JoinSet::new();
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut number: u64 = 0;
    loop {
        while connections.try_join_next().is_some() {}
        // Never closed, so an error cannot come.
        let place = Arc::clone(&places).acquire_owned().await.ok();
        match listener.accept().await {
            Ok((stream, _)) => {
                number = number.saturating_add(1);
                let (tls, stage) = (tls.clone(), Arc::clone(stage));
                connections.spawn(async move {
                    connect(stream, tls, stage, number).await;
                    drop(place);
                });
            }
            Err(error) if is_passing(&error) => tokio::time::sleep(ACCEPT_PAUSE).await,
            Err(source) => return ModelError::Accept { source },
        }
    }
}

/// Whether a failed accept says nothing about the listener itself (accept(2), "Error handling").
fn is_passing(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(
        errno,
        Some(
            Errno::CONNABORTED
                | Errno::INTR
                | Errno::MFILE
                | Errno::NFILE
                | Errno::NOBUFS
                | Errno::NOMEM
                | Errno::PROTO
        )
    )
}

async fn connect(stream: TcpStream, tls: Option<TlsAcceptor>, stage: Arc<Stage>, number: u64) {
    // Without it a byte-by-byte answer comes in lumps; with it refused, it only comes in lumps.
    drop(stream.set_nodelay(true));
    match tls {
        None => serve_http(stream, stage, number).await,
        Some(tls) => {
            if let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE_WAIT, tls.accept(stream)).await {
                serve_http(stream, stage, number).await;
            }
        }
    }
}

async fn serve_http<S: AsyncRead + AsyncWrite + Unpin>(stream: S, stage: Arc<Stage>, number: u64) {
    let service = service_fn(move |request| handle(Arc::clone(&stage), number, request));
    // A connection that breaks, or is broken by the scenario, ends here; the log has told about its requests.
    drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
}
