//! The tool's receipt, schema 2, from Stockade's. Closed lists stay closed; what Stockade knows beside is in further keys,
//! which readers of the tool ignore.

use std::path::Path;

use serde::Serialize;
use stockade_core::{
    event::Usage,
    judge::STDERR_EVIDENCE,
    receipt::{ErrorText, Preflight, Receipt},
    status::{Cause, FailurePhase, Status},
    text,
};
use stockade_lane::LaneOutcome;

use super::{
    args::{Order, is_revision_of},
    contract::{Ends, Handoff, ending},
};

/// Evidence, at most, in bytes.
const EVIDENCE_LIMIT_BYTES: usize = 4_000;

/// How a lane ended, in the tool's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Ended {
    Complete,
    NeedsParentOperation,
    MalformedOutput,
    UnavailableCli,
    UnavailableModel,
    ChildFailed,
    UsageExhausted,
    Unauthenticated,
    BillingPolicyBlocked,
    UnsupportedCapability,
    TimedOut,
    Cancelled,
}

impl Ended {
    /// The exit code of the tool.
    pub(super) const fn exit_code(self) -> u8 {
        match self {
            Self::Complete | Self::NeedsParentOperation => 0,
            Self::MalformedOutput => 65,
            Self::UnavailableCli | Self::UnavailableModel => 69,
            Self::ChildFailed => 70,
            Self::UsageExhausted => 75,
            Self::Unauthenticated => 77,
            Self::BillingPolicyBlocked => 78,
            Self::UnsupportedCapability => 79,
            Self::TimedOut => 124,
            Self::Cancelled => 130,
        }
    }

    /// The tool's word for one of Stockade's; `None`: the tool makes no receipt, for it is a usage error there.
    pub(super) const fn of(status: Status) -> Option<Self> {
        Some(match status {
            Status::Complete => Self::Complete,
            Status::MalformedOutput
            | Status::IncompleteOutput
            | Status::NoResult
            | Status::ModelMismatch
            | Status::PermissionCancelled
            | Status::ApprovalRequired
            | Status::WaitingForPermission => Self::MalformedOutput,
            Status::UnavailableCli
            | Status::SandboxUnavailable
            | Status::PlatformUnsupported
            | Status::ExecutableRefused => Self::UnavailableCli,
            Status::UnavailableModel => Self::UnavailableModel,
            Status::ChildFailed
            | Status::ProviderUnreachable
            | Status::ProviderError
            | Status::ProviderBusy
            | Status::RefusedByModel
            | Status::Killed
            | Status::Interrupted
            | Status::LauncherFailed
            | Status::LimitReached
            | Status::StorageFailed
            | Status::McpUnavailable
            | Status::ResumeRefused
            | Status::PolicyRefused
            | Status::Stalled
            | Status::OutOfMemory => Self::ChildFailed,
            Status::UsageExhausted => Self::UsageExhausted,
            Status::Unauthenticated => Self::Unauthenticated,
            Status::BillingPolicyBlocked => Self::BillingPolicyBlocked,
            Status::TimedOut => Self::TimedOut,
            Status::Cancelled => Self::Cancelled,
            Status::WorkspaceRefused => return None,
        })
    }
}

/// The receipt, in the tool's order of keys.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PstackReceipt {
    schema_version: u32,
    parent: String,
    provider: String,
    model: String,
    effort: String,
    mode: &'static str,
    cwd: String,
    prompt_path: String,
    output_path: String,
    receipt_path: String,
    execution_id: String,
    canonical_paths: CanonicalPaths,
    timeout_ms: Option<u64>,
    contract: &'static str,
    pub(super) status: Ended,
    started_at: String,
    completed_at: String,
    elapsed_ms: u64,
    executable: Option<String>,
    preflight: Preflight,
    argv: Vec<String>,
    exit_code: Option<i32>,
    signal: Option<String>,
    reported_model: Option<String>,
    model_verified: bool,
    model_evidence: Option<&'static str>,
    session_id: Option<String>,
    usage: Option<Usage>,
    cost_usd: Option<f64>,
    error: Option<ErrorText>,
    failure_phase: Option<FailurePhase>,
    process_started: bool,
    api_spend: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    terminal_success: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    handoff: Option<Box<Handoff>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    handoff_malformed: Option<bool>,
    /// Stockade's own status and cause: `code` is the status, the finer word is in `detail`.
    cause: Option<OwnCause>,
    /// Where everything else that Stockade knows is.
    stockade: Own,
}

#[derive(Clone, Debug, Serialize)]
struct CanonicalPaths {
    cwd: String,
    output: String,
    receipt: String,
}

#[derive(Clone, Debug, Serialize)]
struct OwnCause {
    code: String,
    detail: Option<Cause>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Own {
    version: &'static str,
    run_directory: Option<String>,
    rung: Option<String>,
    runtime_version: Option<String>,
    tree_gone: Option<bool>,
    /// How an agent that answered really exited.
    exit_code: Option<i32>,
}

/// When a lane began and ended.
#[derive(Clone, Debug)]
pub(super) struct Times {
    pub(super) started_at: String,
    pub(super) completed_at: String,
    pub(super) elapsed_ms: u64,
}

/// What happened, in the tool's terms.
#[derive(Clone, Debug)]
pub(super) struct Told {
    pub(super) receipt: PstackReceipt,
    /// What goes into the output file; `None`: there is none.
    pub(super) answer: Option<String>,
}

/// The receipt of an order that ended before there was a lane.
pub(super) fn without_lane(order: &Order, times: Times, ended: Ended, message: String) -> PstackReceipt {
    let mut receipt = blank(order, times, ended);
    receipt.preflight = Preflight { evidence: message.clone(), ..Preflight::default() };
    receipt.failure_phase = Some(FailurePhase::Preflight);
    receipt.error = Some(ErrorText { evidence: message.clone(), message });
    receipt
}

/// The receipt of a lane; `None` where the tool makes none.
pub(super) fn of_lane(order: &Order, times: Times, lane: &LaneOutcome) -> Option<Told> {
    let own = &lane.receipt;
    let mut receipt = blank(order, times, Ended::of(own.status)?);
    receipt.executable.clone_from(&own.executable);
    receipt.preflight = own.preflight.clone();
    receipt.argv.clone_from(&own.argv);
    receipt.exit_code = own.exit_code.or(own.preflight.exit_code.filter(|_| !own.process_started));
    receipt.signal.clone_from(&own.signal);
    receipt.process_started = own.process_started;
    receipt.stockade.run_directory = Some(own.run_directory.clone());
    receipt.stockade.rung = own.fence.as_ref().map(|f| f.rung.id().to_owned());
    receipt.stockade.runtime_version = own.runtime.as_ref().and_then(|r| r.version.clone());
    receipt.stockade.tree_gone = own.process_started.then_some(own.tree.gone);
    receipt.cause = (own.status != Status::Complete).then(|| OwnCause {
        code: own.status.id().to_owned(),
        detail: own.cause.as_ref().map(without_output),
    });
    // The tool's word for an answer whose agent then failed, although Stockade keeps it.
    let failed_after = own.status == Status::Complete && own.signal.is_none() && own.exit_code != Some(0);
    if failed_after {
        receipt.status = Ended::ChildFailed;
    }
    let is_answer = own.status == Status::Complete && !failed_after;
    let answer = lane.answer.as_deref().filter(|_| is_answer);
    match answer.map(|text| proven(order, own).and_then(|model| Ok((model, handed_over(text)?)))) {
        Some(Ok((model, handoff))) => {
            receipt.succeed(own, model, handoff);
            Some(Told { receipt, answer: lane.answer.clone() })
        }
        Some(Err(NoSuccess { message, keeps_answer })) => {
            receipt.status = Ended::MalformedOutput;
            receipt.fail(own, Some(message));
            receipt.handoff_malformed = keeps_answer.then_some(true);
            Some(Told { receipt, answer: lane.answer.clone().filter(|_| keeps_answer) })
        }
        None => {
            if receipt.status == Ended::Complete {
                receipt.status = Ended::MalformedOutput;
            }
            receipt.fail(own, failed_after.then(|| exited_badly(own.exit_code)));
            // A whole answer of an agent that then failed must not be asked for again.
            let had_success = lane.answer.is_some() && !own.partial;
            let is_told = own.process_started && receipt.status != Ended::Cancelled;
            receipt.terminal_success = is_told.then_some(had_success);
            Some(Told { receipt, answer: None })
        }
    }
}

impl PstackReceipt {
    fn succeed(&mut self, own: &Receipt, model: Proof, handoff: Option<Box<Handoff>>) {
        if handoff.is_some() {
            self.status = Ended::NeedsParentOperation;
        }
        self.handoff = handoff;
        self.reported_model = model.reported;
        self.model_verified = model.evidence == PROVIDER_REPORT;
        self.model_evidence = Some(model.evidence);
        self.session_id.clone_from(&own.session_id);
        self.usage.clone_from(&own.usage);
        self.cost_usd = own.cost_usd;
        // An agent that did not end by itself after its answer was ended, which is no failure of it; readers of the tool
        // take nothing but 0 for a success.
        self.stockade.exit_code = own.exit_code;
        self.exit_code = Some(0);
        self.signal = None;
    }

    /// A file of the caller's could not be written, so that nothing was delivered.
    pub(super) fn storage_failed(&mut self, why: &str) {
        self.status = Ended::ChildFailed;
        self.error = Some(ErrorText {
            message: format!("a file could not be written: {why}"),
            evidence: why.to_owned(),
        });
        self.failure_phase = Some(match (self.process_started, self.exit_code) {
            (false, _) => FailurePhase::Preflight,
            (true, Some(0)) => FailurePhase::Postprocess,
            (true, _) => FailurePhase::Invocation,
        });
        (self.reported_model, self.model_verified, self.model_evidence) = (None, false, None);
        (self.session_id, self.usage, self.cost_usd) = (None, None, None);
        self.handoff = None;
        // An agent that answered must not be asked again; of any other it is known already.
        self.terminal_success = self.terminal_success.or_else(|| self.process_started.then_some(true));
    }

    fn fail(&mut self, own: &Receipt, message: Option<String>) {
        let stated = own.error.as_ref();
        let message = message.or_else(|| stated.map(|e| e.message.clone()));
        let message = message.unwrap_or_else(|| format!("the lane ended as {}", own.status.id()));
        let evidence = match &own.cause {
            Some(cause) => Some(without_output(cause).evidence.join("\n")),
            None => stated.map(|e| e.evidence.clone()),
        };
        let evidence = evidence.filter(|e| !e.trim().is_empty());
        self.error = Some(ErrorText {
            evidence: text::head(&evidence.unwrap_or_else(|| message.clone()), EVIDENCE_LIMIT_BYTES),
            message,
        });
        // The tool's rules: nothing started is a preflight failure, and the other way round; what an agent that ended well
        // had to say is read afterwards.
        let is_read =
            self.status == Ended::MalformedOutput || own.failure_phase == Some(FailurePhase::Postprocess);
        self.failure_phase = Some(match own.exit_code {
            _ if !own.process_started => FailurePhase::Preflight,
            Some(0) if is_read => FailurePhase::Postprocess,
            _ => FailurePhase::Invocation,
        });
        self.terminal_success = own.process_started.then_some(false);
    }
}

/// A cause without what the agent printed: the tool's receipts are passed on, and hold no words of a lane. They are in the
/// run directory.
fn without_output(cause: &Cause) -> Cause {
    let mut told = cause.clone();
    told.evidence.retain(|line| !line.starts_with(STDERR_EVIDENCE));
    let left_out = cause.evidence.len() - told.evidence.len();
    if left_out > 0 {
        told.evidence.push(format!("the last {left_out} line(s) of standard error are in the run directory"));
    }
    told
}

fn exited_badly(code: Option<i32>) -> String {
    let how = code.map_or_else(|| "without an exit code".to_owned(), |code| format!("with {code}"));
    format!("the agent answered and then ended {how}")
}

const PROVIDER_REPORT: &str = "provider-report";
const PINNED_ARGV: &str = "pinned-argv";

struct Proof {
    reported: Option<String>,
    evidence: &'static str,
}

struct NoSuccess {
    message: String,
    keeps_answer: bool,
}

/// The tool's proof of a model: what claude and grok were served by, and the argv of the others.
fn proven(order: &Order, own: &Receipt) -> Result<Proof, NoSuccess> {
    if matches!(order.provider.as_str(), "codex" | "opencode") {
        return Ok(Proof { reported: None, evidence: PINNED_ARGV });
    }
    match &own.reported_model {
        Some(reported) if is_asked(&order.model, reported) => {
            Ok(Proof { reported: Some(reported.clone()), evidence: PROVIDER_REPORT })
        }
        _ => Err(NoSuccess {
            message: format!("requested model {} was not reported", order.model),
            keeps_answer: false,
        }),
    }
}

fn is_asked(asked: &str, reported: &str) -> bool {
    let is_alias = matches!(asked, "fable" | "opus" | "sonnet");
    if is_alias {
        return reported == asked || is_revision_of(asked, reported);
    }
    reported.strip_prefix(asked).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

fn handed_over(answer: &str) -> Result<Option<Box<Handoff>>, NoSuccess> {
    match ending(answer) {
        Ends::Plainly => Ok(None),
        Ends::WithHandoff(handoff) => Ok(Some(handoff)),
        Ends::WithBadHandoff(why) => Err(NoSuccess {
            message: format!("the answer ends with a hand-over that is none: {why}"),
            keeps_answer: true,
        }),
    }
}

fn blank(order: &Order, times: Times, status: Ended) -> PstackReceipt {
    let shown = |path: &Path| path.display().to_string();
    PstackReceipt {
        schema_version: 2,
        parent: order.parent.clone(),
        provider: order.provider.clone(),
        model: order.model.clone(),
        effort: order.effort.clone(),
        mode: order.mode.id(),
        cwd: shown(&order.cwd),
        prompt_path: shown(&order.prompt),
        output_path: shown(&order.output),
        receipt_path: shown(&order.receipt),
        execution_id: shown(&order.receipt),
        canonical_paths: CanonicalPaths {
            cwd: shown(&std::fs::canonicalize(&order.cwd).unwrap_or_else(|_| order.cwd.clone())),
            output: shown(&canonical(&order.output)),
            receipt: shown(&canonical(&order.receipt)),
        },
        timeout_ms: order.timeout_ms,
        contract: order.contract.id(),
        status,
        started_at: times.started_at,
        completed_at: times.completed_at,
        elapsed_ms: times.elapsed_ms,
        executable: None,
        preflight: Preflight::default(),
        argv: Vec::new(),
        exit_code: None,
        signal: None,
        reported_model: None,
        model_verified: false,
        model_evidence: None,
        session_id: None,
        usage: None,
        cost_usd: None,
        error: None,
        failure_phase: None,
        process_started: false,
        api_spend: order.api_spend.id(),
        terminal_success: None,
        handoff: None,
        handoff_malformed: None,
        cause: None,
        stockade: Own {
            version: env!("CARGO_PKG_VERSION"),
            run_directory: None,
            rung: None,
            runtime_version: None,
            tree_gone: None,
            exit_code: None,
        },
    }
}

/// The folder without links, and the name.
fn canonical(path: &Path) -> std::path::PathBuf {
    let folder = path.parent().and_then(|f| std::fs::canonicalize(f).ok());
    match (folder, path.file_name()) {
        (Some(folder), Some(name)) => folder.join(name),
        _ => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_of_stockade_has_a_word_of_the_tool() {
        let table: Vec<String> = Status::ALL
            .iter()
            .map(|s| match Ended::of(*s) {
                Some(ended) => {
                    let word = serde_json::to_value(ended).unwrap();
                    format!("{} -> {} {}", s.id(), word.as_str().unwrap(), ended.exit_code())
                }
                None => format!("{} -> usage error 64", s.id()),
            })
            .collect();
        insta::assert_snapshot!(table.join("\n"));
    }

    #[test]
    fn a_model_is_the_asked_one_by_the_tools_rules() {
        assert!(is_asked("grok-4.6", "grok-4.6"));
        assert!(is_asked("grok-4.6", "grok-4.6-build"));
        assert!(!is_asked("grok-4.6", "grok-4.65"));
        assert!(!is_asked("grok-4.6", "grok-4.5"));
        assert!(is_asked("opus", "claude-opus-4-1"));
        assert!(!is_asked("opus", "claude-opus-latest"));
        assert!(!is_asked("opus", "claude-sonnet-4-5"));
    }
}
