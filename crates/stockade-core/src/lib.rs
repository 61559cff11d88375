//! The vocabulary and the decisions of Stockade: orders, plans, events, endings and receipts.
//!
//! Nothing here does input or output. [`plan::plan`] and [`judge::Judge`] are pure; clock, file system, processes and
//! network come in at the edges, as data.

pub mod budget;
pub mod changes;
pub mod event;
pub mod fuzz;
pub mod git;
pub mod git_config;
pub mod guarantee;
pub mod judge;
pub mod limits;
pub mod mode;
pub mod network;
pub mod order;
pub mod plan;
pub mod profile;
pub mod receipt;
pub mod status;
pub mod survey;
pub mod template;
pub mod text;
