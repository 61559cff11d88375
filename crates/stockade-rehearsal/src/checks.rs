//! The checks: each a pure judgement on what was seen.

pub(crate) mod ending;
#[cfg(test)]
pub(crate) mod examples;
pub(crate) mod probes;
pub(crate) mod run;
pub(crate) mod work;

use std::time::Duration;

use stockade_core::{receipt::Receipt, text};

use crate::report::{Check, CheckStatus};

/// The longest quotation in evidence, in bytes.
const QUOTE_BYTES: usize = 200;

/// What a check found: evidence for it, or against it.
pub(crate) type Verdict = Result<String, String>;

/// A check from its verdict.
pub(crate) fn judged(name: &'static str, verdict: &Verdict, elapsed: Duration) -> Check {
    match verdict {
        Ok(evidence) => Check::new(name, CheckStatus::Passed, evidence, elapsed),
        Err(evidence) => Check::new(name, CheckStatus::Failed, evidence, elapsed),
    }
}

/// A text in one line and shortened.
pub(crate) fn quote(words: &str) -> String {
    let lines: Vec<&str> = words.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    text::head(&lines.join("; "), QUOTE_BYTES)
}

/// How a run ended, with its cause.
pub(crate) fn ending_of(receipt: &Receipt) -> String {
    let Some(cause) = &receipt.cause else { return receipt.status.id().to_owned() };
    let errno = cause.errno.map(|errno| format!(" (errno {errno})")).unwrap_or_default();
    let mut told = format!("{}: {} at {}{errno}", receipt.status.id(), cause.message, cause.step);
    for line in &cause.evidence {
        told.push_str("; ");
        told.push_str(line);
    }
    if let Some(remedy) = &cause.remedy {
        told.push_str("; remedy: ");
        told.push_str(remedy);
    }
    told
}

/// Why a step has no result.
pub(crate) fn not_reached(receipt: &Receipt) -> String {
    format!("the model was never told a result; the run ended as {}", ending_of(receipt))
}
