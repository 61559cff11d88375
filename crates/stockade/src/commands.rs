//! One file per command.

pub(crate) mod completions;
pub(crate) mod doctor;
pub(crate) mod fence;
pub(crate) mod gc;
pub(crate) mod generate;
pub(crate) mod help;
pub(crate) mod plan;
pub(crate) mod provision;
pub(crate) mod receipt;
pub(crate) mod rehearse;
pub(crate) mod run;
pub(crate) mod scripted_model;
pub(crate) mod version;

/// Where commands make what they need for their own length. Everybody can pass through it, also another user inside.
const TEMPORARY: &str = "/tmp";
