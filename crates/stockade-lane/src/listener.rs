//! The model listener of a run on the host's network. Inside an empty network the fence makes it; on the host's it is
//! an ordinary loopback port that others can reach, so its port is free and its key is the run's own.

use std::net::TcpListener;

use stockade_core::{
    mode::NetworkPolicy,
    order::Listener,
    status::{Boundary, Cause, Refusal, Status},
};

/// The listener of a run as far as it is known before the fence is built.
#[derive(Debug)]
pub(crate) struct HostListener {
    /// What the agent is told.
    pub(crate) order: Listener,
    /// The socket, on the host's network.
    pub(crate) socket: Option<TcpListener>,
}

impl HostListener {
    /// Opens a listener where the policy needs one on the host.
    pub(crate) fn for_policy(policy: NetworkPolicy) -> Result<Self, Refusal> {
        if policy != NetworkPolicy::Host {
            return Ok(Self { order: Listener::default(), socket: None });
        }
        let failed = |e: &std::io::Error| {
            Refusal::new(
                Status::LauncherFailed,
                Cause::new(
                    "listener",
                    Boundary::Network,
                    "bind(127.0.0.1)",
                    format!("no loopback port can be opened: {e}"),
                )
                .with_errno(e.raw_os_error().unwrap_or(0)),
            )
        };
        let socket = TcpListener::bind(("127.0.0.1", 0)).map_err(|e| failed(&e))?;
        let port = socket.local_addr().map_err(|e| failed(&e))?.port();
        // 122 random bits of a version 4 UUID: nobody else on this host guesses them within a run.
        let placeholder_key = format!("stockade-{}", uuid::Uuid::new_v4().simple());
        Ok(Self { order: Listener { port, placeholder_key }, socket: Some(socket) })
    }
}
