//! The egress listener: a proxy that lets listed hosts through and nothing else.
//!
//! - Two forms of request are taken, `CONNECT HOST:PORT` and `METHOD http://HOST[:PORT]/…`, and each is judged by the
//!   same list, every request of a kept connection again.
//! - A name is looked up here, once; what it leads to is checked, and the checked address is the one that is dialled.
//! - Through a tunnel goes TLS for the host that was asked for, by the name in its first message. What is inside is not
//!   seen.
//! - The list is fixed at the start.

mod body;
mod forward;
mod hello;
mod listen;
mod policy;
mod reach;
mod relay;
mod request;
mod state;
mod tunnel;

use std::net;

use stockade_core::network::Destination;

pub(crate) use self::{
    hello::{Hello, read as read_hello},
    listen::{listen, read_connection},
    policy::Allowed,
    state::State,
};
pub use state::EgressTotals;

/// The egress listener of a run.
#[derive(Debug)]
pub struct Egress {
    /// The listener.
    pub listener: net::TcpListener,
    /// What is let through.
    pub allowed: Vec<Destination>,
}

/// How many connections are served at once inside; others wait in the listener's queue.
const CONNECTION_LIMIT: usize = 128;
