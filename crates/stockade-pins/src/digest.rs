//! Digests as they are written in pins, records and flags.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256, Sha512};

use crate::error::{PinError, PinErrorKind, Step};

/// A SHA-256 digest, written as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sha256Digest([u8; 32]);

impl Sha256Digest {
    pub(crate) fn of(hasher: Sha256) -> Self {
        Self(hasher.finalize().into())
    }
}

impl fmt::Display for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Sha256Digest {
    type Err = PinError;

    fn from_str(text: &str) -> Result<Self, PinError> {
        let wrong =
            || PinError::new(PinErrorKind::Usage, Step::ReadRequest, "a sha256 has 64 hexadecimal digits");
        let mut bytes = [0; 32];
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        if pairs.len() != bytes.len() || !rest.is_empty() {
            return Err(wrong());
        }
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            *byte = (nibble(*high).ok_or_else(wrong)? << 4) | nibble(*low).ok_or_else(wrong)?;
        }
        Ok(Self(bytes))
    }
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

impl Serialize for Sha256Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Sha256Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// The registry's own digest of a tarball, written `sha512-BASE64` as npm does.
#[derive(Clone, PartialEq, Eq)]
pub struct Integrity([u8; 64]);

impl Integrity {
    pub(crate) fn of(hasher: Sha512) -> Self {
        Self(hasher.finalize().into())
    }
}

impl fmt::Display for Integrity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha512-{}", STANDARD.encode(self.0))
    }
}

impl fmt::Debug for Integrity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Integrity {
    type Err = PinError;

    fn from_str(text: &str) -> Result<Self, PinError> {
        text.strip_prefix("sha512-")
            .and_then(|encoded| STANDARD.decode(encoded).ok())
            .and_then(|bytes| bytes.try_into().ok())
            .map(Self)
            .ok_or_else(|| {
                PinError::new(
                    PinErrorKind::Usage,
                    Step::ReadPins,
                    "an integrity value is `sha512-` and base64 of 64 bytes",
                )
            })
    }
}

impl<'de> Deserialize<'de> for Integrity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sha256_survives_the_round_trip_and_takes_upper_case() {
        let text = "9ce03ed23e16ea01072b4496263d6213a27899e1e3e107f008d36edf82e70407";
        let digest: Sha256Digest = text.to_uppercase().parse().unwrap();
        assert_eq!(digest.to_string(), text);
    }

    #[test]
    fn wrong_digests_are_refused() {
        for text in ["", "9c", &"g".repeat(64), &"a".repeat(63), &"a".repeat(65), &"é".repeat(32)] {
            assert_eq!(text.parse::<Sha256Digest>().unwrap_err().kind(), PinErrorKind::Usage, "{text}");
        }
        for text in ["", "sha512-", "sha256-AAAA", "sha512-AAAA", "sha512-!"] {
            assert!(text.parse::<Integrity>().is_err(), "{text}");
        }
    }
}
