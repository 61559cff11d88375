//! What flags take: closed lists of words, times, guarantees, variables.

use clap::ValueEnum;
use stockade_core::{
    guarantee::Guarantee,
    mode::{AccessMode, Api, NetworkPolicy, ProviderSandbox},
    survey::Rung,
};
use stockade_lane::WorktreeChoice;

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ModeArg {
    /// Nothing under the workspace changes
    ReadOnly,
    /// The workspace is writable, nothing else is
    IsolatedWrite,
}

impl From<ModeArg> for AccessMode {
    fn from(m: ModeArg) -> Self {
        match m {
            ModeArg::ReadOnly => Self::ReadOnly,
            ModeArg::IsolatedWrite => Self::IsolatedWrite,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ApiArg {
    /// OpenAI chat completions
    ChatCompletions,
    /// OpenAI Responses
    Responses,
    /// Anthropic Messages
    Messages,
}

impl From<ApiArg> for Api {
    fn from(a: ApiArg) -> Self {
        match a {
            ApiArg::ChatCompletions => Self::ChatCompletions,
            ApiArg::Responses => Self::Responses,
            ApiArg::Messages => Self::Messages,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum SandboxArg {
    /// It runs inside the fence, or the run is refused
    Keep,
    /// The fence stands in its place
    Replace,
}

impl From<SandboxArg> for ProviderSandbox {
    fn from(s: SandboxArg) -> Self {
        match s {
            SandboxArg::Keep => Self::Keep,
            SandboxArg::Replace => Self::Replace,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum RungArg {
    /// Namespaces, seccomp and Landlock
    Nsl,
    /// Namespaces and seccomp
    Ns,
    /// As ns; the provider's own sandbox can run inside
    NsNest,
    /// As ns, with the host's /proc; lacks process-visibility
    NsHostproc,
    /// Through bubblewrap
    Bs,
}

impl From<RungArg> for Rung {
    fn from(r: RungArg) -> Self {
        match r {
            RungArg::Nsl => Self::Nsl,
            RungArg::Ns => Self::Ns,
            RungArg::NsNest => Self::NsNest,
            RungArg::NsHostproc => Self::NsHostproc,
            RungArg::Bs => Self::Bs,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum NetworkArg {
    /// Nothing at all
    None,
    /// The model only
    Model,
    /// The model, and the hosts named by `--allow`
    Allow,
    /// The host's network
    Host,
}

impl From<NetworkArg> for NetworkPolicy {
    fn from(n: NetworkArg) -> Self {
        match n {
            NetworkArg::None => Self::None,
            NetworkArg::Model => Self::Model,
            NetworkArg::Allow => Self::Allow,
            NetworkArg::Host => Self::Host,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum WorktreeArg {
    /// One made for the run; yours is not touched
    Made,
    /// The linked worktree in `--cwd`: its files change, its index and the repository do not
    Named,
}

impl From<WorktreeArg> for WorktreeChoice {
    fn from(w: WorktreeArg) -> Self {
        match w {
            WorktreeArg::Made => Self::Made,
            WorktreeArg::Named => Self::Named,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum HelpTopic {
    /// Every exit code with its statuses
    ExitCodes,
    /// Every guarantee with its meaning
    Guarantees,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Generated {
    /// The reference of this command line
    CliReference,
    /// The JSON Schema of receipts
    ReceiptSchema,
    /// The table of the escape probes
    Probes,
}

/// A time, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeArg(pub(crate) Option<u64>);

/// Reads a time with a unit into milliseconds.
pub(crate) fn parse_time(text: &str) -> Result<TimeArg, String> {
    if text == "none" {
        return Ok(TimeArg(None));
    }
    let at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let factor = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60 * 1000,
        "h" => 60 * 60 * 1000,
        "d" => 24 * 60 * 60 * 1000,
        _ => return Err("give a number with a unit: ms, s, m, h or d".to_owned()),
    };
    let ms = number.parse::<u64>().ok().and_then(|n| n.checked_mul(factor)).filter(|n| *n > 0);
    ms.map(|n| TimeArg(Some(n))).ok_or_else(|| "give a whole number above 0".to_owned())
}

pub(super) fn parse_guarantee(text: &str) -> Result<Guarantee, String> {
    Guarantee::from_id(text)
        .ok_or_else(|| format!("one of: {}", Guarantee::ALL.map(Guarantee::id).join(", ")))
}

pub(super) fn parse_variable(text: &str) -> Result<(String, String), String> {
    text.split_once('=')
        .map(|(n, v)| (n.to_owned(), v.to_owned()))
        .ok_or_else(|| "give NAME=VALUE".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_need_a_unit_and_are_above_zero() {
        assert_eq!(parse_time("90s"), Ok(TimeArg(Some(90_000))));
        assert_eq!(parse_time("2h"), Ok(TimeArg(Some(7_200_000))));
        assert_eq!(parse_time("none"), Ok(TimeArg(None)));
        for bad in ["", "90", "0s", "-1s", "1.5h", "99999999999999999999d", "s"] {
            assert!(parse_time(bad).is_err(), "{bad}");
        }
    }
}
