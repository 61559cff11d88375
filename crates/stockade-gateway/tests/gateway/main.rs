//! The gateway between a raw agent and a raw endpoint, with real sockets on loopback.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a helper that fails is a test that fails")]

mod egress;
mod failures;
mod forwarding;
mod framing;
mod lifetime;
mod names;
mod refusals;
mod streaming;
mod support;
mod tls;
