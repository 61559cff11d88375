//! The gateway: the only way out of a fence.
//!
//! One gateway serves one run. Its listeners are made inside the empty network namespace of the fence and handed out by
//! descriptor; the gateway itself stays outside. The agent speaks plain HTTP to it, it speaks HTTP or TLS to the one
//! endpoint.
//!
//! - The credential is added here, on calls of the model and on nothing else, so it never enters the fence.
//! - A request is read whole and checked (model, tool list) before anything of it leaves the host.
//! - An answer passes through as it arrives while a bounded observer reads a copy; what it sees becomes facts.
//! - A budget of turns, tokens or money is looked at before each call.
//! - What an agent would repeat for minutes is ended after the failures that the profile allows.
//! - Where the policy lists hosts, a proxy lets those through and nothing else.
//! - Look-ups of names are answered at once, with "no such name", and recorded.
//!
//! The agent and its tools are one principal: everything that arrives here may be forged.

mod accept;
mod activity;
mod agent_body;
mod answer;
mod connect;
mod decide;
mod dial;
mod egress;
mod error;
mod exchange;
mod facts;
pub mod fuzz;
mod gateway;
mod headers;
mod inbound;
mod mask;
mod names;
mod observe;
mod policy;
mod pool;
mod purse;
mod read;
mod resolve;
mod shared;
mod storm;
mod tasks;
mod tls;
mod upstream;

pub use activity::Activity;
pub use decide::{Decision, ModelCall, decide};
pub use egress::{Egress, EgressTotals};
pub use error::GatewayError;
pub use gateway::Gateway;
pub use policy::{Credential, ModelPolicy};
pub use tls::authorities_pem;
pub use upstream::{Scheme, Upstream, UpstreamError};
