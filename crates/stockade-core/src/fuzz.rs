//! What a target for fuzzing is: a reader as a plain function over bytes, and what must hold of it whatever they are.
//!
//! The crates that read have the targets; the corpus of each lies in `fuzz/corpus/NAME`.

use thiserror::Error;

/// What must hold and does not.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Violation(pub String);

/// A target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, which is that of its corpus.
    pub name: &'static str,
    /// Reads one input.
    pub run: fn(&[u8]) -> Result<(), Violation>,
}

/// Says what does not hold.
pub fn holds(condition: bool, what: impl FnOnce() -> String) -> Result<(), Violation> {
    if condition { Ok(()) } else { Err(Violation(what())) }
}
