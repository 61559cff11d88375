//! Rehearsals: the real agent under the real fence, driven by the scripted model on loopback.
//!
//! A rehearsal starts lanes exactly as `stockade run` does, with the endpoint pointed at a scripted model that is a
//! process of its own outside the fence. Whether a check passed is read from what came over the wire, from the
//! receipt, from the kernel and from the host's files, never from the agent's words alone.

mod checks;
mod commands;
mod error;
mod host;
mod mode;
mod model_process;
mod play;
mod probes;
mod rehearse;
mod report;
mod request;
mod scratch;
mod script;
mod snapshot;
mod wire;

pub use error::RehearsalError;
pub use rehearse::rehearse;
pub use report::{Check, CheckStatus, RehearsalOutcome, RehearsalReport, ReportStatus};
pub use request::RehearsalRequest;
