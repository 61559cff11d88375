//! The harness of the end-to-end tests: the real binary, real agents, the real kernel, looked at from outside.
//!
//! Needs `STOCKADE_BIN` (the binary, built with `fault-points`) and `STOCKADE_TEST_STATE` (a state directory in which
//! the providers are installed), both set by `cargo xtask test`, and root. A missing prerequisite is a failure.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    clippy::return_self_not_must_use,
    reason = "a test harness: what fails here fails the test"
)]

pub mod agent;
mod asked;
pub mod caller;
pub mod clutter;
pub mod dialect;
pub mod git;
pub mod hostile;
pub mod internet;
pub mod model;
pub mod network;
pub mod outside;
pub mod pstack;
pub mod run;
pub mod rungs;
pub mod schema;
pub mod stub;
pub mod surroundings;
pub mod world;

pub use agent::{Agent, MODES};
pub use caller::Caller;
pub use model::ScriptedModel;
pub use run::{Ended, Started};
pub use world::World;
