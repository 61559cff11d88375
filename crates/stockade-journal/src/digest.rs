//! SHA-256 as lower-case hex, of bytes and of open files.

use std::{fmt::Write as _, os::fd::AsFd};

use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use crate::files::CHUNK_BYTES;

/// The digest of `bytes`.
pub fn sha256_hex(bytes: &[u8]) -> String {
    finish(Sha256::new_with_prefix(bytes))
}

pub(crate) fn finish(hasher: Sha256) -> String {
    let mut text = String::with_capacity(64);
    for byte in hasher.finalize() {
        // Writing to a string cannot fail.
        let _infallible = write!(text, "{byte:02x}");
    }
    text
}

/// Hashes an open file from where it stands to its end, `limit` bytes at most. Gives the digest and the bytes read;
/// `None` if the file holds more than the limit.
pub(crate) fn of_file(file: impl AsFd, limit: u64) -> Result<Option<(String, u64)>, Errno> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut total: u64 = 0;
    loop {
        let n = crate::files::read_some(&file, &mut buffer)?;
        if n == 0 {
            return Ok(Some((finish(hasher), total)));
        }
        total = total.saturating_add(n as u64);
        if total > limit {
            return Ok(None);
        }
        hasher.update(buffer.get(..n).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_the_published_digest_of_abc() {
        assert_eq!(sha256_hex(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
