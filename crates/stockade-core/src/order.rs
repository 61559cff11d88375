//! What a caller asks for, after the checks that need the file system. Only names and facts: no secret is in here.

use std::{collections::BTreeMap, path::PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    budget::{Price, Usd},
    git::{GitWorkspace, WorkTree},
    guarantee::Guarantee,
    limits::LimitDemand,
    mode::{AccessMode, Api, NetworkPolicy, ProviderSandbox},
    network::Destination,
    survey::Rung,
};

/// The largest prompt Stockade takes, in bytes. A profile can ask for less.
pub const PROMPT_LIMIT_BYTES: u64 = 8 * 1024 * 1024;

/// An order for one lane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Order {
    /// The provider: `grok`.
    pub provider: String,
    /// The model; `None`: the profile's default.
    pub model: Option<String>,
    /// The reasoning effort; `None`: nothing is sent.
    pub effort: Option<String>,
    /// The access mode.
    pub mode: AccessMode,
    /// The workspace.
    pub workspace: Workspace,
    /// The prompt.
    pub prompt: TextFacts,
    /// Instructions, added to the agent's own.
    pub instructions: Option<String>,
    /// Extra folders and files to read, canonical.
    pub reads: Vec<PathBuf>,
    /// Extra folders to write, canonical.
    pub writes: Vec<PathBuf>,
    /// Environment variables of the caller to pass on, by name.
    pub pass_env: Vec<String>,
    /// The endpoint.
    pub endpoint: EndpointOrder,
    /// The network policy.
    pub network: NetworkPolicy,
    /// What the policy `allow` lets through beside the model.
    pub allow: Vec<Destination>,
    /// What happens to the provider's own sandbox.
    pub provider_sandbox: ProviderSandbox,
    /// Where that choice came from: `flag`, `default`, or a config file's path.
    pub provider_sandbox_source: String,
    /// Whether the agent's own preflight command is asked before the turn, where its profile names one.
    pub preflight: PreflightChoice,
    /// The only rung the caller takes; `None`: the first that stands and carries the order.
    pub rung: Option<Rung>,
    /// Guarantees the caller can do without.
    pub accept_missing: Vec<Guarantee>,
    /// Limits.
    pub limits: Limits,
    /// Whether limits that are only watched are enough.
    pub require_limits: LimitDemand,
    /// What the caller says that the ordered model costs; it goes before what the profile says.
    pub price: Option<Price>,
    /// Whether an answer may leave open which model gave it.
    pub served_model: ServedModelDemand,
    /// What makes a success.
    pub expect: Expectation,
    /// The id of the session, fixed before the start: a UUID.
    pub session: String,
    /// The model listener.
    pub listener: Listener,
}

/// Whether the agent's own preflight command is asked before the turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PreflightChoice {
    /// It is not: a verified executable could only repeat what it was configured with.
    #[default]
    LeftOut,
    /// It is.
    Asked,
}

/// Whether an answer may leave open which model gave it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ServedModelDemand {
    /// It may, and the receipt says what is known.
    #[default]
    Reported,
    /// It may not: every answer of a main turn has to name an accepted model.
    Required,
}

/// What makes a success, beside a proper end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Expectation {
    /// An answer that is not empty.
    #[default]
    Answer,
    /// Measured changes in the workspace, with an answer or without.
    Changes,
}

/// The model listener as the agent sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Listener {
    /// Its port on 127.0.0.1: fixed inside an empty network, free to choose on the host's.
    pub port: u16,
    /// What the agent is given as its key. On the host's network the listener demands it.
    pub placeholder_key: String,
}

impl Default for Listener {
    /// The listener inside an empty network, where nobody else can reach it: port and key are fixed, so that an argv and
    /// a configuration mean the same everywhere.
    fn default() -> Self {
        Self { port: 8080, placeholder_key: "stockade-placeholder".to_owned() }
    }
}

/// A text that was read once: its size and digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TextFacts {
    /// Bytes.
    pub bytes: u64,
    /// SHA-256, lower-case hex.
    pub sha256: String,
}

/// What kind of folder the workspace is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WorkspaceKind {
    /// No `.git` at its root.
    Plain,
    /// `.git` is a file: a linked worktree or a submodule.
    LinkedWorktree,
    /// `.git` is a folder: a main repository's working tree.
    MainWorktree,
}

/// The workspace, as looked at before planning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Workspace {
    /// Canonical path.
    pub path: PathBuf,
    /// Its kind.
    pub kind: WorkspaceKind,
    /// Its owner.
    pub owner_uid: u32,
    /// Its group.
    pub owner_gid: u32,
    /// Whether the caller asked to write a main repository's working tree in place.
    pub in_place: bool,
    /// The repository, where git works inside the fence; `None`: no repository, or it is shown as it is.
    pub git: Option<GitWorkspace>,
    /// Why its file system cannot map ids (`mount_setattr(IDMAP)` with its errno); only asked on root hosts.
    pub idmap_refused: Option<crate::survey::Refused>,
    /// Reasons it cannot be a workspace at all, found while looking at it.
    pub objections: Vec<WorkspaceObjection>,
}

impl Workspace {
    /// Whether the agent works on files made for the run, and the caller's own are not there at all.
    pub fn is_replaced(&self) -> bool {
        self.git.as_ref().is_some_and(|g| g.tree == WorkTree::Made)
    }
}

/// A reason why a folder cannot be the workspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceObjection {
    /// A stable word: `workspace-is-home`, `workspace-is-root`, `credential-in-git-config`, `socket-in-workspace` …
    pub code: String,
    /// Modes it applies to.
    pub modes: Vec<AccessMode>,
    /// What was found.
    pub message: String,
    /// Where.
    pub evidence: Vec<String>,
    /// What to do.
    pub remedy: String,
}

/// Where the model is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointOrder {
    /// Base URL with the version path; `None`: the profile's vendor.
    pub url: Option<String>,
    /// The API; `None`: the profile's first.
    pub api: Option<Api>,
    /// The environment variable that holds the key.
    pub key_env: Option<String>,
    /// Whether that variable is set and not empty.
    pub key_present: bool,
    /// An extra certificate authority (PEM file).
    pub ca: Option<PathBuf>,
}

/// Limits of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Limits {
    /// Wall clock, in milliseconds; `None`: no deadline.
    pub timeout_ms: Option<u64>,
    /// Idle limit, in milliseconds; `None`: none.
    pub idle_timeout_ms: Option<u64>,
    /// Bytes of stdout and of stderr kept, each. More ends the run.
    pub output_bytes: u64,
    /// Bytes of stdout and of stderr read in a second, each: a faster agent waits.
    #[serde(default = "default_output_rate")]
    pub output_bytes_per_s: u64,
    /// Bytes of each private temporary folder.
    pub temp_bytes: u64,
    /// Processes and threads at once.
    pub max_processes: u32,
    /// Bytes of memory of the whole tree; `None`: no limit.
    #[serde(default)]
    pub max_memory_bytes: Option<u64>,
    /// Bytes by which the folders on disk that can be written may grow together; `None`: no limit.
    #[serde(default)]
    pub max_growth_bytes: Option<u64>,
    /// Open files of one process.
    pub max_open_files: u64,
    /// Bytes of one file.
    pub max_file_bytes: u64,
    /// Answers to calls of the main turn; `None`: no limit.
    #[serde(default)]
    pub max_turns: Option<u64>,
    /// Tokens sent and generated, over all calls; `None`: no limit.
    #[serde(default)]
    pub max_tokens: Option<u64>,
    /// Money, in US dollars; `None`: no limit.
    #[serde(default)]
    #[schemars(with = "Option<f64>")]
    pub max_cost_usd: Option<Usd>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            timeout_ms: Some(60 * 60 * 1000),
            idle_timeout_ms: Some(10 * 60 * 1000),
            output_bytes: 256 * 1024 * 1024,
            output_bytes_per_s: default_output_rate(),
            temp_bytes: 1024 * 1024 * 1024,
            max_processes: 4096,
            max_memory_bytes: Some(8 * 1024 * 1024 * 1024),
            max_growth_bytes: Some(16 * 1024 * 1024 * 1024),
            max_open_files: 65_536,
            max_file_bytes: 16 * 1024 * 1024 * 1024,
            max_turns: None,
            max_tokens: None,
            max_cost_usd: None,
        }
    }
}

/// Far more than people read and agents write, and little work to take in.
const fn default_output_rate() -> u64 {
    16 * 1024 * 1024
}

/// The executable that Verify found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pin {
    /// The provider.
    pub provider: String,
    /// Its version; `None` for an executable the caller named.
    pub version: Option<String>,
    /// The executable on the host.
    pub path: PathBuf,
    /// SHA-256 of the executable, lower-case hex.
    pub sha256: String,
    /// What vouches for the digest.
    pub kind: PinKind,
}

/// What vouches for an executable's digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PinKind {
    /// Stockade's own pin list.
    Stockade,
    /// A digest the user recorded.
    User,
    /// The pin list of an earlier Stockade; the present one does not name this version.
    Retired,
    /// Nothing: the caller named the file.
    Unpinned,
}

/// The environment every agent gets, beside its profile's.
pub fn base_environment() -> BTreeMap<String, String> {
    [
        ("HOME", "/home/agent"),
        ("USER", "agent"),
        ("LOGNAME", "agent"),
        ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
        ("SHELL", "/bin/bash"),
        ("TMPDIR", "/tmp"),
        ("LANG", "C.UTF-8"),
        ("TERM", "dumb"),
        ("TZ", "UTC"),
    ]
    .into_iter()
    .map(|(k, v)| (k.to_owned(), v.to_owned()))
    .collect()
}
