//! Pinned provider executables: which ones Stockade vouches for, how they get onto this machine, and the proof before every
//! run that they are still the same.
//!
//! Everything lives below `STATE/providers/`: an installed version is the folder `NAME/VERSION/` (0755) with its files (0555)
//! and a record, `pin.json`. Unfinished work stands in `.staging/` and is moved into place by one rename, so that a version is
//! either wholly there or not at all.
//!
//! The library prints nothing and reads no environment: proxies, certificate files, the state directory and the time come from
//! the caller. Two of its dependencies look at the environment all the same: `rustls-native-certs` reads `SSL_CERT_FILE` and
//! `SSL_CERT_DIR` when [`Network`] names neither, and `ureq` reads the proxy variables for a default that is always replaced.

mod beneath;
mod digest;
mod error;
mod executable;
mod http;
mod install;
mod kind;
mod list;
mod lock;
mod network;
mod progress;
mod provision;
mod record;
mod source;
mod spec;
mod stage;
mod stamp;
mod store;
mod target;
mod unpack;
mod verify;

pub use digest::{Integrity, Sha256Digest};
pub use error::{PinError, PinErrorKind, Step};
pub use executable::executable_file;
pub use kind::{PinKind, RuntimeFacts};
pub use list::{Pin, PinFile, PinList, Transform};
pub use network::{NPM_REGISTRY, Network};
pub use progress::{Phase, Progress};
pub use provision::{Outcome, ProvisionRequest, Provisioned};
pub use record::{Record, RecordedFile};
pub use spec::ProviderSpec;
pub use stamp::Stamp;
pub use store::{Installed, Listed, Listing, Store};
pub use verify::Verified;

/// The npm registry's answer is refused above this many bytes when a pin names no size of its own.
pub(crate) const MAX_TARBALL_BYTES: u64 = 1 << 30;
/// No installed file may be larger than this; the largest agent known today has 0.4 GB.
pub(crate) const MAX_FILE_BYTES: u64 = 2 << 30;
/// Bytes read, hashed and written at a time, between two looks at the caller's wish to cancel.
pub(crate) const CHUNK_BYTES: usize = 256 * 1024;
