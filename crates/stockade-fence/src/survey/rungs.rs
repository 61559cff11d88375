//! The rungs, tried in order.

use std::os::fd::OwnedFd;
use std::time::Instant;

use stockade_core::survey::{BubblewrapFacts, CallerFacts, LandlockFacts, Refused, Rung, RungTrial};

use super::namespaces::{self, Walk, Walking, walk};
use super::{Extent, bubblewrap, landlock, refused};

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
        let (rung, walk) = match landlock_in_the_way(landlock) {
            Ok(abi) => (Rung::Nsl, Walk::LandlockAndSeccomp(abi)),
            Err(_) => (Rung::Ns, Walk::Seccomp),
        };
        Self { rung, started, walking: namespaces::begin(caller, walk) }
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

    fn finish(self) -> (Instant, Option<Refused>) {
        (self.started, self.walking.map_or_else(Some, Walking::finish))
    }
}

/// What the trials need to know.
pub(super) struct Climb<'a> {
    pub(super) caller: &'a CallerFacts,
    pub(super) landlock: &'a LandlockFacts,
    pub(super) extent: Extent,
    pub(super) bubblewrap: &'a mut BubblewrapFacts,
}

impl Climb<'_> {
    /// Tries these rungs in their order; of one the trial has begun already, and is left where nobody asks for it.
    pub(super) fn up(&mut self, rungs: &[Rung], first: First) -> Vec<RungTrial> {
        let mut first = Some(first);
        let mut trials = Vec::new();
        for rung in rungs.iter().copied() {
            let (started, refused) = match first.take_if(|f| f.rung == rung) {
                Some(first) => first.finish(),
                None => (Instant::now(), self.try_rung(rung)),
            };
            let elapsed_us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
            let stands = refused.is_none();
            trials.push(RungTrial { rung, refused, elapsed_us });
            if stands && self.extent == Extent::FirstThatStands {
                break;
            }
        }
        if let Some(first) = first {
            first.abandon();
        }
        trials
    }

    fn try_rung(&mut self, rung: Rung) -> Option<Refused> {
        match rung {
            Rung::Nsl => match landlock_in_the_way(self.landlock) {
                Ok(abi) => walk(self.caller, Walk::LandlockAndSeccomp(abi)),
                Err(refused) => Some(refused),
            },
            Rung::Ns => walk(self.caller, Walk::Seccomp),
            Rung::NsNest => walk(self.caller, Walk::Nesting),
            Rung::NsHostproc => walk(self.caller, Walk::HostsProc),
            Rung::Bs => bubblewrap::try_out(self.caller, self.bubblewrap),
        }
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
