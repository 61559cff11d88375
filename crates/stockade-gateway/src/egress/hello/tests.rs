use proptest::prelude::*;

use super::*;

fn vector16(content: &[u8]) -> Vec<u8> {
    [&u16::try_from(content.len()).unwrap().to_be_bytes()[..], content].concat()
}

fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &vector16(content)].concat()
}

fn named(name: &[u8]) -> Vec<u8> {
    extension(SERVER_NAME, &vector16(&[&[HOST_NAME][..], &vector16(name)].concat()))
}

/// The handshake message of a hello with these extensions.
fn handshake(extensions: &[u8]) -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend([0, 0, 2, 0x13, 1, 1, 0]);
    body.extend(vector16(extensions));
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&[CLIENT_HELLO][..], &length[1..], &body].concat()
}

fn record(fragment: &[u8]) -> Vec<u8> {
    [&[HANDSHAKE, 3, 1][..], &vector16(fragment)].concat()
}

fn hello(extensions: &[u8]) -> Vec<u8> {
    record(&handshake(extensions))
}

#[test]
fn the_name_is_found_however_the_message_is_cut() {
    let extensions = [extension(10, &[0, 2, 0, 29]), named(b"A.example"), extension(43, &[2, 3, 4])].concat();
    let whole = hello(&extensions);
    assert_eq!(read(&whole), Hello::Named("A.example".to_owned()));
    for length in 0..whole.len() {
        assert_eq!(read(&whole[..length]), Hello::More, "{length} bytes");
    }
    let message = handshake(&extensions);
    for size in [1, 3, 4, 50] {
        let cut: Vec<u8> = message.chunks(size).flat_map(record).collect();
        assert_eq!(read(&cut), Hello::Named("A.example".to_owned()), "records of {size} bytes");
    }
    let early = [whole, vec![20, 3, 3, 0, 1, 1, 23, 3, 3, 0, 1, 9]].concat();
    assert_eq!(read(&early), Hello::Named("A.example".to_owned()), "early data follows");
}

#[test]
fn what_is_no_plain_hello_is_told_apart() {
    let two_names = vector16(&[&[HOST_NAME][..], &vector16(b"a"), &[HOST_NAME], &vector16(b"b")].concat());
    for (what, bytes, expected) in [
        ("no extension", hello(&[]), Hello::Unnamed),
        ("no name", hello(&extension(43, &[2, 3, 4])), Hello::Unnamed),
        (
            "a hidden name",
            hello(&[named(b"a"), extension(ENCRYPTED_CLIENT_HELLO, &[0])].concat()),
            Hello::Hidden,
        ),
        ("the name twice", hello(&[named(b"a"), named(b"b")].concat()), Hello::Other),
        ("two names", hello(&extension(SERVER_NAME, &two_names)), Hello::Other),
        ("an empty name", hello(&named(b"")), Hello::Other),
        ("a name with a zero", hello(&named(b"a\0b")), Hello::Other),
        ("a name beyond ASCII", hello(&named("ä".as_bytes())), Hello::Other),
        ("another kind of name", hello(&extension(SERVER_NAME, &[0, 4, 1, 0, 1, b'a'])), Hello::Other),
        ("SSH", b"SSH-2.0-OpenSSH_9\r\n".to_vec(), Hello::Other),
        ("HTTP", b"GET / HTTP/1.1\r\n\r\n".to_vec(), Hello::Other),
        ("one byte of HTTP", b"G".to_vec(), Hello::Other),
        ("SSL 2", vec![0x80, 0x2e, 1, 3, 1], Hello::Other),
        ("a server's hello", record(&[&[2][..], &handshake(&[])[1..]].concat()), Hello::Other),
        ("an alert", vec![21, 3, 3, 0, 2, 2, 0], Hello::Other),
        ("an empty record", vec![HANDSHAKE, 3, 1, 0, 0], Hello::Other),
        ("a record that is too long", vec![HANDSHAKE, 3, 1, 0x40, 1], Hello::Other),
        ("a message that is too long", record(&[CLIENT_HELLO, 0, 0x40, 1, 0]), Hello::Other),
        ("two messages in one record", record(&handshake(&named(b"a")).repeat(2)), Hello::Other),
    ] {
        assert_eq!(read(&bytes), expected, "{what}");
    }
}

proptest! {
    #[test]
    fn more_bytes_never_change_what_was_read(bytes in proptest::collection::vec(any::<u8>(), 0..80), at in 0..200_usize, tail in any::<[u8; 9]>()) {
        let mut mixed = hello(&named(b"a.example"));
        let at = at.min(mixed.len());
        mixed.splice(at..at, bytes);
        let first = read(&mixed);
        if first != Hello::More {
            prop_assert_eq!(read(&[&mixed[..], &tail].concat()), first);
        }
    }
}
