//! Capabilities away, and none to be gained.

use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::error::{FenceError, Step};

/// Capability numbers are below this in every kernel (`CAP_LAST_CAP` is 40 today; the sets have 64 bits).
const CAPABILITIES: u64 = 64;

/// What may become of the bounding set: the capabilities that an exec could give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bounding {
    /// It becomes empty.
    Emptied,
    /// It becomes empty where a security module lets this process empty it. Where not, `no_new_privs` alone keeps an exec
    /// from giving any of it.
    EmptiedIfAllowed,
}

/// Drops every capability from every set of this process and forbids gaining any by exec.
pub(crate) fn drop_all(bounding: Bounding) -> Result<(), FenceError> {
    for number in 0..CAPABILITIES {
        let Some(one) = CapabilitySet::from_bits(1 << number) else { continue };
        match rustix::thread::remove_capability_from_bounding_set(one) {
            // EINVAL: a number this kernel does not have.
            Ok(()) | Err(Errno::INVAL) => {}
            Err(Errno::PERM) if bounding == Bounding::EmptiedIfAllowed => {}
            Err(e) => return Err(e).step("prctl(CAPBSET_DROP)"),
        }
    }
    rustix::thread::clear_ambient_capability_set().step("prctl(CAP_AMBIENT_CLEAR_ALL)")?;
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, none).step("capset")?;
    rustix::thread::set_no_new_privs(true).step("prctl(NO_NEW_PRIVS)")
}
