//! Hiding the credential in what comes back: an endpoint may repeat the key it refuses.

use std::fmt;

use bytes::Bytes;
use secrecy::{ExposeSecret, SecretString};

/// Shorter credentials are not searched for: they occur by chance and masking would garble answers.
const SHORTEST_MASKED_BYTES: usize = 8;

/// Replaces every occurrence of one secret by as many asterisks, so that lengths hold.
pub(crate) struct Mask {
    secret: Option<SecretString>,
}

impl fmt::Debug for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mask").finish_non_exhaustive()
    }
}

impl Mask {
    pub(crate) fn new(secret: Option<&str>) -> Self {
        Self { secret: secret.filter(|s| s.len() >= SHORTEST_MASKED_BYTES).map(SecretString::from) }
    }

    fn secret(&self) -> Option<&[u8]> {
        self.secret.as_ref().map(|s| s.expose_secret().as_bytes())
    }

    /// Whether the bytes hold the secret.
    pub(crate) fn finds(&self, bytes: &[u8]) -> bool {
        self.secret().is_some_and(|secret| bytes.windows(secret.len()).any(|w| w == secret))
    }

    /// The text without the secret.
    pub(crate) fn text(&self, text: &str) -> String {
        match &self.secret {
            None => text.to_owned(),
            Some(secret) => text.replace(secret.expose_secret(), &"*".repeat(secret.expose_secret().len())),
        }
    }

    /// The next piece of a stream, masked. Bytes that may begin the secret are held back in `held`; for anything else
    /// nothing waits, so the gaps of a stream stay as they are.
    pub(crate) fn next(&self, held: &mut Vec<u8>, piece: Bytes) -> Bytes {
        let Some(secret) = self.secret() else { return piece };
        if held.is_empty() && !self.finds(&piece) && begun(&piece, secret) == 0 {
            return piece;
        }
        let mut bytes = std::mem::take(held);
        bytes.extend_from_slice(&piece);
        blot(&mut bytes, secret);
        *held = bytes.split_off(bytes.len() - begun(&bytes, secret));
        Bytes::from(bytes)
    }
}

/// How many bytes at the end could be the beginning of the secret.
fn begun(bytes: &[u8], secret: &[u8]) -> usize {
    (1..secret.len())
        .rev()
        .find(|n| secret.get(..*n).is_some_and(|start| bytes.ends_with(start)))
        .unwrap_or(0)
}

fn blot(bytes: &mut [u8], secret: &[u8]) {
    let mut at = 0;
    while let Some(window) = bytes.get_mut(at..at + secret.len()) {
        if window == secret {
            window.fill(b'*');
            at += secret.len();
        } else {
            at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEY: &str = "sk-secret-0123456789";

    fn through(pieces: &[&[u8]]) -> (Vec<usize>, Vec<u8>) {
        let mask = Mask::new(Some(KEY));
        let (mut held, mut out, mut sizes) = (Vec::new(), Vec::new(), Vec::new());
        for piece in pieces {
            let passed = mask.next(&mut held, Bytes::copy_from_slice(piece));
            sizes.push(passed.len());
            out.extend_from_slice(&passed);
        }
        out.extend_from_slice(&held);
        (sizes, out)
    }

    #[test]
    fn passes_what_cannot_begin_the_secret_at_once() {
        let (sizes, out) = through(&[b"data: {}\n\n", b"data: [DONE]\n\n"]);
        assert_eq!(sizes, [10, 14]);
        assert_eq!(out, b"data: {}\n\ndata: [DONE]\n\n");
    }

    #[test]
    fn leaves_short_secrets_alone() {
        assert_eq!(Mask::new(Some("test")).text("a test"), "a test");
        assert_eq!(Mask::new(None).text("a test"), "a test");
        assert_eq!(Mask::new(Some(KEY)).text(&format!("bad key {KEY}!")), "bad key ********************!");
    }

    proptest! {
        #[test]
        fn hides_the_secret_however_it_is_cut(before in "[a-z -]{0,30}", after in "[sk-]{0,30}", cuts in proptest::collection::vec(1usize..12, 0..12)) {
            let whole = format!("{before}{KEY}{after}").into_bytes();
            let (mut rest, mut pieces) = (whole.as_slice(), Vec::new());
            for cut in cuts {
                let (piece, more) = rest.split_at(cut.min(rest.len()));
                pieces.push(piece);
                rest = more;
            }
            pieces.push(rest);
            let (_, out) = through(&pieces);
            prop_assert_eq!(out, format!("{before}{}{after}", "*".repeat(KEY.len())).into_bytes());
        }
    }
}
