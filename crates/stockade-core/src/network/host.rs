//! Names and addresses of hosts, read strictly: one spelling each.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use thiserror::Error;

/// The longest name (RFC 1035, 2.3.4, without the bytes that only the wire needs).
const NAME_BYTES: usize = 253;
/// The longest label (RFC 1035, 2.3.4).
const LABEL_BYTES: usize = 63;

/// A host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// A name.
    Name(HostName),
    /// An address, written as such.
    Address(IpAddr),
}

/// The name of a host in lower case, without a trailing dot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostName(String);

/// Why a text is no host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HostError {
    /// Nothing.
    #[error("it names no host")]
    Empty,
    /// Too long.
    #[error("the name has more than 253 characters")]
    Long,
    /// A label that no name has.
    #[error("a name consists of letters, digits and hyphens, in parts of 1 to 63 between dots")]
    Label,
    /// Letters beyond ASCII.
    #[error("a name beyond ASCII is written in its `xn--` form")]
    NotAscii,
    /// A wildcard.
    #[error("wildcards are not taken: each host is named")]
    Wildcard,
    /// An address in another than its usual spelling.
    #[error("an address is written in its usual form, such as 192.0.2.1 or [2001:db8::1]")]
    Spelling,
}

impl Host {
    /// Reads a host; an IPv6 address stands in brackets.
    ///
    /// What a resolver would take for an address in another spelling (`127.1`, `0x7f000001`, `1.2.3.4.`) is refused, and
    /// so is an IPv4 address in the clothes of IPv6.
    pub fn parse(text: &str) -> Result<Self, HostError> {
        if let Some(inside) = text.strip_prefix('[') {
            let inside = inside.strip_suffix(']').ok_or(HostError::Spelling)?;
            let address: Ipv6Addr = inside.parse().map_err(|_| HostError::Spelling)?;
            if address.to_ipv4_mapped().is_some() {
                return Err(HostError::Spelling);
            }
            return Ok(Self::Address(address.into()));
        }
        if let Ok(address) = text.parse::<Ipv4Addr>() {
            return Ok(Self::Address(address.into()));
        }
        HostName::parse(text).map(Self::Name)
    }
}

impl HostName {
    /// Reads a name. Upper case and one trailing dot are taken and not kept.
    pub fn parse(text: &str) -> Result<Self, HostError> {
        let name = text.strip_suffix('.').unwrap_or(text);
        if name.is_empty() {
            return Err(HostError::Empty);
        }
        if !name.is_ascii() {
            return Err(HostError::NotAscii);
        }
        if name.contains('*') {
            return Err(HostError::Wildcard);
        }
        if name.len() > NAME_BYTES {
            return Err(HostError::Long);
        }
        if !name.split('.').all(is_label) {
            return Err(HostError::Label);
        }
        if name.rsplit('.').next().is_some_and(is_number) {
            return Err(HostError::Spelling);
        }
        Ok(Self(name.to_ascii_lowercase()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn is_label(label: &str) -> bool {
    (1..=LABEL_BYTES).contains(&label.len())
        && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        && !label.starts_with('-')
        && !label.ends_with('-')
}

/// Whether a last label makes resolvers read the whole as an address: decimal, octal or hexadecimal.
fn is_number(label: &str) -> bool {
    let digits = |text: &str, radix: u32| text.chars().all(|c| c.is_digit(radix));
    digits(label, 10)
        || label.strip_prefix("0x").or_else(|| label.strip_prefix("0X")).is_some_and(|hex| digits(hex, 16))
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Address(IpAddr::V4(address)) => address.fmt(f),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}
