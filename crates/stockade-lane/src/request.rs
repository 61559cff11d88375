//! What the caller hands to a lane: everything a lane may know of the world outside comes through here.

use std::{collections::BTreeMap, path::PathBuf};

use stockade_core::{
    budget::Price,
    guarantee::Guarantee,
    limits::LimitDemand,
    mode::{AccessMode, Api, NetworkPolicy, ProviderSandbox},
    network::Destination,
    order::{Expectation, Limits, PreflightChoice, ServedModelDemand},
    survey::Rung,
};
use stockade_fence::OwnBinary;

/// Where a prompt comes from.
#[derive(Clone, Debug)]
pub enum PromptSource {
    /// A file.
    File(PathBuf),
    /// Bytes that were read already, from standard input.
    Given(Vec<u8>),
}

/// One lane as the caller asks for it, with its paths and its environment.
#[derive(Clone, Debug)]
pub struct LaneRequest {
    /// The state directory.
    pub state_root: PathBuf,
    /// The caller's home, where there is one.
    pub home: Option<PathBuf>,
    /// The caller's environment. Nothing of it reaches the agent but what `pass_env` names.
    pub environment: BTreeMap<String, String>,
    /// The provider.
    pub provider: String,
    /// A profile file in place of the built-in profile.
    pub profile: Option<PathBuf>,
    /// An executable in place of the pinned one.
    pub executable: Option<PathBuf>,
    /// The model.
    pub model: Option<String>,
    /// The effort.
    pub effort: Option<String>,
    /// The access mode.
    pub mode: AccessMode,
    /// The workspace.
    pub cwd: PathBuf,
    /// Whether a main repository's working tree may be written.
    pub in_place: bool,
    /// On which files work in a repository is done.
    pub worktree: Option<WorktreeChoice>,
    /// Whether uncommitted changes come along into a worktree that is made.
    pub include_dirty: bool,
    /// In whose name commits are made, as `Name <mail>`.
    pub git_author: Option<String>,
    /// The prompt.
    pub prompt: PromptSource,
    /// A file with instructions.
    pub instructions: Option<PathBuf>,
    /// Where the answer goes.
    pub output: Option<PathBuf>,
    /// Where the receipt goes.
    pub receipt: Option<PathBuf>,
    /// Variables of the caller that are passed on.
    pub pass_env: Vec<String>,
    /// Extra paths to read.
    pub reads: Vec<PathBuf>,
    /// Extra paths to write.
    pub writes: Vec<PathBuf>,
    /// The endpoint's base URL.
    pub endpoint: Option<String>,
    /// The API.
    pub api: Option<Api>,
    /// The variable that holds the key.
    pub key_env: Option<String>,
    /// An extra certificate authority.
    pub ca: Option<PathBuf>,
    /// The network policy.
    pub network: NetworkPolicy,
    /// What the policy `allow` lets through beside the model.
    pub allow: Vec<Destination>,
    /// What happens to the provider's own sandbox.
    pub provider_sandbox: ProviderSandbox,
    /// Where that choice came from.
    pub provider_sandbox_source: String,
    /// Whether the agent's own preflight command is asked.
    pub preflight: PreflightChoice,
    /// The only rung the caller takes; `None`: the first that stands and carries the order.
    pub rung: Option<Rung>,
    /// Guarantees the caller can do without.
    pub accept_missing: Vec<Guarantee>,
    /// Limits.
    pub limits: Limits,
    /// Whether limits that are only watched are enough.
    pub require_limits: LimitDemand,
    /// What models cost, by name; it goes before what the profile says.
    pub prices: BTreeMap<String, Price>,
    /// Whether an answer may leave open which model gave it.
    pub served_model: ServedModelDemand,
    /// What makes a success.
    pub expect: Expectation,
    /// The config file that lets only versions of Stockade's own pin list run.
    pub only_listed_pins: Option<String>,
    /// The rehearsal this run is part of.
    pub rehearsal: Option<String>,
    /// Whether this program is shown to the agent: only a rehearsal has it take probes.
    pub own_binary: OwnBinary,
    /// Stockade's commit, where it is stamped.
    pub commit: Option<String>,
}

/// On which files work in a repository is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorktreeChoice {
    /// On those of a worktree that is made for the run.
    Made,
    /// On those of the linked worktree that the caller names.
    Named,
}

/// What stops a run from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopRequest {
    /// Stop politely: the run ends as `cancelled`.
    Cancel(&'static str),
    /// Stop at once: the tree is killed without grace.
    Kill(&'static str),
}
