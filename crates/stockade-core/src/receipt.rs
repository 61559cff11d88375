//! The receipt: the machine-readable record of a run.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    changes::Changes,
    event::Usage,
    git::GitRecord,
    guarantee::Guarantee,
    judge::{CostSource, Denial, ModelIdentity, PermissionRecord, RequestRecord},
    limits::LimitRecord,
    mode::{AccessMode, NetworkPolicy, ProviderSandbox},
    network::Destination,
    order::{Limits, PinKind},
    plan::{PlannedIdentity, ProfileFacts},
    status::{Cause, FailurePhase, Status},
    survey::{Rung, Survey},
};

/// The version of this format.
pub const SCHEMA_VERSION: u32 = 3;

/// The record of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Receipt {
    /// 3.
    pub schema_version: u32,
    /// The status.
    pub status: Status,
    /// The agent that gave the order, where there is one.
    pub parent: Option<String>,
    /// The provider.
    pub provider: String,
    /// The model as asked for.
    pub model: String,
    /// The effort, where one was ordered.
    pub effort: Option<String>,
    /// The access mode.
    pub mode: AccessMode,
    /// The workspace.
    pub cwd: String,
    /// The prompt file; `-` for standard input.
    pub prompt_path: String,
    /// Where the answer was to go; `None`: standard output.
    pub output_path: Option<String>,
    /// Where this receipt was to go; `None`: the run directory only.
    pub receipt_path: Option<String>,
    /// The run id.
    pub execution_id: String,
    /// The run directory.
    pub run_directory: String,
    /// RFC 3339, milliseconds, UTC.
    pub started_at: String,
    /// RFC 3339; `None` while interrupted.
    pub completed_at: Option<String>,
    /// Milliseconds by the monotonic clock.
    pub elapsed_ms: Option<u64>,
    /// The executable on the host; `None`: none was found.
    pub executable: Option<String>,
    /// The checks before the start.
    pub preflight: Preflight,
    /// The agent's argv; empty when none was started.
    pub argv: Vec<String>,
    /// The agent's exit code.
    pub exit_code: Option<i32>,
    /// The signal that Stockade sent it, where it did.
    pub signal: Option<String>,
    /// The model that answered, where known.
    pub reported_model: Option<String>,
    /// Whether every answer of a main turn named an accepted model, on the wire.
    pub model_verified: bool,
    /// `wire`, `agent-report`, `pinned-argv` or null.
    pub model_evidence: Option<String>,
    /// The agent's session id.
    pub session_id: Option<String>,
    /// Tokens.
    pub usage: Option<Usage>,
    /// Cost in US dollars; null: unknown.
    pub cost_usd: Option<f64>,
    /// Who says so; null where the cost is.
    #[serde(default)]
    pub cost_source: Option<CostSource>,
    /// Message and evidence; null only for `complete`.
    pub error: Option<ErrorText>,
    /// Where it failed; null only for `complete`.
    pub failure_phase: Option<FailurePhase>,
    /// Whether the agent ran.
    pub process_started: bool,
    /// The deadline in milliseconds; null: none.
    pub timeout_ms: Option<u64>,
    /// Why; null only for `complete`.
    pub cause: Option<Cause>,
    /// What was measured of the host; null when it was not.
    pub survey: Option<Survey>,
    /// Every guarantee.
    pub guarantees: Vec<GuaranteeRecord>,
    /// The fence; null when none was built.
    pub fence: Option<FenceRecord>,
    /// The profile; null when the order ended before it was read.
    pub profile: Option<ProfileFacts>,
    /// The provider's runtime; null when none was found.
    pub runtime: Option<RuntimeRecord>,
    /// The credential's kind and mark.
    pub credential: CredentialRecord,
    /// Names of environment variables.
    pub environment: EnvironmentRecord,
    /// What was chosen about the provider's own sandbox.
    pub provider_sandbox: ProviderSandbox,
    /// Permissions decided.
    pub permissions: Vec<PermissionRecord>,
    /// Denials that the turn survived, at most 100.
    pub denials: Vec<Denial>,
    /// All of them.
    pub denial_count: u64,
    /// Tool calls.
    pub tool_calls: u64,
    /// Model requests on the wire.
    pub model_requests: u64,
    /// The last of them with their answers, at most 100.
    #[serde(default)]
    pub requests: Vec<RequestRecord>,
    /// The model.
    pub model_identity: Option<ModelIdentity>,
    /// What changed in the workspace.
    pub changes: Changes,
    /// The repository the work went to; null: none.
    pub git: Option<GitRecord>,
    /// Whether the output file holds only a part of an answer.
    pub partial: bool,
    /// SHA-256 of the files of the run directory, and of prompt and answer.
    pub digests: BTreeMap<String, String>,
    /// The rehearsal this run was part of; null: a real run.
    pub rehearsal: Option<String>,
    /// Limits.
    pub limits: Limits,
    /// How each of them was held, and what was measured; empty before there is a plan.
    #[serde(default)]
    pub held_limits: Vec<LimitRecord>,
    /// The process tree.
    pub tree: TreeRecord,
    /// Network decisions by code.
    pub network_decisions: BTreeMap<String, u64>,
    /// Things worth telling that decided nothing.
    pub notes: Vec<String>,
    /// The process that wrote this.
    pub launcher: LauncherRecord,
    /// Which Stockade.
    pub stockade: StockadeRecord,
}

/// The checks before the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Preflight {
    /// What the agent was asked, inside the fence; empty: nothing.
    pub argv: Vec<String>,
    /// Whether they passed.
    pub status: PreflightStatus,
    /// What they rest on.
    pub evidence: String,
    /// The exit code of what the agent was asked; null: it was asked nothing, or gave no answer.
    #[serde(default)]
    pub exit_code: Option<i32>,
}

/// Whether the checks before the start passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PreflightStatus {
    /// They did.
    Passed,
    /// One did not.
    Failed,
    /// The deadline came first, or there was no answer in time.
    TimedOut,
    /// The caller stopped the run first.
    Cancelled,
    /// They were not finished.
    #[default]
    NotRun,
}

/// Message and evidence, as older readers know them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorText {
    /// What happened.
    pub message: String,
    /// Seen in; bounded.
    pub evidence: String,
}

/// One guarantee of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GuaranteeRecord {
    /// Which.
    pub id: Guarantee,
    /// Whether the mode required it.
    pub required: bool,
    /// Whether it was held.
    pub held: bool,
    /// By what, or why not.
    pub mechanism: String,
    /// The canaries that proved it; empty: none was run.
    pub proof: Vec<String>,
}

/// The fence of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FenceRecord {
    /// The rung.
    pub rung: Rung,
    /// Whether sandboxes can be nested inside.
    pub nesting: bool,
    /// Extra paths that could be read.
    pub reads: Vec<String>,
    /// Extra paths that could be written.
    pub writes: Vec<String>,
    /// What could be reached.
    pub network: NetworkRecord,
    /// Who the agent ran as.
    pub identity: PlannedIdentity,
    /// Its kernel user id.
    pub kernel_uid: u32,
    /// Supplementary groups that could not be dropped.
    pub groups: Vec<u32>,
    /// Building, in microseconds.
    pub build_us: u64,
    /// Proving, in microseconds.
    pub prove_us: u64,
}

/// What could be reached from inside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkRecord {
    /// The policy.
    pub policy: NetworkPolicy,
    /// What went through the egress listener; null: the policy has none.
    pub egress: Option<EgressRecord>,
}

/// What went through the egress listener. Every decision is counted, also where the events of a flood were not recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EgressRecord {
    /// The list, as it stood from the start to the end.
    #[schemars(with = "Vec<String>")]
    pub listed: Vec<Destination>,
    /// The one of them to which the agent spoke as its model; absent: its calls went through the model listener.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub model: Option<Destination>,
    /// Connections and plain requests that were let through, by destination.
    pub passed: BTreeMap<String, u64>,
    /// What was turned away, by code.
    pub turned_away: BTreeMap<String, u64>,
    /// Bytes that left.
    pub bytes_sent: u64,
    /// Bytes that came back.
    pub bytes_received: u64,
    /// Always false: what goes through TLS is not seen, only to which host.
    pub sees_inside_tls: bool,
}

/// The provider's runtime.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RuntimeRecord {
    /// The provider.
    pub name: String,
    /// Its version; null for an executable that the caller named.
    pub version: Option<String>,
    /// SHA-256 of the executable.
    pub sha256: String,
    /// What vouches for it.
    pub pin: PinKind,
}

/// The credential, without anything of its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CredentialRecord {
    /// `key-env` or `none`.
    pub kind: String,
    /// The variable's name.
    pub account_mark: Option<String>,
}

/// Names of environment variables: what the agent got and what the caller had beside.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EnvironmentRecord {
    /// Passed to the agent.
    pub passed: Vec<String>,
    /// Kept from it.
    pub removed: Vec<String>,
}

/// The process tree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TreeRecord {
    /// Most processes seen at once; null: no agent was started.
    pub peak_processes: Option<u64>,
    /// Most memory of the whole tree, in bytes: as its control group counted it, with page cache and temporary files;
    /// without one, the largest sum of resident sets that was sampled, or the largest process. Null: no agent was started.
    pub peak_memory: Option<u64>,
    /// Processes killed at the end.
    pub killed: u64,
    /// Whether the kernel confirmed that nothing is left.
    pub gone: bool,
    /// Whether the run's control group (version 2) said that nothing is in it; null: there was none.
    #[serde(default)]
    pub group_empty: Option<bool>,
    /// Processes that were killed and had not ended when Stockade stopped waiting: stuck in the kernel. They end as soon
    /// as the kernel lets them.
    #[serde(default)]
    pub unkillable: Vec<StuckProcess>,
}

/// A process that did not end though it was killed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StuckProcess {
    /// Its process id on the host.
    pub pid: i32,
    /// Its name, which it can choose itself.
    pub name: String,
    /// The letter of its state in /proc, such as `D`.
    pub state: String,
}

/// The process that wrote a receipt, so that a reader can tell a live reservation from a dead one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LauncherRecord {
    /// The boot id of the kernel.
    pub boot_id: String,
    /// Its pid.
    pub pid: u32,
    /// Its start time in clock ticks since boot.
    pub start_time: u64,
}

/// Which Stockade.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StockadeRecord {
    /// Version.
    pub version: String,
    /// Commit; null: unstamped.
    pub commit: Option<String>,
    /// Target triple.
    pub target: String,
}
