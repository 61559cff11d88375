//! The stream of `git cat-file --batch`: digests of contents, without keeping them.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

/// The size and the SHA-256 of an object's content.
pub(super) type Digests = BTreeMap<String, (u64, String)>;

/// A header is an object's name, its kind and its size.
const HEADER_LIMIT_BYTES: usize = 256;

/// Reads the stream piece by piece.
#[derive(Debug, Default)]
pub(super) struct BatchReader {
    header: Vec<u8>,
    body: Option<Body>,
    /// What was read whole.
    pub(super) digests: Digests,
}

#[derive(Debug)]
struct Body {
    object: String,
    size: u64,
    left: u64,
    hasher: Sha256,
}

impl BatchReader {
    /// Takes the next piece.
    pub(super) fn read(&mut self, mut bytes: &[u8]) -> Result<(), String> {
        while !bytes.is_empty() {
            bytes = match self.body.take() {
                None => self.head(bytes)?,
                Some(body) => self.content(body, bytes),
            };
        }
        Ok(())
    }

    fn head<'b>(&mut self, bytes: &'b [u8]) -> Result<&'b [u8], String> {
        let end = bytes.iter().position(|b| *b == b'\n');
        let (line, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
        self.header.extend_from_slice(line);
        if self.header.len() > HEADER_LIMIT_BYTES {
            return Err("git cat-file said something else than objects".to_owned());
        }
        if end.is_none() {
            return Ok(rest);
        }
        let header = String::from_utf8_lossy(&std::mem::take(&mut self.header)).into_owned();
        let mut words = header.split(' ');
        // The newline after a content stands before the next header.
        if let (Some(object), Some(_kind), Some(size)) = (words.next(), words.next(), words.next()) {
            let size = size.parse().map_err(|_| "git cat-file named no size".to_owned())?;
            self.body = Some(Body { object: object.to_owned(), size, left: size, hasher: Sha256::new() });
            if size == 0 {
                self.finish();
            }
        }
        Ok(rest.get(1..).unwrap_or_default())
    }

    fn content<'b>(&mut self, mut body: Body, bytes: &'b [u8]) -> &'b [u8] {
        let take = usize::try_from(body.left).unwrap_or(usize::MAX).min(bytes.len());
        let (part, rest) = bytes.split_at(take);
        body.hasher.update(part);
        body.left -= take as u64;
        let done = body.left == 0;
        self.body = Some(body);
        if done {
            self.finish();
        }
        rest
    }

    fn finish(&mut self) {
        if let Some(body) = self.body.take() {
            self.digests.insert(body.object, (body.size, hex(&body.hasher.finalize())));
        }
    }
}

fn hex(digest: &[u8]) -> String {
    digest.iter().fold(String::with_capacity(64), |text, byte| text + &format!("{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_digested_however_the_stream_is_cut() {
        let stream = b"aa blob 3\nabc\nbb blob 0\n\ncc missing\ndd blob 1\n\n\n";
        let of = |text: &[u8]| hex(&Sha256::digest(text));
        let expected: Digests = [("aa", 3, of(b"abc")), ("bb", 0, of(b"")), ("dd", 1, of(b"\n"))]
            .into_iter()
            .map(|(o, n, d)| (o.to_owned(), (n, d)))
            .collect();
        for size in 1..=stream.len() {
            let mut reader = BatchReader::default();
            for part in stream.chunks(size) {
                reader.read(part).unwrap();
            }
            assert_eq!(reader.digests, expected, "pieces of {size}");
        }
    }
}
