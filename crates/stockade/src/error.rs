//! Errors as a user meets them: what failed, why, and what to do.

use std::path::{Path, PathBuf};

use serde::Serialize;
use stockade_core::status::{Boundary, Cause, Refusal, exit_code};

/// An error that ends a command.
#[derive(Debug)]
pub(crate) struct CliError {
    pub(crate) exit: u8,
    pub(crate) shown: Box<Shown>,
}

/// The form of an error under `--json`, on standard error.
#[derive(Debug, Serialize)]
pub(crate) struct Shown {
    pub(crate) code: String,
    pub(crate) boundary: Boundary,
    pub(crate) step: String,
    pub(crate) errno: Option<i32>,
    pub(crate) path: Option<PathBuf>,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl CliError {
    /// A mistake on the command line or in a file named on it.
    pub(crate) fn usage(code: &str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(exit_code::USAGE, code, Boundary::Order, message).hinted(hint)
    }

    /// An error with its exit code.
    pub(crate) fn new(exit: u8, code: &str, boundary: Boundary, message: impl Into<String>) -> Self {
        Self {
            exit,
            shown: Box::new(Shown {
                code: code.to_owned(),
                boundary,
                step: code.to_owned(),
                errno: None,
                path: None,
                message: message.into(),
                hint: None,
            }),
        }
    }

    /// Names the file or folder it is about.
    pub(crate) fn about(mut self, path: &Path) -> Self {
        self.shown.path = Some(path.to_owned());
        self
    }

    /// Adds what to do.
    pub(crate) fn hinted(mut self, hint: impl Into<String>) -> Self {
        self.shown.hint = Some(hint.into());
        self
    }

    /// A cause with its exit code.
    pub(crate) fn of_cause(exit: u8, cause: &Cause) -> Self {
        Self {
            exit,
            shown: Box::new(Shown {
                code: cause.code.clone(),
                boundary: cause.boundary,
                step: cause.step.clone(),
                errno: cause.errno,
                path: None,
                message: cause.message.clone(),
                hint: cause.remedy.clone(),
            }),
        }
    }
}

impl From<Refusal> for CliError {
    fn from(refusal: Refusal) -> Self {
        let mut error = Self::of_cause(refusal.exit_code(), &refusal.cause);
        error.shown.path = refusal.path;
        error
    }
}

impl From<stockade_journal::JournalError> for CliError {
    fn from(e: stockade_journal::JournalError) -> Self {
        use stockade_journal::ErrorKind as K;
        let (exit, boundary) = match e.kind() {
            K::Exists | K::SamePath | K::InsideWritableRoot | K::PathUnusable | K::NotFound => {
                (exit_code::USAGE, Boundary::Order)
            }
            K::Malformed => (exit_code::VERIFICATION_FAILED, Boundary::Storage),
            K::Storage | K::Superseded | K::StateRefused | K::InUse => {
                (exit_code::STORAGE, Boundary::Storage)
            }
        };
        let mut error = Self::new(exit, e.kind().code(), boundary, e.to_string());
        e.step().clone_into(&mut error.shown.step);
        error.shown.errno = e.errno();
        error.shown.path = Some(e.path().to_owned());
        error.shown.hint = e.hint().map(str::to_owned);
        error
    }
}

impl From<stockade_pins::PinError> for CliError {
    fn from(e: stockade_pins::PinError) -> Self {
        use stockade_pins::PinErrorKind as K;
        let (exit, boundary) = match e.kind() {
            K::VerificationFailed => (exit_code::VERIFICATION_FAILED, Boundary::Executable),
            K::Unreachable | K::Unavailable => (exit_code::NOT_REACHABLE, Boundary::Executable),
            K::Refused => (exit_code::PIN_DIFFERS, Boundary::Executable),
            K::Storage => (exit_code::STORAGE, Boundary::Storage),
            K::Cancelled => (exit_code::CANCELLED, Boundary::Order),
            _ => (exit_code::USAGE, Boundary::Order),
        };
        let mut error = Self::new(exit, e.kind().code(), boundary, e.to_string());
        error.shown.step = e.step().to_string();
        error.shown.errno = e.errno();
        error.shown.path = e.path().map(std::path::Path::to_owned);
        error.shown.hint = e.hint().map(ToString::to_string);
        error
    }
}
