//! The rungs, tried in order.

use std::os::fd::OwnedFd;
use std::time::Instant;

use stockade_core::survey::{CallerFacts, LandlockFacts, Refused, Rung, RungTrial};

use super::namespaces::{self, Locks, Walking, walk};
use super::{Extent, landlock, refused};

/// The rungs that can be tried.
const TRIED: [Rung; 2] = [Rung::Nsl, Rung::Ns];

/// The best rung that the host may have, on trial.
#[derive(Debug)]
pub(super) struct First {
    rung: Rung,
    started: Instant,
    walking: Result<Walking, Refused>,
}

impl First {
    /// Begins the trial. Rungs that are refused without one are left to [`climb`].
    pub(super) fn begin(caller: &CallerFacts, landlock: &LandlockFacts) -> Self {
        let started = Instant::now();
        let (rung, locks) = match landlock_in_the_way(landlock) {
            Ok(abi) => (Rung::Nsl, Locks::LandlockAndSeccomp(abi)),
            Err(_) => (Rung::Ns, Locks::Seccomp),
        };
        Self { rung, started, walking: namespaces::begin(caller, &locks) }
    }

    /// See [`Walking::owners`].
    pub(super) fn owners(&self) -> Option<&OwnedFd> {
        self.walking.as_ref().ok()?.owners()
    }

    /// Leaves the trial to end by itself.
    pub(super) fn abandon(self) {
        if let Ok(walking) = self.walking {
            walking.abandon();
        }
    }

    fn finish(self) -> (Rung, Instant, Option<Refused>) {
        (self.rung, self.started, self.walking.map_or_else(Some, Walking::finish))
    }
}

/// Tries the rungs best first; of one the trial has begun already.
pub(super) fn climb(
    caller: &CallerFacts,
    landlock: &LandlockFacts,
    extent: Extent,
    first: First,
) -> Vec<RungTrial> {
    let (begun, began, outcome) = first.finish();
    let mut outcome = Some(outcome);
    let mut trials = Vec::new();
    for rung in TRIED {
        let (started, refused) = match outcome.take_if(|_| rung == begun) {
            Some(refused) => (began, refused),
            None => (Instant::now(), try_rung(rung, caller, landlock)),
        };
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
        Rung::Ns | Rung::NsNest | Rung::NsHostproc | Rung::Bs => walk(caller, &Locks::Seccomp),
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
