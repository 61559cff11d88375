//! A provider profile: everything Stockade knows about driving one agent, as data.
//!
//! Strings may hold placeholders in braces, filled in by [`crate::template`]: `{home}`, `{cwd}`, `{cwd_encoded}`,
//! `{session}`, `{model}`, `{effort}`, `{base_url}` (with the version path), `{base_origin}` (without it),
//! `{placeholder_key}`, `{prompt_file}`, `{instructions}`, `{instructions_file}`, `{instructions_toml}` (as a TOML string,
//! empty where there are none), `{provider}`, `{proxy_toml}` (what makes programs use the egress listener, and trust the
//! run's own authorities, as a TOML table; empty where there is neither).
//!
//! With `route = "egress"` the base URL is the endpoint's own.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    budget::Price,
    mode::{AccessMode, Api},
};

/// A provider profile as read from its TOML file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The provider's name: `grok`.
    pub name: String,
    /// Counts up whenever anything in the file changes.
    pub version: u32,
    /// The provider's name for people: `Grok Build`.
    pub title: String,
    /// What nothing here can prove about the agent. Doctor and rehearsals say it.
    #[serde(default)]
    pub unproven: Vec<String>,
    /// Models, efforts and prompt limits.
    pub models: Models,
    /// The vendor's own service.
    pub vendor: Vendor,
    /// How the agent is started.
    pub launch: Launch,
    /// Files put into the private home before the start.
    #[serde(default)]
    pub home_files: Vec<HomeFile>,
    /// What its requests look like.
    pub wire: Wire,
    /// The stream it prints and the log it keeps.
    pub output: Output,
    /// The sandbox it brings.
    pub sandbox: OwnSandbox,
    /// How it is stopped.
    pub stop: Stop,
}

/// Models, efforts and prompt limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Models {
    /// The model used when the order names none.
    pub default: String,
    /// The efforts the agent accepts.
    pub efforts: Vec<String>,
    /// The longest prompt the agent reads, in bytes.
    pub prompt_limit_bytes: u64,
    /// The longest instructions the agent takes, in bytes.
    pub instructions_limit_bytes: u64,
    /// Short names that the agent knows, and the models that it asks for by them.
    #[serde(default)]
    pub aliases: BTreeMap<String, String>,
    /// Other names under which the endpoint may report a model that was asked for: asked name → served names.
    #[serde(default)]
    pub served_as: BTreeMap<String, Vec<String>>,
    /// Suffixes that the endpoint may add to any asked name.
    #[serde(default)]
    pub served_suffixes: Vec<String>,
    /// What models cost at the vendor's own service: name → price.
    #[serde(default)]
    pub prices: BTreeMap<String, Price>,
}

/// The vendor's own service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vendor {
    /// The endpoint used when the order names none, with the version path: `https://api.x.ai/v1`.
    pub endpoint: String,
    /// The APIs the agent can speak; the first is the default.
    pub apis: Vec<Api>,
    /// The header that carries a credential to the endpoint.
    pub credential: CredentialHeader,
    /// Where a key for the vendor's service is made, for remedies.
    pub key_hint: String,
}

/// How a credential is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CredentialHeader {
    /// `authorization: Bearer KEY`.
    Bearer,
    /// `x-api-key: KEY`.
    XApiKey,
}

/// How the agent is started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Launch {
    /// The executable, relative to the provider's folder.
    pub executable: String,
    /// Arguments of every mode.
    pub argv: Vec<String>,
    /// Arguments for read-only.
    pub read_only_argv: Vec<String>,
    /// Arguments for isolated-write.
    pub isolated_write_argv: Vec<String>,
    /// Arguments when the provider's own sandbox runs, per mode.
    pub keep_read_only_argv: Vec<String>,
    /// Arguments when the provider's own sandbox runs, per mode.
    pub keep_isolated_write_argv: Vec<String>,
    /// Arguments when the fence stands in the place of the provider's own sandbox.
    pub replace_argv: Vec<String>,
    /// Arguments that carry an effort.
    pub effort_argv: Vec<String>,
    /// Arguments that carry instructions: the text itself, or the name of the file that holds them.
    pub instructions_argv: Vec<String>,
    /// Where in the home a file with the instructions is put; `{instructions_file}` is its absolute path inside.
    #[serde(default)]
    pub instructions_file: Option<String>,
    /// Words that the agent takes as commands of its own, in any case of letters, when a prompt begins with one.
    #[serde(default)]
    pub prompt_commands: Vec<String>,
    /// Names at the root of a workspace that configure the agent whatever it is told. A workspace that holds one is refused.
    #[serde(default)]
    pub workspace_settings: Vec<String>,
    /// How the prompt reaches the agent.
    pub prompt: PromptDelivery,
    /// What it can be asked before a turn, where the order wants it asked.
    #[serde(default)]
    pub preflight: Option<PreflightCommand>,
    /// The environment, beside what every agent gets.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
}

/// A command of the agent's that tells without a model call whether it has a login and knows the model.
///
/// It passes with exit code 0, none of the texts that tell of no login, and all of the words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PreflightCommand {
    /// Its arguments.
    pub argv: Vec<String>,
    /// Texts, in any case of letters, by which it tells that it has no login, whatever its exit code is.
    pub unauthenticated: Vec<String>,
    /// Words that are in its answer where the model is known.
    pub words: Vec<String>,
    /// After how long it is asked once more where it told of no login, in milliseconds; left out: it is not.
    #[serde(default)]
    pub retry_after_ms: Option<u64>,
}

/// How the prompt reaches the agent. Never by argv.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "kebab-case", deny_unknown_fields)]
pub enum PromptDelivery {
    /// A file in the private home, named by the arguments.
    File {
        /// Path relative to the home; `{prompt_file}` is its absolute path inside.
        path: String,
    },
    /// Standard input, closed after the prompt.
    Stdin,
}

/// A file of the private home.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HomeFile {
    /// Path relative to the home.
    pub path: String,
    /// Content, with placeholders.
    pub content: String,
}

/// What the agent's requests look like.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wire {
    /// How the agent's calls of the model travel.
    #[serde(default)]
    pub route: Route,
    /// The paths that are model calls, as the agent asks for them (query left out). Only these are forwarded.
    pub model_paths: Vec<String>,
    /// The kinds of model calls. The first whose tools fit is taken; the first in the list is the main turn. A name may be
    /// there again with other tools, where those depend on the model.
    pub classes: Vec<RequestClass>,
    /// Requests that are no model calls and are answered by the gateway without a note.
    #[serde(default)]
    pub side_requests: Vec<SideRequest>,
    /// Failed answers in a row of one class, streams that broke off among them, from which on the agent's retries are
    /// ended. What no repetition mends (401, 402, 403, 404, no answer at all) ends them at once.
    pub failures_before_stop: u32,
    /// A response header that tells the agent not to try again: name and value.
    #[serde(default)]
    pub stop_header: Option<(String, String)>,
    /// A status (4xx) on which the agent does not try again. It takes the place of the endpoint's own in the answer that
    /// ends the retries; the endpoint's is the one that is recorded. Without header and status the run itself is ended.
    #[serde(default)]
    pub stop_status: Option<u16>,
}

/// How the agent's calls of the model travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Route {
    /// In plain through the model listener, which adds the key, compares every request with the plan and sees every answer.
    #[default]
    Listener,
    /// The agent speaks TLS to the endpoint itself, through the egress listener. Nothing of it is seen, and no key can be
    /// added.
    Egress,
}

/// One kind of model call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestClass {
    /// Its name: `turn`, `title`.
    pub name: String,
    /// The exact set of tools it offers in read-only.
    pub read_only_tools: Vec<String>,
    /// The exact set of tools it offers in isolated-write.
    pub isolated_write_tools: Vec<String>,
}

impl RequestClass {
    /// The exact set of tools that this class offers in a mode.
    pub fn tools(&self, mode: AccessMode) -> &[String] {
        match mode {
            AccessMode::ReadOnly => &self.read_only_tools,
            AccessMode::IsolatedWrite => &self.isolated_write_tools,
        }
    }
}

/// A request that is no model call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SideRequest {
    /// Method.
    pub method: String,
    /// Path, query left out.
    pub path: String,
    /// The status it gets, without a body.
    pub status: u16,
}

/// Dialects: how an agent's stream is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dialect {
    /// Grok's `streaming-messages-json`, with its session log.
    GrokMessages,
    /// Claude Code's `stream-json`.
    ClaudeStream,
    /// Codex's `exec --json`, with its rollout.
    CodexExec,
    /// OpenCode's `run --format json`.
    OpencodeRun,
}

/// The stream and the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Output {
    /// How stdout is read.
    pub dialect: Dialect,
    /// The session's own log, relative to the home. A `*` in a part of the path stands for anything; the first file that
    /// fits is followed.
    #[serde(default)]
    pub session_log: Option<String>,
    /// How much of one CPU the agent and its tools may compute while nothing happens, in percent; 1 where it is not said.
    #[serde(default)]
    pub idle_cpu_percent: Option<u32>,
}

/// The sandbox that the provider brings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnSandbox {
    /// Its name for people; `None`: it has none, and keep means replace.
    #[serde(default)]
    pub name: Option<String>,
    /// What it needs of the host.
    #[serde(default)]
    pub needs: Vec<SandboxNeed>,
    /// Whether what runs in it sees processes of its own only, PID 1 included.
    #[serde(default)]
    pub has_own_processes: bool,
    /// Arguments with which the executable tells inside the fence, by exit code 0, that its sandbox works there in
    /// read-only. Asked before the agent starts, where the sandbox is kept; empty: it is not asked.
    #[serde(default)]
    pub read_only_probe: Vec<String>,
    /// The same for isolated-write.
    #[serde(default)]
    pub isolated_write_probe: Vec<String>,
    /// What it leaves in the workspace, relative to it. With any it is not kept in read-only; in isolated-write what was
    /// not there before is removed at the end.
    #[serde(default)]
    pub residue: Vec<String>,
}

/// Something that a provider's sandbox needs of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxNeed {
    /// The bubblewrap program on PATH.
    Bubblewrap,
    /// Landlock in the kernel.
    Landlock,
    /// The program `socat` on PATH.
    Socat,
    /// A fence that lets it make namespaces inside.
    Nesting,
}

/// How the agent is stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Stop {
    /// The polite signals, one after the other: `INT`, `TERM`.
    pub signals: Vec<String>,
    /// From the first polite signal to KILL, in milliseconds.
    pub grace_ms: u64,
    /// How long it may take to exit after a proper result, in milliseconds.
    pub linger_ms: u64,
}
