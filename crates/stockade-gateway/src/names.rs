//! The name listener: every question is answered at once with "no such name" and recorded.
//!
//! Without it a program waits seconds for a resolver that is not there.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use stockade_core::event::{NetworkVerdict, network_code};
use tokio::{net::UdpSocket, time::sleep};

use crate::{facts::DECISION_LIMIT, shared::Shared};

/// The header of a message (RFC 1035, 4.1.1).
const HEADER_BYTES: usize = 12;
/// The longest name, in bytes (RFC 1035, 2.3.4).
const NAME_BYTES: usize = 255;
/// The longest label, in bytes (RFC 1035, 2.3.4). Longer ones are compression pointers, which a question has no use for.
const LABEL_BYTES: usize = 63;
/// RCODE 3: the name does not exist.
const NXDOMAIN: u8 = 3;
/// Questions fit the smallest message; longer ones are cut by the read and ignored as malformed.
const MESSAGE_BYTES: usize = 1_500;
/// How long reading rests after an error.
const REST_AFTER_ERROR: Duration = Duration::from_millis(50);

/// Answers until the gateway ends.
pub(crate) async fn listen(shared: Arc<Shared>, socket: UdpSocket) {
    let mut stop = shared.tasks.stop();
    let mut seen = BTreeSet::new();
    let mut message = [0; MESSAGE_BYTES];
    loop {
        let received = tokio::select! {
            received = socket.recv_from(&mut message) => received,
            () = stop.asked() => return,
        };
        let Ok((length, from)) = received else {
            sleep(REST_AFTER_ERROR).await;
            continue;
        };
        let Some((name, reply)) = message.get(..length).and_then(answer) else { continue };
        // A reply that cannot be sent is a question that will be asked again.
        let _unsent = socket.try_send_to(&reply, from).is_err();
        // One more than is told one by one, so that the note about more comes.
        let room = seen.len() <= usize::try_from(DECISION_LIMIT).unwrap_or(usize::MAX);
        if room && seen.insert(name.clone()) {
            shared
                .facts
                .decision(network_code::NAME, NetworkVerdict::Refused, &name, "answered: no such name")
                .await;
        }
    }
}

/// The name asked for and the reply, or nothing for what is no question.
pub(crate) fn answer(message: &[u8]) -> Option<(String, Vec<u8>)> {
    let header = message.get(..HEADER_BYTES)?;
    let (flags, count) = (*header.get(2)?, header.get(4..6)?);
    let is_reply_or_other = flags & 0b1111_1000 != 0;
    if is_reply_or_other || count != [0, 1] {
        return None;
    }
    let (name, after) = name(message)?;
    let question = message.get(HEADER_BYTES..after + 4)?;
    let mut reply = Vec::with_capacity(HEADER_BYTES + question.len());
    reply.extend_from_slice(header.get(..2)?);
    // A reply, recursion desired as asked, recursion available.
    reply.extend_from_slice(&[0b1000_0000 | (flags & 1), 0b1000_0000 | NXDOMAIN]);
    reply.extend_from_slice(&[0, 1, 0, 0, 0, 0, 0, 0]);
    reply.extend_from_slice(question);
    Some((name, reply))
}

/// The name after the header, in lower case and printable, and the index behind it.
fn name(message: &[u8]) -> Option<(String, usize)> {
    let (mut name, mut at) = (String::new(), HEADER_BYTES);
    loop {
        let length = usize::from(*message.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        if length > LABEL_BYTES || at + length - HEADER_BYTES >= NAME_BYTES {
            return None;
        }
        if !name.is_empty() {
            name.push('.');
        }
        for byte in message.get(at..at + length)? {
            match byte {
                b'!'..=b'~' => name.push(char::from(byte.to_ascii_lowercase())),
                _ => name.push('?'),
            }
        }
        at += length;
    }
    if name.is_empty() {
        name.push('.');
    }
    Some((name, at))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn question(name: &[u8]) -> Vec<u8> {
        let mut message = vec![0xab, 0xcd, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        message.extend_from_slice(name);
        message.extend_from_slice(&[0, 28, 0, 1]);
        message
    }

    #[test]
    fn answers_no_such_name_with_id_and_question() {
        let asked = question(b"\x03API\x06github\x03com\x00");
        let (name, reply) = answer(&asked).unwrap();
        assert_eq!(name, "api.github.com");
        assert_eq!(reply.get(..4), Some(&[0xab, 0xcd, 0x81, 0x83][..]));
        assert_eq!(reply.get(4..), asked.get(4..));
    }

    #[test]
    fn ignores_what_is_no_question() {
        let whole = question(b"\x01a\x00");
        for length in 0..whole.len() {
            assert_eq!(answer(whole.get(..length).unwrap()), None, "{length} bytes");
        }
        let mut reply = whole.clone();
        reply[2] |= 0x80;
        assert_eq!(answer(&reply), None);
        let mut two = whole;
        two[5] = 2;
        assert_eq!(answer(&two), None);
        assert_eq!(answer(&question(b"\xc0\x0c")), None, "a compression pointer");
        let long = [[&[63][..], &[b'a'; 63]].concat().repeat(4), vec![0]].concat();
        assert_eq!(answer(&question(&long)), None, "a name of 257 bytes");
    }

    proptest! {
        #[test]
        fn never_panics(message in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Some((name, reply)) = answer(&message) {
                prop_assert!(name.is_ascii() && reply.len() <= message.len());
            }
        }
    }
}
