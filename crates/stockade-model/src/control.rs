//! Holds, and the control socket by which they are released.
//!
//! The protocol is one line each way: `release NAME` is answered by `ok` or by `error` with the reason. A name that
//! has been released stays so: an answer that reaches its hold later does not stop.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::error::ModelError;
use crate::scenario::Scenario;

/// Longer than any line the protocol has.
const MAX_LINE_BYTES: u64 = 256;
/// How many clients may be connected at once; more wait.
const MAX_CLIENTS: usize = 8;
/// How long a client may take to say its line.
const LINE_WAIT: Duration = Duration::from_secs(10);

/// The names answers may be held at, and whether each has been released.
#[derive(Debug)]
pub(crate) struct Holds {
    names: BTreeMap<String, watch::Sender<bool>>,
}

impl Holds {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let names = scenario.hold_names().into_iter();
        Self { names: names.map(|name| (name.to_owned(), watch::Sender::new(false))).collect() }
    }

    /// Waits until `name` is released; at once if it has been, or if no answer can be held there.
    pub(crate) async fn wait(&self, name: &str) {
        if let Some(released) = self.names.get(name) {
            // An error would mean that the sender is gone, but it is borrowed here.
            drop(released.subscribe().wait_for(|released| *released).await);
        }
    }

    /// Whether there was such a name to release.
    fn release(&self, name: &str) -> bool {
        self.names.get(name).is_some_and(|released| {
            released.send_replace(true);
            true
        })
    }
}

/// The control socket. Its file goes when this is dropped.
#[derive(Debug)]
pub(crate) struct Control {
    listener: UnixListener,
    path: PathBuf,
}

impl Control {
    /// Makes the socket, for its owner only. An existing file is an error.
    pub(crate) fn bind(path: &Path) -> Result<Self, ModelError> {
        let failed = |source| ModelError::Control { path: path.to_owned(), source };
        let listener = UnixListener::bind(path).map_err(failed)?;
        let control = Self { listener, path: path.to_owned() };
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(failed)?;
        Ok(control)
    }

    /// Serves clients until it is dropped, or the listener fails.
    pub(crate) async fn serve(&self, holds: Arc<Holds>) -> ModelError {
        let mut clients = JoinSet::new();
        let places = Arc::new(Semaphore::new(MAX_CLIENTS));
        loop {
            while clients.try_join_next().is_some() {}
            // Never closed, so an error cannot come.
            let place = Arc::clone(&places).acquire_owned().await.ok();
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let holds = Arc::clone(&holds);
                    clients.spawn(async move {
                        // A client that goes away or dawdles is its own affair.
                        drop(tokio::time::timeout(LINE_WAIT, serve_client(stream, &holds)).await);
                        drop(place);
                    });
                }
                Err(source) => return ModelError::Control { path: self.path.clone(), source },
            }
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // Gone already is as good.
        drop(fs::remove_file(&self.path));
    }
}

async fn serve_client(stream: UnixStream, holds: &Holds) -> std::io::Result<()> {
    let (input, mut output) = stream.into_split();
    let mut line = String::new();
    BufReader::new(input.take(MAX_LINE_BYTES)).read_line(&mut line).await?;
    let reply = match line.trim_end().split_once(' ') {
        Some(("release", name)) if holds.release(name) => "ok\n".to_owned(),
        Some(("release", name)) => format!("error no step holds at `{name}`\n"),
        Some(_) | None => "error only `release NAME` is understood\n".to_owned(),
    };
    output.write_all(reply.as_bytes()).await
}
