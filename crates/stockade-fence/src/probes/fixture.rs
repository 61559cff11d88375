//! What the probes reach for, as facts that travel into the fence.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Where things are and what they are called. The same inside and outside, because that is the point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FixtureFacts {
    /// The folder of the fixture: home, repository, worktrees, sockets.
    pub root: PathBuf,
    /// The lane's workspace: a linked worktree, or a plain folder.
    pub workspace: PathBuf,
    /// The private temporary folder of the role.
    pub temp: PathBuf,
    /// A word that no other program uses: the name of everything outside `root`.
    pub token: String,
    /// A process outside that runs as the same user and holds secrets.
    pub victim: i32,
    /// PID 1 of the fence; outside, where PID 1 belongs to the machine, the victim again.
    pub init: i32,
    /// The port of the services on 127.0.0.1 (TCP and UDP) and ::1 (TCP).
    pub port: u16,
    /// The key of a System V shared memory segment.
    pub shared_memory_key: i32,
    /// How long a service may take to answer, in milliseconds.
    pub patience_ms: u32,
}

/// Inside, where nobody is to answer. Whoever answers later than this is seen from outside.
const PATIENCE_INSIDE_MS: u32 = 300;
/// Outside, where somebody does, however busy the machine is.
pub(super) const PATIENCE_OUTSIDE_MS: u32 = 5_000;

impl FixtureFacts {
    /// The facts inside a fence: outside somebody answers, and PID 1 belongs to the machine.
    pub(super) fn inside(self) -> Self {
        Self { init: 1, patience_ms: PATIENCE_INSIDE_MS, ..self }
    }

    /// A path in the fixture.
    pub(super) fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        self.root.join(path)
    }

    /// How long a service may take to answer.
    pub(super) fn patience(&self) -> Duration {
        Duration::from_millis(self.patience_ms.into())
    }

    /// A path in the workspace.
    pub(super) fn in_workspace(&self, path: impl AsRef<Path>) -> PathBuf {
        self.workspace.join(path)
    }

    /// The name of the datagram socket beside the abstract stream socket, which is called like the token.
    pub(super) fn datagram_name(&self) -> String {
        format!("{}-datagram", self.token)
    }

    /// What a daemon is called that a probe leaves behind: at most 15 bytes, and by nobody else's name.
    pub(super) fn daemon_name(&self) -> &str {
        self.token.get(self.token.len().saturating_sub(15)..).unwrap_or(&self.token)
    }

    /// The description of the key in the session keyring of whoever starts the fence.
    pub(super) fn session_key(&self) -> String {
        format!("{}-session", self.token)
    }

    /// The description of the key in the keyring of the user.
    pub(super) fn user_key(&self) -> String {
        format!("{}-user", self.token)
    }
}

/// Descriptors that a careless caller leaves open without close-on-exec.
pub mod careless_descriptors {
    /// A log, opened for appending.
    pub const LOG: i32 = 6;
    /// A secret file: in the victim.
    pub const VICTIM_SECRET: i32 = 7;
    /// A secret file.
    pub const SECRET: i32 = 8;
    /// The root folder.
    pub const ROOT: i32 = 9;
}

/// The word that every decoy contains.
pub(super) const SECRET: &str = "SECRET";
