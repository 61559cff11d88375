//! The gateway between a raw agent and a raw endpoint, with real sockets on loopback.

mod failures;
mod forwarding;
mod framing;
mod lifetime;
mod names;
mod refusals;
mod streaming;
mod support;
mod tls;
