//! The rungs, tried in order.

use std::time::Instant;

use stockade_core::survey::{CallerFacts, LandlockFacts, Refused, Rung, RungTrial};

use super::namespaces::{Locks, walk};
use super::{Extent, landlock, refused};

/// Tries the rungs best first.
pub(super) fn climb(caller: &CallerFacts, landlock: &LandlockFacts, extent: Extent) -> Vec<RungTrial> {
    let mut trials = Vec::new();
    for rung in Rung::ALL {
        let started = Instant::now();
        let refused = try_rung(rung, caller, landlock);
        let elapsed_us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
        let stands = refused.is_none();
        trials.push(RungTrial { rung, refused, elapsed_us });
        if stands && extent == Extent::FirstThatStands {
            break;
        }
    }
    trials
}

fn try_rung(rung: Rung, caller: &CallerFacts, landlock: &LandlockFacts) -> Option<Refused> {
    match rung {
        Rung::Nsl => match landlock_in_the_way(landlock) {
            Ok(abi) => walk(caller, &Locks::LandlockAndSeccomp(abi)),
            Err(refused) => Some(refused),
        },
        Rung::Ns => walk(caller, &Locks::Seccomp),
    }
}

/// The ABI to use, or what the measurement of Landlock already refused.
fn landlock_in_the_way(facts: &LandlockFacts) -> Result<i32, Refused> {
    if let Some(refused) = &facts.refused {
        return Err(refused.clone());
    }
    match facts.abi {
        Some(abi) if abi >= landlock::NEEDED_ABI => Ok(abi),
        abi => Err(refused(format!("landlock abi {} of {}", abi.unwrap_or(0), landlock::NEEDED_ABI), 0)),
    }
}
