use std::net::IpAddr;

use proptest::prelude::*;

use super::*;

fn shown(text: &str) -> Result<String, String> {
    Destination::parse(text).map(|d| d.to_string()).map_err(|e| e.to_string())
}

#[test]
fn one_destination_has_one_spelling() {
    for (text, expected) in [
        ("example.com", "example.com:443"),
        ("EXAMPLE.com.:8443", "example.com:8443"),
        ("xn--bcher-kva.example:80", "xn--bcher-kva.example:80"),
        ("localhost:1", "localhost:1"),
        ("a-1.b2", "a-1.b2:443"),
        ("10.1.2.3:8443", "10.1.2.3:8443"),
        ("[2001:DB8:0:0::1]:65535", "[2001:db8::1]:65535"),
        ("[::1]", "[::1]:443"),
    ] {
        assert_eq!(shown(text), Ok(expected.to_owned()), "{text}");
    }
}

#[test]
fn what_could_be_read_in_two_ways_is_no_destination() {
    use DestinationError::{Brackets, Host, Port, Url, UserInfo};
    use HostError::{Empty, Label, Long, NotAscii, Spelling, Wildcard};
    let long_label = format!("{}.example", "a".repeat(64));
    let long_name = ["a".repeat(63), "b".repeat(63), "c".repeat(63), "d".repeat(63)].join(".");
    for (text, expected) in [
        ("", Host(Empty)),
        (".", Host(Empty)),
        (":443", Host(Empty)),
        ("a..b", Host(Label)),
        ("a.b..", Host(Label)),
        (".a", Host(Label)),
        ("-a.b", Host(Label)),
        ("a-.b", Host(Label)),
        ("a_b.c", Host(Label)),
        ("a b", Host(Label)),
        ("a\tb", Host(Label)),
        ("a%2eb", Host(Label)),
        (long_label.as_str(), Host(Label)),
        (long_name.as_str(), Host(Long)),
        ("bücher.example", Host(NotAscii)),
        ("1２7.0.0.1", Host(NotAscii)),
        ("*", Host(Wildcard)),
        ("*.example.com", Host(Wildcard)),
        ("127.1", Host(Spelling)),
        ("2130706433", Host(Spelling)),
        ("0x7f000001", Host(Spelling)),
        ("0x7f.0.0.0X1", Host(Spelling)),
        ("0177.0.0.1", Host(Spelling)),
        ("1.2.3.4.", Host(Spelling)),
        ("1.2.3.4.5", Host(Spelling)),
        ("a.0x", Host(Spelling)),
        ("[::ffff:127.0.0.1]", Host(Spelling)),
        ("[fe80::1%eth0]:443", Host(Spelling)),
        ("[::1", Host(Spelling)),
        ("[::1]x", Host(Spelling)),
        ("[::1]x:443", Host(Spelling)),
        ("[1.2.3.4]", Host(Spelling)),
        ("::1", Brackets),
        ("1:2:3", Brackets),
        ("a:", Port),
        ("a:0", Port),
        ("a:+1", Port),
        ("a:0443", Port),
        ("a:65536", Port),
        ("a:443 ", Port),
        ("https://a", Url),
        ("a/b", Url),
        ("a\\b", Url),
        ("a?b", Url),
        ("me:secret@a", UserInfo),
    ] {
        let error = Destination::parse(text).unwrap_err();
        assert_eq!(error, expected, "{text}");
        assert!(!error.to_string().contains("secret"));
    }
}

#[test]
fn a_destination_is_a_string_in_json() {
    let read: Vec<Destination> = serde_json::from_str(r#"["a.example","[::1]:5"]"#).unwrap();
    assert_eq!(serde_json::to_string(&read).unwrap(), r#"["a.example:443","[::1]:5"]"#);
    assert!(serde_json::from_str::<Destination>(r#""*.a""#).unwrap_err().to_string().contains("wildcards"));
}

#[test]
fn only_ordinary_public_addresses_can_be_led_to() {
    for (address, expected) in [
        ("0.0.0.0", Some("an unspecified address")),
        ("0.1.2.3", Some("an unspecified address")),
        ("10.255.255.255", Some("a private address")),
        ("11.0.0.0", None),
        ("100.64.0.1", Some("an address shared by a carrier's customers")),
        ("100.128.0.0", None),
        ("127.0.0.53", Some("a loopback address")),
        ("169.254.169.254", Some("a link-local address")),
        ("172.15.255.255", None),
        ("172.31.255.255", Some("a private address")),
        ("172.32.0.0", None),
        ("192.0.0.8", Some("an address of a protocol")),
        ("192.0.2.1", Some("a documentation address")),
        ("192.88.99.1", Some("an address of a tunnel")),
        ("192.168.1.1", Some("a private address")),
        ("198.19.0.1", Some("a benchmarking address")),
        ("198.51.100.1", Some("a documentation address")),
        ("203.0.113.1", Some("a documentation address")),
        ("224.0.0.1", Some("a multicast address")),
        ("240.0.0.1", Some("a reserved address")),
        ("255.255.255.255", Some("a broadcast address")),
        ("1.1.1.1", None),
        ("93.184.216.34", None),
        ("::", Some("an unspecified address")),
        ("::1", Some("a loopback address")),
        ("::2", Some("a reserved address")),
        ("::127.0.0.1", Some("a reserved address")),
        ("::ffff:8.8.8.8", Some("an IPv4 address in an IPv6 one")),
        ("64:ff9b::8.8.8.8", None),
        ("64:ff9b::169.254.169.254", Some("a link-local address")),
        ("64:ff9b:1::1", Some("a reserved address")),
        ("100::1", Some("a reserved address")),
        ("2001::1", Some("an address of a protocol")),
        ("2001:db8::1", Some("a documentation address")),
        ("2002:7f00:1::", Some("an address of a tunnel")),
        ("2606:4700::1111", None),
        ("3fff::1", Some("a documentation address")),
        ("5f00::1", Some("a reserved address")),
        ("fd00::1", Some("a private address")),
        ("fe80::1", Some("a link-local address")),
        ("fec0::1", Some("a private address")),
        ("ff02::1", Some("a multicast address")),
    ] {
        assert_eq!(kept_from(address.parse::<IpAddr>().unwrap()), expected, "{address}");
    }
}

#[test]
fn the_model_is_reached_without_the_proxy() {
    let environment = proxy_environment();
    let value = |name: &str| environment.iter().find(|(n, _)| *n == name).map(|(_, v)| v.as_str());
    for name in ["HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"] {
        assert_eq!(value(name), Some("http://127.0.0.1:3128"));
        assert_eq!(value(&name.to_lowercase()), value(name));
    }
    assert_eq!(value("NO_PROXY"), Some("127.0.0.1,localhost,::1"));
    assert_eq!(value("no_proxy"), value("NO_PROXY"));
    let table: toml::Table = format!("set = {}", toml_table(&environment)).parse().unwrap();
    for (name, value) in &environment {
        assert_eq!(table["set"][*name].as_str(), Some(value.as_str()));
    }
    assert_eq!(toml_table(&[]), "{}");
}

proptest! {
    #[test]
    fn what_is_read_is_written_as_it_is_read_again(text in "[a-zA-Z0-9.:\\[\\]-]{0,40}") {
        if let Ok(destination) = Destination::parse(&text) {
            prop_assert_eq!(Destination::parse(&destination.to_string()), Ok(destination));
        }
    }
}
