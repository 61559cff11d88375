//! The command line.

pub(crate) mod budget;
pub(crate) mod limits;
mod values;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use stockade_core::guarantee::Guarantee;

pub(crate) use self::values::{
    ApiArg, Generated, HelpTopic, ModeArg, NetworkArg, RungArg, SandboxArg, TimeArg, WorktreeArg, parse_time,
};
use self::{
    budget::{BudgetArgs, ExpectArg},
    limits::LimitArgs,
    values::{parse_guarantee, parse_variable},
};

/// Run coding agents unattended: rehearsed before launch, fenced while they work, accounted for afterwards
#[derive(Debug, Parser)]
#[command(
    name = "stockade",
    version,
    disable_help_subcommand = true,
    propagate_version = true,
    after_help = "Exit codes: `stockade help exit-codes`. With `--compat pstack` in front, or called `pstack-runner`, it is Open \
                  Pstack's runner: `stockade --compat pstack --help`. Stockade sends nothing of its own: it connects to the registry \
                  (provision) and to the endpoint you name."
)]
pub(crate) struct Cli {
    /// Say more (can be repeated)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Say nothing but results and errors
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run one lane: an agent, a prompt, a workspace
    #[command(after_help = RUN_EXAMPLES)]
    Run(RunArgs),
    /// Print how an order would be carried out, or why not; start nothing
    #[command(after_help = PLAN_EXAMPLES)]
    Plan(PlanArgs),
    /// Show and verify receipts, and show what a run changed
    #[command(subcommand)]
    Receipt(ReceiptCommand),
    /// Tell whether this host can run an agent, per guarantee, with cause and remedy
    #[command(after_help = DOCTOR_EXAMPLES)]
    Doctor(DoctorArgs),
    /// Play an agent's whole life here against the scripted model, without an account
    #[command(after_help = REHEARSE_EXAMPLES)]
    Rehearse(RehearseArgs),
    /// Check the wall itself
    #[command(subcommand)]
    Fence(FenceCommand),
    /// Fetch a provider's executable against its pin
    #[command(after_help = PROVISION_EXAMPLES)]
    Provision(ProvisionArgs),
    /// Show what old runs left, and remove it when told to
    #[command(after_help = GC_EXAMPLES)]
    Gc(GcArgs),
    /// Print version, commit and target
    Version(JsonArgs),
    /// Print a completion script for a shell
    #[command(
        after_help = "Example:\n  stockade completions bash > ~/.local/share/bash-completion/completions/stockade"
    )]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Explain a topic
    Help {
        /// The topic
        topic: HelpTopic,
    },
    /// Serve the scripted model (started by rehearsals and tests)
    #[command(hide = true)]
    ScriptedModel(ScriptedModelArgs),
    /// Print a generated file of the documentation
    #[command(hide = true)]
    Generate {
        /// Which
        what: Generated,
    },
}

const RUN_EXAMPLES: &str = "Examples:
  echo 'Summarise README.md' | stockade run --provider grok --prompt - --key-env XAI_API_KEY --provider-sandbox replace
  stockade run --provider grok --mode isolated-write --cwd ../lane --prompt task.md \\
      --output answer.md --receipt receipt.json --key-env XAI_API_KEY --provider-sandbox replace";
const PLAN_EXAMPLES: &str = "Example:
  stockade plan --provider grok --prompt task.md --endpoint http://127.0.0.1:9000/v1 --provider-sandbox replace --json";
const DOCTOR_EXAMPLES: &str = "Examples:
  stockade doctor --provider grok
  stockade doctor --provider grok --mode isolated-write --provider-sandbox replace --json";
const REHEARSE_EXAMPLES: &str = "Examples:
  stockade rehearse --provider grok --provider-sandbox replace
  stockade rehearse --provider grok --mode read-only --provider-sandbox replace --json";
const PROVISION_EXAMPLES: &str = "Examples:
  stockade provision grok@1.0.41
  stockade provision grok@1.0.13 --from ./grok --sha256 HEX
  stockade provision --list --verify --json";
const FENCE_CHECK_EXAMPLES: &str = "Examples:
  stockade fence check
  stockade fence check --mode read-only --rung ns --json

Everything that the probes reach for is made for them in /tmp and removed afterwards. Each probe is also taken once outside \
the fence, to see that it would find something there: harmless to this host, but what such a program does.";
const GC_EXAMPLES: &str = "Examples:
  stockade gc
  stockade gc --remove";

/// What an order consists of.
#[derive(Debug, Args)]
pub(crate) struct OrderArgs {
    /// The agent to run
    #[arg(long, value_name = "NAME")]
    pub(crate) provider: Option<String>,
    /// The model to ask for [default: the profile's]
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// The reasoning effort to ask for [default: nothing is sent]
    #[arg(long, value_name = "EFFORT")]
    pub(crate) effort: Option<String>,
    /// What the agent may do to the workspace [default: read-only]
    #[arg(long, value_enum, value_name = "MODE")]
    pub(crate) mode: Option<ModeArg>,
    /// The workspace [default: the current folder]
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// The prompt: a file, or `-` for standard input
    #[arg(long, value_name = "FILE|-")]
    pub(crate) prompt: PathBuf,
    /// A file with instructions that are added to the agent's own
    #[arg(long, value_name = "FILE")]
    pub(crate) instructions: Option<PathBuf>,
    /// Stop after this time, such as 90s, 60m or 2h; `none` for no deadline [default: 60m]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) timeout: Option<TimeArg>,
    /// Stop when nothing has moved for this time; `none` for no limit [default: 10m]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) idle_timeout: Option<TimeArg>,
    /// Pass on a variable of this environment by name (can be repeated)
    #[arg(long = "env", value_name = "NAME")]
    pub(crate) pass_env: Vec<String>,
    /// Let the agent read another path (can be repeated)
    #[arg(long = "read", value_name = "PATH")]
    pub(crate) reads: Vec<PathBuf>,
    /// Let the agent write another path (can be repeated)
    #[arg(long = "write", value_name = "PATH")]
    pub(crate) writes: Vec<PathBuf>,
    /// The base URL of the endpoint, with its version path [default: the vendor's]
    #[arg(long, value_name = "URL")]
    pub(crate) endpoint: Option<String>,
    /// The API spoken with the endpoint [default: the profile's]
    #[arg(long, value_enum, value_name = "API")]
    pub(crate) api: Option<ApiArg>,
    /// The variable that holds the key; the key itself never enters the fence
    #[arg(long, value_name = "NAME")]
    pub(crate) key_env: Option<String>,
    /// What happens to the sandbox that the provider brings [default: keep]
    #[arg(long, value_enum, value_name = "CHOICE")]
    pub(crate) provider_sandbox: Option<SandboxArg>,
    #[command(flatten)]
    pub(crate) fence: FenceArgs,
    /// Which network the agent reaches [default: model]
    #[arg(long, value_enum, value_name = "POLICY")]
    pub(crate) network: Option<NetworkArg>,
    /// Let this host through beside the model; the port is 443 where none is named (can be repeated)
    ///
    /// Implies `--network allow`. A name is compared as a whole. A private or loopback address has to be listed as an
    /// address, also where a listed name leads to it.
    #[arg(long, value_name = "HOST[:PORT]")]
    pub(crate) allow: Vec<String>,
    /// Let the agent write the working tree in `--cwd` itself, its git folder read-only
    #[arg(long, conflicts_with = "worktree")]
    pub(crate) in_place: bool,
    /// In a repository: work in a worktree made for the run, or in the linked one in `--cwd` [default: made]
    #[arg(long, value_enum, value_name = "CHOICE")]
    pub(crate) worktree: Option<WorktreeArg>,
    /// Carry uncommitted changes into the worktree that is made
    #[arg(long)]
    pub(crate) include_dirty: bool,
    /// In whose name commits are made [default: from your git configuration]
    #[arg(long, value_name = "NAME <MAIL>")]
    pub(crate) git_author: Option<String>,
    /// Use this executable in place of the pinned one; the receipt calls it unpinned
    #[arg(long, value_name = "FILE")]
    pub(crate) executable: Option<PathBuf>,
    /// Use this profile in place of the built-in one
    #[arg(long, value_name = "FILE")]
    pub(crate) profile: Option<PathBuf>,
    /// Trust this certificate authority too (PEM)
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// End the run where an answer does not say which model gave it
    #[arg(long)]
    pub(crate) require_served_model: bool,
    /// What makes a success, beside a proper end [default: answer]
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) expect: Option<ExpectArg>,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
    #[command(flatten)]
    pub(crate) budget: BudgetArgs,
}

/// How the fence is built, and what may be missing from it.
#[derive(Debug, Args)]
pub(crate) struct FenceArgs {
    /// Build the fence on this rung, or refuse; never on another [default: the first that stands and carries the order]
    #[arg(long, value_enum, value_name = "RUNG")]
    pub(crate) rung: Option<RungArg>,
    /// Run without this guarantee, and say so in the receipt (can be repeated)
    #[arg(long, value_name = "GUARANTEE", value_parser = parse_guarantee)]
    pub(crate) accept_missing: Vec<Guarantee>,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) order: OrderArgs,
    /// Write the answer here; nothing may be there yet [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Write the receipt here; nothing may be there yet [default: the run directory]
    #[arg(long, value_name = "FILE")]
    pub(crate) receipt: Option<PathBuf>,
    /// Stream events as NDJSON to a file, or to standard output with `-`
    #[arg(long, value_name = "FILE|-")]
    pub(crate) events: Option<PathBuf>,
    /// Print the receipt on standard output; needs `--output`
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    pub(crate) order: OrderArgs,
    /// Print the plan as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct JsonArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ReceiptCommand {
    /// Show a receipt, healed from its run directory where it was interrupted
    #[command(after_help = "Example:\n  stockade receipt show receipt.json --json")]
    Show(ReceiptArgs),
    /// Show what a run changed in a repository, as `git diff` does
    #[command(after_help = "Example:\n  stockade receipt diff receipt.json | less")]
    Diff(ReceiptArgs),
    /// Check a receipt against the records of its run directory
    #[command(after_help = "Example:\n  stockade receipt verify receipt.json")]
    Verify(ReceiptArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ReceiptArgs {
    /// A receipt file or a run id
    #[arg(value_name = "FILE|RUN")]
    pub(crate) target: String,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// The agent to ask about
    #[arg(long, value_name = "NAME")]
    pub(crate) provider: Option<String>,
    /// The mode to ask about [default: read-only]
    #[arg(long, value_enum, value_name = "MODE")]
    pub(crate) mode: Option<ModeArg>,
    /// What happens to the sandbox that the provider brings [default: keep]
    #[arg(long, value_enum, value_name = "CHOICE")]
    pub(crate) provider_sandbox: Option<SandboxArg>,
    #[command(flatten)]
    pub(crate) fence: FenceArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RehearseArgs {
    /// The agent to rehearse
    #[arg(long, value_name = "NAME")]
    pub(crate) provider: Option<String>,
    /// The mode to rehearse [default: both]
    #[arg(long, value_enum, value_name = "MODE")]
    pub(crate) mode: Option<ModeArg>,
    /// What happens to the sandbox that the provider brings [default: keep]
    #[arg(long, value_enum, value_name = "CHOICE")]
    pub(crate) provider_sandbox: Option<SandboxArg>,
    #[command(flatten)]
    pub(crate) fence: FenceArgs,
    /// Use this executable in place of the pinned one
    #[arg(long, value_name = "FILE")]
    pub(crate) executable: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
    /// Play this scenario in place of the built-in ones
    #[arg(long, value_name = "FILE")]
    pub(crate) scenario: Option<PathBuf>,
    /// Write the report here as JSON; nothing may be there yet
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FenceCommand {
    /// Try every escape in a fence on this host, and tell per guarantee what held
    #[command(after_help = FENCE_CHECK_EXAMPLES)]
    Check(FenceCheckArgs),
}

#[derive(Debug, Args)]
pub(crate) struct FenceCheckArgs {
    /// The mode to check [default: both]
    #[arg(long, value_enum, value_name = "MODE")]
    pub(crate) mode: Option<ModeArg>,
    /// The rung to check [default: the best that stands here]
    #[arg(long, value_enum, value_name = "RUNG")]
    pub(crate) rung: Option<RungArg>,
    /// Check the fence in which a provider's own sandbox is kept: as `--rung ns-nest`
    #[arg(long, conflicts_with = "rung")]
    pub(crate) keep: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["spec", "list"]))]
pub(crate) struct ProvisionArgs {
    /// The provider and its version, such as grok@1.0.41
    #[arg(value_name = "NAME[@VERSION]")]
    pub(crate) spec: Option<String>,
    /// Take this file (tarball, .br or executable) in place of the registry
    #[arg(long, value_name = "FILE", requires = "spec")]
    pub(crate) from: Option<PathBuf>,
    /// Record this digest as your own pin for a version that has none
    #[arg(long, value_name = "HEX", requires = "spec")]
    pub(crate) sha256: Option<String>,
    /// List what is installed
    #[arg(long)]
    pub(crate) list: bool,
    /// Take every digest again
    #[arg(long, requires = "list")]
    pub(crate) verify: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct GcArgs {
    /// Remove what is shown
    #[arg(long)]
    pub(crate) remove: bool,
    /// Count finished runs older than this as left over, such as 30d
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) older_than: Option<TimeArg>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ScriptedModelArgs {
    /// The scenario
    #[arg(long, value_name = "FILE")]
    pub(crate) scenario: PathBuf,
    /// The loopback address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub(crate) listen: std::net::SocketAddr,
    /// Speak TLS
    #[arg(long)]
    pub(crate) tls: bool,
    /// Name the certificate so as well (can be repeated)
    #[arg(long = "tls-name", value_name = "NAME", requires = "tls")]
    pub(crate) tls_names: Vec<String>,
    /// Write the certificate authority here
    #[arg(long, value_name = "FILE", requires = "tls")]
    pub(crate) ca_out: Option<PathBuf>,
    /// Take stimuli on this socket
    #[arg(long, value_name = "SOCKET")]
    pub(crate) control: Option<PathBuf>,
    /// Log requests here
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
    /// Demand this key
    #[arg(long, value_name = "NAME")]
    pub(crate) api_key: Option<String>,
    /// Set a variable of the scenario (can be repeated)
    #[arg(long = "var", value_name = "NAME=VALUE", value_parser = parse_variable)]
    pub(crate) variables: Vec<(String, String)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory as _;
        Cli::command().debug_assert();
    }
}
