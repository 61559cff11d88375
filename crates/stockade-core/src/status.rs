//! How a run can end: statuses, exit codes, boundaries and causes. Closed lists, the same in code, receipts and
//! documentation.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::survey::Refused;

/// Exit codes of commands other than `run`, and those that are no ending of a run.
pub mod exit_code {
    /// The command did what it was asked to do.
    pub const OK: u8 = 0;
    /// The command line or a file named on it cannot be used; nothing was created.
    pub const USAGE: u8 = 64;
    /// Verification failed (receipts, journals).
    pub const VERIFICATION_FAILED: u8 = 65;
    /// A registry or endpoint could not be reached.
    pub const NOT_REACHABLE: u8 = 69;
    /// A check failed (rehearsal, fence check).
    pub const CHECK_FAILED: u8 = 70;
    /// This host cannot do what is asked.
    pub const HOST_CANNOT: u8 = 71;
    /// An executable differs from its pin.
    pub const PIN_DIFFERS: u8 = 72;
    /// A file or folder of Stockade's own could not be read or written.
    pub const STORAGE: u8 = 74;
    /// The user cancelled.
    pub const CANCELLED: u8 = 130;
}

macro_rules! statuses {
    ($(#[doc = $doc:literal] $variant:ident = $id:literal, $code:literal;)*) => {
        /// How a run ended: one word.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
        pub enum Status { $(#[doc = $doc] #[serde(rename = $id)] $variant,)* }

        impl Status {
            /// Every status, in the order of the documentation.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The word used in receipts and documentation.
            pub const fn id(self) -> &'static str { match self { $(Self::$variant => $id,)* } }

            /// What the status means, in one sentence for people.
            pub fn meaning(self) -> &'static str { match self { $(Self::$variant => $doc,)* }.trim() }

            /// The exit code of `stockade run` for this ending.
            pub const fn exit_code(self) -> u8 { match self { $(Self::$variant => $code,)* } }
        }
    };
}

statuses! {
    /// A proper result by the asked model.
    Complete = "complete", 0;
    /// The agent's output broke its own format.
    MalformedOutput = "malformed-output", 65;
    /// The output stops before its end, though the agent may say otherwise.
    IncompleteOutput = "incomplete-output", 65;
    /// The agent ended without an answer.
    NoResult = "no-result", 65;
    /// The workspace cannot be used in this mode.
    WorkspaceRefused = "workspace-refused", 66;
    /// The provider is not installed.
    UnavailableCli = "unavailable-cli", 69;
    /// The endpoint does not have the model.
    UnavailableModel = "unavailable-model", 69;
    /// The endpoint cannot be reached.
    ProviderUnreachable = "provider-unreachable", 69;
    /// The agent exited with a non-zero code and no typed cause.
    ChildFailed = "child-failed", 70;
    /// The provider or the agent stated an error.
    ProviderError = "provider-error", 70;
    /// The model refused to answer (content filter).
    RefusedByModel = "refused-by-model", 70;
    /// The agent died of a signal that Stockade did not send.
    Killed = "killed", 70;
    /// Stockade itself ended before it could write an ending.
    Interrupted = "interrupted", 70;
    /// A defect in Stockade.
    LauncherFailed = "launcher-failed", 70;
    /// The host cannot give a guarantee the order requires.
    SandboxUnavailable = "sandbox-unavailable", 71;
    /// Not Linux x86_64, or a kernel that is too old.
    PlatformUnsupported = "platform-unsupported", 71;
    /// The executable is not the pinned one.
    ExecutableRefused = "executable-refused", 72;
    /// A limit of the order was reached (turns, cost, tokens, disk, output).
    LimitReached = "limit-reached", 73;
    /// A file or folder of Stockade's own could not be read or written.
    StorageFailed = "storage-failed", 74;
    /// The account has no quota left.
    UsageExhausted = "usage-exhausted", 75;
    /// The provider is busy: worth another try later.
    ProviderBusy = "provider-busy", 75;
    /// Another model answered, or was asked, than the one ordered.
    ModelMismatch = "model-mismatch", 76;
    /// A required MCP server is not connected.
    McpUnavailable = "mcp-unavailable", 76;
    /// The session cannot be resumed as asked.
    ResumeRefused = "resume-refused", 76;
    /// No credential, or one that the endpoint refused.
    Unauthenticated = "unauthenticated", 77;
    /// The billing policy of the order forbids this run.
    BillingPolicyBlocked = "billing-policy-blocked", 78;
    /// A rule of the order was about to be broken and the run was stopped.
    PolicyRefused = "policy-refused", 78;
    /// The agent cancelled its turn at a permission prompt nobody could answer.
    PermissionCancelled = "permission-cancelled", 80;
    /// The agent waits for an approval.
    ApprovalRequired = "approval-required", 80;
    /// The agent waits for a permission.
    WaitingForPermission = "waiting-for-permission", 80;
    /// The deadline passed.
    TimedOut = "timed-out", 124;
    /// Nothing moved for the whole idle limit.
    Stalled = "stalled", 124;
    /// The user or a parent process cancelled.
    Cancelled = "cancelled", 130;
    /// The memory limit was passed.
    OutOfMemory = "out-of-memory", 137;
}

/// Which boundary a cause lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Boundary {
    /// The order itself.
    Order,
    /// The kernel or the operating system.
    Host,
    /// Somebody else's fence around Stockade.
    ParentSandbox,
    /// Stockade's fence.
    Fence,
    /// The sandbox that the provider brings.
    ProviderSandbox,
    /// The provider's permission prompts.
    ProviderPermission,
    /// The provider's executable.
    Executable,
    /// The credential.
    Credential,
    /// The model or its endpoint.
    Model,
    /// An MCP server.
    Mcp,
    /// The workspace.
    Workspace,
    /// The network policy.
    Network,
    /// The agent's output.
    Output,
    /// A limit.
    Limit,
    /// Stockade's own files.
    Storage,
}

/// In which part of the run the cause arose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FailurePhase {
    /// Before the agent started.
    Preflight,
    /// While the agent ran.
    Invocation,
    /// After the agent had ended properly.
    Postprocess,
}

/// Why a run ended as it did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Cause {
    /// A stable word for programs, finer than the status: `toolset-mismatch`, `prompt-too-large`.
    pub code: String,
    /// The boundary.
    pub boundary: Boundary,
    /// The step that failed: a system call with its argument, a check, or a stage.
    pub step: String,
    /// The error number where the kernel gave one.
    pub errno: Option<i32>,
    /// What happened, for people.
    pub message: String,
    /// What it was seen in: lines, names, values; bounded.
    pub evidence: Vec<String>,
    /// What to do about it.
    pub remedy: Option<String>,
}

impl Cause {
    /// Starts a cause; evidence, errno and remedy are added by the other methods.
    pub fn new(
        code: impl Into<String>,
        boundary: Boundary,
        step: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            code: code.into(),
            boundary,
            step: step.into(),
            errno: None,
            message: message.into(),
            evidence: Vec::new(),
            remedy: None,
        }
    }

    /// Adds a line of evidence, bounded to 2,000 characters and 16 lines.
    #[must_use]
    pub fn with_evidence(mut self, line: impl Into<String>) -> Self {
        const LINES: usize = 16;
        if self.evidence.len() < LINES {
            self.evidence.push(crate::text::head(&line.into(), 2_000));
        }
        self
    }

    /// Adds the error number; 0 means none.
    #[must_use]
    pub fn with_errno(mut self, errno: i32) -> Self {
        self.errno = (errno != 0).then_some(errno);
        self
    }

    /// Adds what to do.
    #[must_use]
    pub fn with_remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// A cause made of a step that the kernel refused.
    pub fn refused(
        code: impl Into<String>,
        boundary: Boundary,
        refused: &Refused,
        message: impl Into<String>,
    ) -> Self {
        Self::new(code, boundary, refused.step.clone(), message).with_errno(refused.errno)
    }
}

/// A run that ends before the agent starts: a status with its cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("{}", cause.message)]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    /// How the run ends. `None` for a usage error: exit 64, no receipt, nothing created.
    pub status: Option<Status>,
    /// Why.
    pub cause: Box<Cause>,
    /// The file or folder it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
}

impl Refusal {
    /// A refusal that ends a run with a status and a receipt.
    pub fn new(status: Status, cause: Cause) -> Self {
        Self { status: Some(status), cause: Box::new(cause), path: None }
    }

    /// A usage error: the order cannot be carried out as it stands, and nothing was created.
    pub fn usage(cause: Cause) -> Self {
        Self { status: None, cause: Box::new(cause), path: None }
    }

    /// Names the file or folder it is about.
    #[must_use]
    pub fn with_path(mut self, path: &Path) -> Self {
        self.path = Some(path.to_owned());
        self
    }

    /// The exit code of the process.
    pub fn exit_code(&self) -> u8 {
        self.status.map_or(exit_code::USAGE, Status::exit_code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_and_serialised_as_such() {
        let mut seen = std::collections::BTreeSet::new();
        for s in Status::ALL {
            assert!(seen.insert(s.id()), "{} twice", s.id());
            assert_eq!(serde_json::to_value(s).unwrap(), s.id());
        }
    }

    #[test]
    fn every_status_has_a_meaning_of_one_sentence() {
        for s in Status::ALL {
            assert!(s.meaning().ends_with('.') && !s.meaning().starts_with(' '), "{}", s.id());
        }
    }

    #[test]
    fn exit_codes_are_those_that_are_documented() {
        let table: Vec<String> =
            Status::ALL.iter().map(|s| format!("{} {}", s.exit_code(), s.id())).collect();
        insta::assert_snapshot!(table.join("\n"));
    }

    #[test]
    fn evidence_is_bounded_and_errno_zero_is_none() {
        let mut cause = Cause::new("c", Boundary::Host, "s", "m").with_errno(0);
        for _ in 0..100 {
            cause = cause.with_evidence("x".repeat(10_000));
        }
        assert_eq!((cause.evidence.len(), cause.errno), (16, None));
        assert!(cause.evidence.iter().all(|e| e.len() < 2_100));
    }

    #[test]
    fn only_complete_exits_with_zero() {
        for s in Status::ALL {
            assert_eq!(s.exit_code() == 0, *s == Status::Complete, "{}", s.id());
        }
    }
}
