//! What can go wrong while serving.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::scenario::ScenarioError;

/// The reasons for which the scripted model cannot start, or has to stop.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The address asked for is not on loopback: a scripted model is never offered to a network.
    #[error("listen on {address}: not a loopback address")]
    NotLoopback {
        /// The address asked for.
        address: SocketAddr,
    },
    /// A certificate file was asked for, but the model does not serve TLS and has none.
    #[error("write the certificate authority to `{path}`: TLS is not on")]
    AuthorityWithoutTls {
        /// The file that was asked for.
        path: PathBuf,
    },
    /// The address cannot be bound.
    #[error("listen on {address}")]
    Listen {
        /// The address asked for.
        address: SocketAddr,
        /// What the kernel said.
        source: io::Error,
    },
    /// The listener failed while it was serving.
    #[error("accept a connection")]
    Accept {
        /// What the kernel said.
        source: io::Error,
    },
    /// The certificates cannot be made.
    #[error("make a certificate")]
    Certificate {
        /// What the generator said.
        source: rcgen::Error,
    },
    /// The certificates were made but TLS refuses them.
    #[error("set up TLS")]
    Tls {
        /// What the TLS library said.
        source: rustls::Error,
    },
    /// The file for the certificate authority cannot be written. An existing file is never replaced.
    #[error("write the certificate authority to `{path}`")]
    AuthorityFile {
        /// The file that was asked for.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The control socket cannot be made. An existing file is never replaced.
    #[error("make the control socket `{path}`")]
    Control {
        /// The socket that was asked for.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The log cannot be made or written. An existing file is never replaced; serving without a log that was asked
    /// for would hide what a test is looking for, so the model ends.
    #[error("write the log `{path}`")]
    Log {
        /// The log that was asked for.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The scenario file cannot be read, or is larger than [`crate::Scenario::MAX_BYTES`].
    #[error("read the scenario `{path}`")]
    ScenarioFile {
        /// The file that was asked for.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The scenario is not one, or names a variable that nobody supplied.
    #[error("understand the scenario")]
    Scenario {
        /// What is wrong with it.
        #[from]
        source: ScenarioError,
    },
    /// The runtime cannot be made.
    #[error("start the runtime")]
    Runtime {
        /// What the kernel said.
        source: io::Error,
    },
    /// The readiness line cannot be written: nobody would learn the address.
    #[error("announce the address")]
    Announce {
        /// What the kernel said.
        source: io::Error,
    },
}
