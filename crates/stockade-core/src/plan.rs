//! Planning: from an order and what was measured to a launch plan or a refusal. Pure.

mod checks;
mod guarantees;
mod launch;
mod limits;
mod own_sandbox;
mod refusals;
mod route;
mod rungs;
#[cfg(test)]
pub(crate) mod tests;

use std::{collections::BTreeMap, path::PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::launch::{AUTHORITIES, HOME, PROVIDER_FOLDER};
use crate::{
    budget::{Budget, Price},
    git::GitWorkspace,
    guarantee::Guarantee,
    limits::{CgroupHierarchy, PlannedLimit},
    mode::{AccessMode, Api, NetworkPolicy, ProviderSandbox},
    network::Destination,
    order::{Expectation, Limits, Order, Pin, PinKind, ServedModelDemand, TextFacts},
    profile::{CredentialHeader, Profile, SideRequest, Stop},
    status::Refusal,
    survey::{Rung, RungTrial, Survey},
};

/// A profile and where it came from.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadedProfile {
    /// The profile.
    pub profile: Profile,
    /// SHA-256 of its bytes, lower-case hex.
    pub digest: String,
}

/// Everything that is decided before anything is made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LaunchPlan {
    /// The provider.
    pub provider: String,
    /// The profile.
    pub profile: ProfileFacts,
    /// The executable.
    pub executable: PlannedExecutable,
    /// The model.
    pub model: PlannedModel,
    /// The effort, where one was ordered.
    pub effort: Option<String>,
    /// The access mode.
    pub mode: AccessMode,
    /// The working folder, the same path inside and outside.
    pub cwd: PathBuf,
    /// The rung the fence is built on.
    pub rung: Rung,
    /// Whether a sandbox of the provider's can make namespaces and mounts inside.
    pub nesting: bool,
    /// Better rungs and why they do not stand here.
    pub rejected_rungs: Vec<RungTrial>,
    /// The kernel ids the agent runs as.
    pub identity: PlannedIdentity,
    /// Every guarantee: held by what, or missing.
    pub guarantees: Vec<PlannedGuarantee>,
    /// What happens to the provider's own sandbox.
    pub provider_sandbox: PlannedSandbox,
    /// What the agent is asked before the turn; null: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preflight: Option<PlannedPreflight>,
    /// The repository, where git works inside the fence.
    pub git: Option<GitWorkspace>,
    /// What is mounted beside the system folders.
    pub mounts: Vec<Mount>,
    /// The agent's argv.
    pub argv: Vec<String>,
    /// The agent's environment, values included: none of them is a secret.
    pub env: BTreeMap<String, String>,
    /// Variables of the caller that are passed on; their values are in no plan.
    pub passed_env: Vec<String>,
    /// Files of the private home, by path relative to it.
    pub home_files: BTreeMap<String, String>,
    /// How the prompt reaches the agent.
    pub prompt: PlannedPrompt,
    /// The network policy.
    pub network: NetworkPolicy,
    /// What the egress listener lets through.
    #[schemars(with = "Vec<String>")]
    pub allow: Vec<Destination>,
    /// The file of the home that holds the host's certificate authorities and the extra one, where programs inside are told
    /// to trust it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorities: Option<String>,
    /// The endpoint.
    pub endpoint: PlannedEndpoint,
    /// What the gateway lets through.
    pub wire: PlannedWire,
    /// What makes a success.
    pub expect: Expectation,
    /// Limits.
    pub limits: Limits,
    /// How each of them is held here.
    pub held_limits: Vec<PlannedLimit>,
    /// Control groups made for the run, and removed after it.
    pub cgroups: Vec<CgroupHierarchy>,
    /// How the agent is stopped.
    pub stop: Stop,
    /// The session id.
    pub session: String,
    /// The session's own log, relative to the home.
    pub session_log: Option<String>,
    /// How much of one CPU may be computed while nothing happens, in percent, where the profile says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_cpu_percent: Option<u32>,
    /// What the agent is given as its key; worthless outside the run.
    pub placeholder_key: String,
    /// What nothing here can prove about the agent, by its profile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unproven: Vec<String>,
    /// What was chosen on the caller's behalf, and why.
    pub notes: Vec<String>,
}

/// A profile by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProfileFacts {
    /// Name.
    pub name: String,
    /// Version.
    pub version: u32,
    /// SHA-256 of its bytes.
    pub digest: String,
}

/// The executable of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedExecutable {
    /// On the host.
    pub path: PathBuf,
    /// Inside the fence.
    pub inside: PathBuf,
    /// Version, where known.
    pub version: Option<String>,
    /// SHA-256.
    pub sha256: String,
    /// What vouches for it.
    pub pin: PinKind,
}

/// The model of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedModel {
    /// The name asked for.
    pub asked: String,
    /// `order` or `profile-default`.
    pub source: String,
    /// The name by which the agent asks for it on the wire: another one where the profile lists an alias.
    #[serde(default)]
    pub requested_as: String,
    /// Names under which the endpoint may report it.
    pub served_as: Vec<String>,
    /// Whether an answer may leave open which model gave it.
    pub served_model: ServedModelDemand,
    /// What it costs; null: unknown.
    pub price: Option<Price>,
}

/// The kernel ids of the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum PlannedIdentity {
    /// The caller's own.
    Caller,
    /// The workspace's owner, on a root host.
    WorkspaceOwner {
        /// User id.
        uid: u32,
        /// Group id.
        gid: u32,
    },
    /// A user id of the run's own, on a root host, with idmapped mounts.
    PrivateUid,
    /// Kernel uid 0 without capabilities: the file system cannot map ids.
    KernelRoot {
        /// Why ids cannot be mapped.
        reason: String,
    },
}

/// A guarantee of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedGuarantee {
    /// Which.
    pub id: Guarantee,
    /// Whether the mode requires it.
    pub required: bool,
    /// Whether it will be held.
    pub held: bool,
    /// By what it is held, or why it is missing.
    pub mechanism: String,
}

/// The choice about the provider's own sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedSandbox {
    /// What happens to it.
    pub choice: ProviderSandbox,
    /// Where the choice came from.
    pub source: String,
    /// The argv that tells inside the fence whether it works there; empty: it is not asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub probe: Vec<String>,
    /// What it leaves in the workspace, relative to it, and what is removed at the end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub residue: Vec<String>,
    /// Whether what runs in it sees processes of its own only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_own_processes: bool,
}

/// What the agent is asked before the turn, and which answer lets it start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedPreflight {
    /// The argv.
    pub argv: Vec<String>,
    /// Texts that tell of no login, in any case of letters.
    pub unauthenticated: Vec<String>,
    /// Words that have to be in the answer.
    pub words: Vec<String>,
    /// After how long it is asked once more where it told of no login, in milliseconds; null: it is not.
    pub retry_after_ms: Option<u64>,
}

/// What a mount shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum MountSource {
    /// The workspace.
    Workspace,
    /// The worktree made for the run.
    MadeWorktree,
    /// `.git` at the workspace's root.
    GitEntry,
    /// The private git folder made for the run.
    GitFolder,
    /// The repository's objects.
    GitObjects,
    /// The caller's own working tree, while a worktree is filled from it. The agent never sees it.
    CallersTree,
    /// The private home, made for the run.
    Home,
    /// The provider's folder.
    Provider,
    /// A path the caller named.
    Path {
        /// On the host, and the same inside.
        path: PathBuf,
    },
}

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Mount {
    /// What is mounted.
    pub source: MountSource,
    /// Where, inside.
    pub target: PathBuf,
    /// Whether it is writable.
    pub writable: bool,
}

/// How the prompt reaches the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedPrompt {
    /// Size and digest.
    pub text: TextFacts,
    /// The file in the home, relative to it; `None`: standard input.
    pub file: Option<String>,
}

/// Where the model is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedEndpoint {
    /// Base URL.
    pub url: String,
    /// `order` or `profile-vendor`.
    pub source: String,
    /// The API.
    pub api: Api,
    /// The variable that holds the key; `None`: no key is sent.
    pub key_env: Option<String>,
    /// The header that carries the key.
    #[schemars(with = "String")]
    pub credential: CredentialHeader,
    /// An extra certificate authority.
    pub ca: Option<PathBuf>,
}

/// What the gateway lets through.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedWire {
    /// The endpoint's host and port, where the agent speaks to it itself through the egress listener and nothing of that is
    /// seen; `None`: its calls go through the model listener.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub tunnel: Option<Destination>,
    /// The paths that are model calls.
    pub model_paths: Vec<String>,
    /// Request classes with their exact tool sets; the first is the main turn.
    pub classes: Vec<PlannedClass>,
    /// Requests answered here without a note.
    #[schemars(with = "Vec<serde_json::Value>")]
    pub side_requests: Vec<SideRequest>,
    /// Failed answers in a row before the agent's retries are ended.
    pub failures_before_stop: u32,
    /// The header that ends them.
    pub stop_header: Option<(String, String)>,
    /// The status that ends them, in place of the endpoint's own.
    pub stop_status: Option<u16>,
}

/// A request class with the tools of the plan's mode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedClass {
    /// Name.
    pub name: String,
    /// Exact set of tools.
    pub tools: Vec<String>,
}

impl LaunchPlan {
    /// What the run may spend.
    pub fn budget(&self) -> Budget {
        Budget {
            max_turns: self.limits.max_turns,
            max_tokens: self.limits.max_tokens,
            max_cost: self.limits.max_cost_usd,
            price: self.model.price,
        }
    }
}

/// Checks what needs no host: prompt, model, effort, instructions, endpoint and network policy. Everything found here
/// is a usage error, known before anything is created; [`plan`] checks it again.
pub fn check_order(order: &Order, profile: &Profile) -> Result<(), Refusal> {
    checks::order(order, profile)
}

/// The rungs that a survey has to try for an order, in this order, until one stands.
pub fn rungs_to_try(order: &Order, profile: &Profile) -> Vec<Rung> {
    rungs::wanted(order, profile)
}

/// Decides how an order is carried out on this host, or why it is not.
pub fn plan(
    order: &Order,
    pin: &Pin,
    survey: &Survey,
    profile: &LoadedProfile,
) -> Result<LaunchPlan, Refusal> {
    checks::order(order, &profile.profile)?;
    checks::workspace(order)?;
    checks::credential(order, &profile.profile)?;
    let order = &*route::joined(order, &profile.profile);
    refusals::platform(survey)?;
    let footing = rungs::choose(order, survey, &profile.profile)?;
    launch::assemble(order, pin, survey, profile, footing)
}
