//! Addresses that no name may lead to: everything that is not an ordinary address of the public internet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A range: its first address, the length of its prefix, and what it is.
type Range<A> = (A, u32, &'static str);

/// The special-purpose ranges of IPv4 (IANA's registry, RFC 6890 and its updates; multicast by RFC 5771).
const V4: [Range<Ipv4Addr>; 16] = [
    (Ipv4Addr::UNSPECIFIED, 8, "an unspecified address"),
    (Ipv4Addr::new(10, 0, 0, 0), 8, "a private address"),
    (Ipv4Addr::new(100, 64, 0, 0), 10, "an address shared by a carrier's customers"),
    (Ipv4Addr::new(127, 0, 0, 0), 8, "a loopback address"),
    (Ipv4Addr::new(169, 254, 0, 0), 16, "a link-local address"),
    (Ipv4Addr::new(172, 16, 0, 0), 12, "a private address"),
    (Ipv4Addr::new(192, 0, 0, 0), 24, "an address of a protocol"),
    (Ipv4Addr::new(192, 0, 2, 0), 24, "a documentation address"),
    (Ipv4Addr::new(192, 88, 99, 0), 24, "an address of a tunnel"),
    (Ipv4Addr::new(192, 168, 0, 0), 16, "a private address"),
    (Ipv4Addr::new(198, 18, 0, 0), 15, "a benchmarking address"),
    (Ipv4Addr::new(198, 51, 100, 0), 24, "a documentation address"),
    (Ipv4Addr::new(203, 0, 113, 0), 24, "a documentation address"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, "a multicast address"),
    (Ipv4Addr::BROADCAST, 32, "a broadcast address"),
    (Ipv4Addr::new(240, 0, 0, 0), 4, "a reserved address"),
];

/// What is known by name in IPv6; beyond these only 2000::/3 is in use at all.
const V6: [Range<Ipv6Addr>; 11] = [
    (Ipv6Addr::UNSPECIFIED, 128, "an unspecified address"),
    (Ipv6Addr::LOCALHOST, 128, "a loopback address"),
    (Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96, "an IPv4 address in an IPv6 one"),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, "a link-local address"),
    (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10, "a private address"),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, "a private address"),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, "a multicast address"),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, "an address of a protocol"),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, "a documentation address"),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, "an address of a tunnel"),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, "a documentation address"),
];

/// The addresses in use on the internet (RFC 4291, 2.4).
const GLOBAL: Range<Ipv6Addr> = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3, "");
/// IPv4 through a translator (RFC 6052): as good as the address inside.
const TRANSLATED: Range<Ipv6Addr> = (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96, "");

/// What an address is that a name alone does not lead to, in words; `None`: an ordinary public address.
pub fn kept_from(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(v4) => V4.iter().find(|range| holds_v4(range, v4)).map(|(_, _, what)| *what),
        IpAddr::V6(v6) if holds_v6(&TRANSLATED, v6) => {
            let [.., a, b, c, d] = v6.octets();
            kept_from(Ipv4Addr::new(a, b, c, d).into())
        }
        IpAddr::V6(v6) => V6
            .iter()
            .find(|range| holds_v6(range, v6))
            .map(|(_, _, what)| *what)
            .or_else(|| (!holds_v6(&GLOBAL, v6)).then_some("a reserved address")),
    }
}

fn holds_v4((first, prefix, _): &Range<Ipv4Addr>, address: Ipv4Addr) -> bool {
    let drop = 32 - prefix;
    first.to_bits() >> drop == address.to_bits() >> drop
}

fn holds_v6((first, prefix, _): &Range<Ipv6Addr>, address: Ipv6Addr) -> bool {
    let drop = 128 - prefix;
    first.to_bits() >> drop == address.to_bits() >> drop
}
