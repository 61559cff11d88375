//! The command lines and receipts of other runners, on Stockade's lanes.

pub(crate) mod pstack;
