//! Who vouches for an executable, and the facts a receipt states about it.

use serde::{Deserialize, Serialize};

use crate::digest::Sha256Digest;

/// Who vouches for an executable's digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PinKind {
    /// The list shipped with this Stockade.
    Stockade,
    /// The person, by a digest given when the version was provisioned.
    User,
    /// The list of an earlier Stockade; the present list does not name this version.
    Retired,
    /// Nobody: a file named for one run.
    Unpinned,
}

impl PinKind {
    /// The word used in receipts and lists.
    pub const fn id(self) -> &'static str {
        match self {
            Self::Stockade => "stockade",
            Self::User => "user",
            Self::Retired => "retired",
            Self::Unpinned => "unpinned",
        }
    }
}

/// What a receipt states about the executable that ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RuntimeFacts {
    /// The provider's name, such as `grok`.
    pub name: String,
    /// The installed version; unknown for a file named by the caller.
    pub version: Option<String>,
    /// The digest of the executable.
    pub sha256: Sha256Digest,
    /// Who vouches for that digest.
    pub pin: PinKind,
}
