//! The vocabulary and the decisions of Stockade: orders, plans, events, endings and receipts.
//!
//! Nothing here does input or output. Planning and judging are pure; clock, file system, processes and
//! network come in at the edges, as data.

pub mod event;
pub mod guarantee;
pub mod mode;
pub mod profile;
pub mod status;
pub mod survey;
pub mod template;
pub mod text;
