//! What Stockade knows about each provider: profiles as data, and readers for what agents print and log.
//!
//! A profile ([`built_in`], [`parse`]) says how an agent is started and what its requests look like. A [`Reader`]
//! turns the bytes of its stdout into events, a [`SessionLog`] does the same with the log that it keeps. Nothing
//! here starts anything.

mod bounds;
mod claude;
mod codex;
pub mod fuzz;
mod grok;
mod lines;
mod messages;
mod opencode;
mod profile;
mod prompt;
mod reader;
#[cfg(test)]
mod recordings;
mod registry;
mod session_log;
mod text;

pub use self::{
    profile::{ProfileError, parse},
    prompt::command_in_prompt,
    reader::{Reader, note_code},
    registry::{BuiltIn, built_in, find},
    session_log::{LOG_LIMIT_BYTES, Progress, SessionLog, SessionLogError},
};
