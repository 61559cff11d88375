//! What the canaries reach for: really there, and shown to be reachable outside before anybody tries inside.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};

use stockade_core::survey::Rung;

use crate::canary::attempt::{ask_a_device, connect_abstract, connect_tcp, open_process, see_process};
use crate::canary::{Canary, CanaryPlan, ProcessMark, ProofError, ProofRequest};

/// Decoys that are in place. Dropped, they are gone.
#[derive(Debug)]
pub(crate) struct Decoys {
    secret: PathBuf,
    outside: PathBuf,
    /// Held open, never accepted from.
    listeners: (Option<TcpListener>, Option<UnixListener>),
}

/// Whether the fence has a network of its own, so that nothing of the host's can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NetworkIs {
    /// Its own.
    Own,
    /// The host's.
    Hosts,
}

impl Decoys {
    /// Puts them in place and runs the positive controls.
    pub(crate) fn place(
        request: &ProofRequest,
        network: NetworkIs,
        rung: Rung,
    ) -> Result<(Self, CanaryPlan), ProofError> {
        let (secret, outside) = (request.decoys.join("decoy-secret"), request.decoys.join("decoy-written"));
        put_secret(&secret).and_then(|()| std::fs::read(&secret)).map_err(control(Canary::SecretFile))?;
        let mut decoys = Self { secret: secret.clone(), outside: outside.clone(), listeners: (None, None) };
        // Made right beside the secret, whose making has shown that files can be made there.
        remove_if_there(&outside).map_err(control(Canary::WriteOutside))?;
        let mut plan = CanaryPlan {
            secret,
            outside,
            shadow_exists: Path::new("/etc/shadow").exists(),
            tcp_port: None,
            abstract_name: None,
            process: own_mark().map_err(control(Canary::ProcessDecoy))?,
            workspace: request.workspace.clone(),
            protected: request.protected.clone(),
            rung,
        };
        see_process(plan.process).map_err(control(Canary::ProcessDecoy))?;
        if network == NetworkIs::Own {
            let (listener, port) = listen_tcp().map_err(control(Canary::TcpDecoy))?;
            (decoys.listeners.0, plan.tcp_port) = (Some(listener), Some(port));
            let (listener, name) =
                listen_abstract(&request.decoys).map_err(control(Canary::AbstractDecoy))?;
            (decoys.listeners.1, plan.abstract_name) = (Some(listener), Some(name));
        }
        if Canary::SecondLock.applies(&plan) {
            ask_a_device().map_err(control(Canary::SecondLock))?;
        }
        if Canary::ProcessSecrets.applies(&plan) {
            open_process(plan.process).map_err(control(Canary::ProcessSecrets))?;
        }
        Ok((decoys, plan))
    }

    /// Whether a file has appeared where none may be made.
    pub(crate) fn was_written(&self) -> bool {
        self.outside.exists()
    }
}

impl Drop for Decoys {
    fn drop(&mut self) {
        // The folder is private to the run and goes with it.
        let _gone = std::fs::remove_file(&self.secret);
        let _gone = std::fs::remove_file(&self.outside);
    }
}

fn control(canary: Canary) -> impl Fn(io::Error) -> ProofError {
    move |e| ProofError::Control { name: canary.name(), errno: e.raw_os_error().unwrap_or(0) }
}

fn put_secret(path: &Path) -> io::Result<()> {
    new_file(path)?.write_all(b"a decoy: nobody inside the fence can read this\n")
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

fn new_file(path: &Path) -> io::Result<File> {
    remove_if_there(path)?;
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

fn own_mark() -> io::Result<ProcessMark> {
    let pid = rustix::process::getpid().as_raw_pid();
    let started = ProcessMark::started(pid).ok_or(io::ErrorKind::NotFound)?;
    Ok(ProcessMark { pid, started })
}

fn listen_tcp() -> io::Result<(TcpListener, u16)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port();
    connect_tcp(port)?;
    Ok((listener, port))
}

fn listen_abstract(folder: &Path) -> io::Result<(UnixListener, String)> {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    folder.hash(&mut hasher);
    // One name per run: the folder is the run's own.
    let name = format!("stockade-decoy-{}-{:x}", std::process::id(), hasher.finish());
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
    connect_abstract(&name)?;
    Ok((listener, name))
}
