//! The list, and what it says about a destination.

use std::{collections::BTreeSet, net::SocketAddr};

use hyper::StatusCode;
use stockade_core::{
    event::network_code,
    network::{Destination, Host, kept_from},
};

/// Why something is turned away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TurnedAway {
    pub(crate) status: StatusCode,
    /// One of [`network_code`].
    pub(crate) code: &'static str,
    /// What the agent is told. Nothing that it could not know already.
    pub(crate) message: String,
    /// What is recorded beside it.
    pub(crate) detail: Option<String>,
}

impl TurnedAway {
    pub(super) fn forbidden(code: &'static str, message: impl Into<String>) -> Self {
        Self { status: StatusCode::FORBIDDEN, code, message: message.into(), detail: None }
    }

    pub(super) fn malformed(code: &'static str, message: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, code, message: message.into(), detail: None }
    }

    pub(super) fn unreachable(code: &'static str, message: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_GATEWAY, code, message: message.into(), detail: None }
    }

    /// Adds what only the record gets.
    #[must_use]
    pub(super) fn recorded(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }
}

/// The list of a run. Nothing changes it.
#[derive(Clone, Debug)]
pub(crate) struct Allowed(BTreeSet<Destination>);

impl Allowed {
    pub(crate) fn new(listed: Vec<Destination>) -> Self {
        Self(listed.into_iter().collect())
    }

    pub(crate) fn lists(&self, to: &Destination) -> bool {
        self.0.contains(to)
    }

    /// Judges a destination before anything is looked up.
    pub(crate) fn judge(&self, to: &Destination) -> Result<(), TurnedAway> {
        if self.lists(to) {
            return Ok(());
        }
        if matches!(to.host, Host::Address(_)) {
            let message = format!("{to} is an address that is not on the list");
            return Err(TurnedAway::forbidden(network_code::EGRESS_LITERAL, message));
        }
        let elsewhere = self.0.iter().any(|listed| listed.host == to.host);
        Err(if elsewhere {
            let message = format!("{} is on the list, but not with port {}", to.host, to.port);
            TurnedAway::forbidden(network_code::EGRESS_PORT, message)
        } else {
            TurnedAway::forbidden(network_code::EGRESS_NOT_LISTED, format!("{} is not on the list", to.host))
        })
    }

    /// What an address is that a name must not lead to; `None`: it may. A special address may where it is listed itself,
    /// with this port.
    pub(super) fn keeps_from(&self, address: SocketAddr) -> Option<&'static str> {
        let itself = Destination { host: Host::Address(address.ip()), port: address.port() };
        if self.lists(&itself) { None } else { kept_from(address.ip()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(listed: &[&str]) -> Allowed {
        Allowed::new(listed.iter().map(|text| Destination::parse(text).unwrap()).collect())
    }

    #[test]
    fn only_what_is_listed_passes_whole_and_with_its_port() {
        let list = allowed(&["a.example", "a.example:8443", "10.1.2.3:80", "[2001:db8::1]:443"]);
        let code = |to: &str| list.judge(&Destination::parse(to).unwrap()).map_err(|t| t.code);
        for to in ["a.example:443", "A.EXAMPLE.:8443", "10.1.2.3:80", "[2001:db8:0::1]"] {
            assert_eq!(code(to), Ok(()), "{to}");
        }
        for (to, expected) in [
            ("a.example:80", network_code::EGRESS_PORT),
            ("b.a.example", network_code::EGRESS_NOT_LISTED),
            ("xa.example", network_code::EGRESS_NOT_LISTED),
            ("a.example.evil.example", network_code::EGRESS_NOT_LISTED),
            ("10.1.2.3:81", network_code::EGRESS_LITERAL),
            ("8.8.8.8", network_code::EGRESS_LITERAL),
            ("[::1]", network_code::EGRESS_LITERAL),
        ] {
            assert_eq!(code(to), Err(expected), "{to}");
        }
    }

    #[test]
    fn a_special_address_has_to_be_listed_itself() {
        let list = allowed(&["a.example:8443", "10.1.2.3:8443"]);
        let kept = |address: &str| list.keeps_from(address.parse().unwrap());
        assert_eq!(kept("10.1.2.3:8443"), None);
        assert_eq!(kept("10.1.2.3:443"), Some("a private address"));
        assert_eq!(kept("10.1.2.4:8443"), Some("a private address"));
        assert_eq!(kept("1.1.1.1:443"), None);
    }
}
