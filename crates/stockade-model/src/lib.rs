//! The scripted model: an inference endpoint on loopback that follows a scenario instead of thinking.
//!
//! A rehearsal and the tests start it as a process of its own, outside the fence, and point an agent at it. It
//! speaks OpenAI chat completions, OpenAI Responses and Anthropic Messages (streaming or whole) over HTTP, or over TLS
//! under a certificate authority it makes for itself. What it answers is written down beforehand in a [`Scenario`],
//! faults included; what it saw is written to a log that holds each request as it came over the wire, so that a test
//! can compare the agent's story with it.
//!
//! The step of an answer is read from the request (the answers after the last prompt), never from memory:
//! a retry gets the same step again.

mod answer;
mod client;
mod control;
mod error;
mod log;
mod process;
mod scenario;
mod server;
mod tls;
mod told;
mod wire;

pub use client::{ClientError, read_log, release};
pub use error::ModelError;
pub use log::{Answered, LogLine, RequestClass, RequestSeen};
pub use process::{ServeArgs, run_blocking};
pub use scenario::{Scenario, ScenarioError};
pub use server::{Ready, ServeOptions, serve};
