//! The scripted model over real sockets on loopback.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod apis;
mod faults;
mod harness;
mod holds;
mod limits;
mod process;
mod steps;
mod tls;
