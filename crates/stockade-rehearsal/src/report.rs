//! What a rehearsal found.

use std::time::Duration;

use serde::Serialize;
use stockade_core::{
    mode::AccessMode,
    status::{Refusal, exit_code},
    text,
};

/// The longest evidence of a check, in bytes.
const EVIDENCE_LIMIT_BYTES: usize = 2_000;

/// Whether a check passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckStatus {
    /// It did.
    Passed,
    /// It did not.
    Failed,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    /// A stable name.
    pub name: &'static str,
    /// Whether it passed.
    pub status: CheckStatus,
    /// What that rests on, bounded.
    pub evidence: String,
    /// How long what it judges took, in milliseconds.
    pub elapsed_ms: u64,
}

impl Check {
    pub(crate) fn new(name: &'static str, status: CheckStatus, evidence: &str, elapsed: Duration) -> Self {
        let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        Self { name, status, evidence: text::head(evidence, EVIDENCE_LIMIT_BYTES), elapsed_ms }
    }
}

/// How the rehearsal of one mode ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReportStatus {
    /// Every check passed.
    Passed,
    /// A check failed.
    Failed,
    /// A run would be refused here before the agent starts; the only check says why.
    Refused,
}

/// The rehearsal of one mode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RehearsalReport {
    /// The provider.
    pub provider: String,
    /// The mode.
    pub mode: AccessMode,
    /// How it ended.
    pub status: ReportStatus,
    /// Its checks.
    pub checks: Vec<Check>,
    /// What no check can prove about the agent, by its profile.
    pub unproven: Vec<String>,
}

/// Everything a rehearsal found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RehearsalOutcome {
    /// One report for each mode that was rehearsed.
    pub reports: Vec<RehearsalReport>,
    /// Why the first refused mode was refused.
    pub refusal: Option<Refusal>,
    /// Whether the caller stopped it before its end.
    pub cancelled: bool,
}

impl RehearsalOutcome {
    /// The exit code of the process: 0 only if every check of every mode passed.
    pub fn exit_code(&self) -> u8 {
        if self.cancelled {
            exit_code::CANCELLED
        } else if let Some(refusal) = &self.refusal {
            refusal.exit_code()
        } else if self.reports.iter().all(|report| report.status == ReportStatus::Passed) {
            exit_code::OK
        } else {
            exit_code::CHECK_FAILED
        }
    }
}
