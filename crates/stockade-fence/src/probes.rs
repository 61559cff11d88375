//! Escape attempts: each is an action of a hostile tool that the fence has to deny, or to confine to a copy.
//!
//! [`PROBES`] is the table. [`run`] takes every probe in a child of its own and reports what it observed; it runs
//! inside the fence as a role, by [`enter_if_asked`], and outside as the positive control that shows that the
//! probe would have found something. [`host`] makes what the probes reach for and looks afterwards, from outside,
//! whether anything changed: a probe may be told that it succeeded, or failed, and be wrong.

mod acts;
mod attempt;
mod entry;
mod fenced;
mod files;
mod fixture;
pub mod host;
mod limits;
mod network;
mod place;
mod privilege;
mod raw;
mod reference;
mod runner;
mod sanity;
mod secrets;
mod signals;
mod sockets;
mod table;

pub use attempt::{Attempt, Heard};
pub use entry::{ARGUMENT, TOOL_ARGUMENT, enter_if_asked};
pub use fenced::{FencedRequest, Said};
pub use fixture::{FixtureFacts, careless_descriptors};
pub use reference::reference;
pub use runner::{Observation, Observed, run};
pub use table::{
    ByTool, Control, Expected, KernelUser, PROBES, Probe, ProcessLimit, Setting, probe, taken_by_tool,
};
