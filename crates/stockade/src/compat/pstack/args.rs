//! The flags of `pstack-runner`, checked in that program's order: whatever is wrong here creates nothing.

use std::{
    ffi::OsString,
    path::{Component, Path, PathBuf},
    time::Duration,
};

use clap::{CommandFactory as _, Parser};
use stockade_core::mode::AccessMode;

/// The providers that the tool knows. Those that Stockade has no profile for are told as not installed.
pub(super) const PROVIDERS: [&str; 7] =
    ["claude", "codex", "grok", "devin", "cursor", "antigravity", "opencode"];
/// Efforts that the tool takes.
const EFFORTS: [&str; 6] = ["low", "medium", "high", "xhigh", "max", "default"];

const STATUS_HELP: &str = "pstack-runner status --progress F --receipt F [more pairs] [--json] tells how lanes stand.

This is Stockade: the agent runs in a proven fence, with a pinned executable. Endpoint, api and key variable come from \
Stockade's configuration ([providers.NAME] endpoint, api, key_env).";

/// The flags as they are written.
#[derive(Debug, Parser)]
#[command(
    name = "pstack-runner",
    about = "Run one lane for a parent agent",
    args_override_self = true,
    disable_version_flag = true,
    after_help = STATUS_HELP
)]
struct Flags {
    /// Who asks: claude or codex
    #[arg(long)]
    parent: Option<String>,
    /// The agent to run
    #[arg(long)]
    provider: Option<String>,
    /// The model to ask for
    #[arg(long)]
    model: Option<String>,
    /// low, medium, high, xhigh, max or default
    #[arg(long)]
    effort: Option<String>,
    /// read-only or isolated-write
    #[arg(long)]
    mode: Option<String>,
    /// The prompt file
    #[arg(long, value_name = "F")]
    prompt: Option<PathBuf>,
    /// The working folder
    #[arg(long, value_name = "D")]
    cwd: Option<PathBuf>,
    /// Where the answer goes; nothing may be there yet
    #[arg(long, value_name = "F")]
    output: Option<PathBuf>,
    /// Where the receipt goes; nothing may be there yet
    #[arg(long, value_name = "F")]
    receipt: Option<PathBuf>,
    /// Seconds until the lane ends; without it there is no deadline
    #[arg(long, value_name = "S")]
    timeout: Option<String>,
    /// deny or approved: whether money may be spent by key
    #[arg(long)]
    api_spend: Option<String>,
    /// legacy or strict
    #[arg(long)]
    contract: Option<String>,
    /// Where the lane's state is kept while it runs; nothing may be there yet
    #[arg(long, value_name = "F")]
    progress: Option<PathBuf>,
}

/// Whether money may be spent by key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ApiSpend {
    /// Nothing was said.
    Legacy,
    /// It may not.
    Deny,
    /// It may.
    Approved,
}

impl ApiSpend {
    /// The word in receipts.
    pub(super) const fn id(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Deny => "deny",
            Self::Approved => "approved",
        }
    }
}

/// What the tool promises about the parent's git.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contract {
    /// By words in the prompt.
    Legacy,
    /// By more than words, which no provider offers.
    Strict,
}

impl Contract {
    /// The word in receipts.
    pub(super) const fn id(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Strict => "strict",
        }
    }
}

/// A checked order. Paths are absolute.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Order {
    pub(super) parent: String,
    pub(super) provider: String,
    pub(super) model: String,
    pub(super) effort: String,
    pub(super) mode: AccessMode,
    pub(super) prompt: PathBuf,
    pub(super) cwd: PathBuf,
    pub(super) output: PathBuf,
    pub(super) receipt: PathBuf,
    pub(super) progress: Option<PathBuf>,
    /// `None`: no deadline.
    pub(super) timeout_ms: Option<u64>,
    pub(super) api_spend: ApiSpend,
    pub(super) contract: Contract,
}

impl Order {
    /// The model as the endpoint knows it. For opencode the tool puts a provider of that program's in front; here the
    /// configuration says where the model is.
    pub(super) fn wire_model(&self) -> &str {
        match self.model.split_once('/') {
            Some((_, model)) if self.provider == "opencode" => model,
            _ => &self.model,
        }
    }
}

/// Why there is no order.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoOrder {
    /// Help was asked for.
    Help(String),
    /// Something is wrong.
    Mistake(String),
}

/// The help text.
pub(super) fn help() -> String {
    Flags::command().render_long_help().to_string()
}

/// Reads and checks the flags; `arguments` are without the program's name.
pub(super) fn read(arguments: &[OsString]) -> Result<Order, NoOrder> {
    let named = std::iter::once(OsString::from("pstack-runner")).chain(arguments.iter().cloned());
    let flags = Flags::try_parse_from(named).map_err(|e| {
        if e.use_stderr() {
            let text = e.render().to_string();
            let line = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
            NoOrder::Mistake(line)
        } else {
            NoOrder::Help(e.render().to_string())
        }
    })?;
    check(flags).map_err(NoOrder::Mistake)
}

fn check(flags: Flags) -> Result<Order, String> {
    let mode = match flags.mode.as_deref() {
        Some("read-only") => AccessMode::ReadOnly,
        Some("isolated-write") => AccessMode::IsolatedWrite,
        _ => return Err("--mode must be read-only or isolated-write".to_owned()),
    };
    let timeout_ms = flags.timeout.as_deref().map(milliseconds).transpose()?;
    let api_spend = match flags.api_spend.as_deref() {
        None => ApiSpend::Legacy,
        Some("deny") => ApiSpend::Deny,
        Some("approved") => ApiSpend::Approved,
        Some(_) => return Err("--api-spend must be deny or approved".to_owned()),
    };
    let contract = match flags.contract.as_deref() {
        None | Some("legacy") => Contract::Legacy,
        Some("strict") => Contract::Strict,
        Some(_) => return Err("--contract must be legacy or strict".to_owned()),
    };
    let parent = one_of("--parent", flags.parent, &["claude", "codex"])?;
    let provider = one_of("--provider", flags.provider, &PROVIDERS)?;
    let model = flags.model.map(|m| m.trim().to_owned()).filter(|m| !m.is_empty());
    let model = model.ok_or_else(|| "--model must name a model".to_owned())?;
    let effort = one_of("--effort", flags.effort, &EFFORTS)?;
    let order = Order {
        parent,
        provider,
        model,
        effort,
        mode,
        prompt: path("--prompt", flags.prompt)?,
        cwd: path("--cwd", flags.cwd)?,
        output: path("--output", flags.output)?,
        receipt: path("--receipt", flags.receipt)?,
        progress: flags.progress.map(|p| path("--progress", Some(p))).transpose()?,
        timeout_ms,
        api_spend,
        contract,
    };
    routes(&order)?;
    files(&order)?;
    Ok(order)
}

fn one_of(flag: &str, value: Option<String>, known: &[&str]) -> Result<String, String> {
    value
        .filter(|v| known.contains(&v.as_str()))
        .ok_or_else(|| format!("{flag} must be one of: {}", known.join(", ")))
}

fn path(flag: &str, value: Option<PathBuf>) -> Result<PathBuf, String> {
    let value = value.filter(|v| !v.as_os_str().to_string_lossy().trim().is_empty());
    let value = value.ok_or_else(|| format!("{flag} must name a path"))?;
    let absolute = std::path::absolute(&value).map_err(|e| format!("{flag}: `{}`: {e}", value.display()))?;
    Ok(plain(&absolute))
}

/// An absolute path without `.` and `..`, by its text alone: so the tool compares paths, and so its readers want them.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

/// What the tool refuses about provider, model and effort together.
fn routes(order: &Order) -> Result<(), String> {
    let (provider, model, effort) = (order.provider.as_str(), order.model.as_str(), order.effort.as_str());
    match provider {
        "opencode" | "cursor" if effort != "default" => {
            return Err(format!("{provider} takes --effort default only"));
        }
        "opencode" if !is_opencode_model(model) => {
            return Err("an opencode model is PROVIDER/MODEL, and not `auto`".to_owned());
        }
        "cursor" | "antigravity" if !is_slug(model) || model == "auto" => {
            return Err(format!("`{}` is no model of {provider}", model.escape_debug()));
        }
        "antigravity" if order.api_spend == ApiSpend::Legacy => {
            return Err("antigravity needs --api-spend".to_owned());
        }
        "claude" if is_pinned_alias(model) => {
            return Err(format!(
                "`{model}` pins a revision of an alias: say the alias, which is verified by what is served"
            ));
        }
        _ => {}
    }
    // A parent runs lanes of its own kind by its own means; theirs is the better supervised one.
    if provider == order.parent {
        return Err(format!("{provider} runs {provider} by itself, not through a runner"));
    }
    let takes_default = matches!(provider, "cursor" | "antigravity" | "opencode" | "devin");
    if effort == "default" && !takes_default {
        return Err(format!("{provider} needs an effort other than default"));
    }
    Ok(())
}

fn files(order: &Order) -> Result<(), String> {
    if !order.prompt.is_file() {
        return Err(format!("--prompt: `{}` is not a file", order.prompt.display()));
    }
    if !order.cwd.is_dir() {
        return Err(format!("--cwd: `{}` is not a folder", order.cwd.display()));
    }
    if order.prompt == order.output || order.prompt == order.receipt {
        return Err("--prompt is the same file as --output or --receipt".to_owned());
    }
    let Some(progress) = &order.progress else { return Ok(()) };
    if [&order.prompt, &order.cwd, &order.output, &order.receipt].contains(&progress) {
        return Err("--progress is the same path as another flag's".to_owned());
    }
    if begins_like(progress, &order.output) || begins_like(progress, &order.receipt) {
        return Err("--progress has a name that belongs to --output or --receipt".to_owned());
    }
    Ok(())
}

/// Whether a path is another one with a dot and more behind it.
fn begins_like(path: &Path, other: &Path) -> bool {
    let mut start = other.as_os_str().to_owned();
    start.push(".");
    path.as_os_str().as_encoded_bytes().starts_with(start.as_encoded_bytes())
}

fn is_slug(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
}

fn is_opencode_model(model: &str) -> bool {
    let mut segments = model.split('/');
    let first = segments.next().unwrap_or_default();
    let rest: Vec<&str> = segments.collect();
    is_slug(first)
        && first != "auto"
        && !rest.is_empty()
        && rest.iter().all(|s| *s != "auto" && is_slug(&s.replace(':', "-")))
}

/// `claude-opus-4-1` and the like: a revision of one of the aliases that the tool resolves.
fn is_pinned_alias(model: &str) -> bool {
    let alias = ["fable", "opus", "sonnet"];
    alias.iter().any(|a| is_revision_of(a, model))
}

/// Whether a model is `claude-ALIAS-` and numbers.
pub(super) fn is_revision_of(alias: &str, model: &str) -> bool {
    let rest = model.strip_prefix("claude-").and_then(|m| m.strip_prefix(alias)?.strip_prefix('-'));
    rest.is_some_and(|r| {
        r.split('-').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
    })
}

fn milliseconds(text: &str) -> Result<u64, String> {
    let wrong = || "--timeout must be a number of seconds above 0".to_owned();
    let seconds = number(text).filter(|s| s.is_finite() && *s > 0.0).ok_or_else(wrong)?;
    let time = Duration::try_from_secs_f64(seconds).map_err(|_| wrong())?;
    // Part of a millisecond is still time.
    let whole = time.as_millis() + u128::from(time.subsec_nanos() % 1_000_000 != 0);
    u64::try_from(whole).map_err(|_| wrong())
}

/// A number as JavaScript's `Number()` reads it, which is what the tool uses.
fn number(text: &str) -> Option<f64> {
    let text = text.trim();
    if text.is_empty() {
        return Some(0.0);
    }
    let prefixed = [("0x", 16), ("0X", 16), ("0o", 8), ("0O", 8), ("0b", 2), ("0B", 2)];
    for (prefix, radix) in prefixed {
        if let Some(digits) = text.strip_prefix(prefix) {
            let value = u32::from_str_radix(digits, radix).ok().filter(|_| !digits.starts_with('+'))?;
            return Some(f64::from(value));
        }
    }
    let is_decimal =
        text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'+' | b'-' | b'e' | b'E'));
    if is_decimal { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests;
