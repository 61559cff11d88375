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
                None => (Instant::now(), self.known(rung, &trials).or_else(|| self.try_rung(rung))),
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

    /// What bubblewrap would be refused, too, as a direct rung has shown: it makes the same calls, and only a security module
    /// that knows it by name lets it do more. Starting it takes longer than all other trials.
    fn known(&self, rung: Rung, trials: &[RungTrial]) -> Option<Refused> {
        let shown = |refused: &&Refused| match (refused.step.as_str(), refused.errno) {
            // No namespace is left, or the kernel has none, or somebody else answers in its place.
            ("clone(NEWUSER)", libc::ENOSPC | libc::ENOSYS | libc::EINVAL | libc::EPROTO) => true,
            ("mount(MS_PRIVATE)", libc::EPERM) => self.landlock.abi.is_some() && landlock::is_in_domain(),
            _ => false,
        };
        let refused = trials.iter().filter_map(|trial| trial.refused.as_ref());
        if rung == Rung::Bs { { refused }.find(shown).cloned() } else { None }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_number_the_kernel_says_landlock_is_tried_or_refused_by_name() {
        let facts = |abi| LandlockFacts { abi, refused: None, layers_in_use: 0 };
        for abi in [6, 7, 9999, i32::MAX] {
            assert_eq!(landlock_in_the_way(&facts(Some(abi))), Ok(abi));
        }
        for (abi, step) in [
            (None, "landlock abi 0 of 6"),
            (Some(0), "landlock abi 0 of 6"),
            (Some(5), "landlock abi 5 of 6"),
            (Some(-7), "landlock abi -7 of 6"),
        ] {
            assert_eq!(landlock_in_the_way(&facts(abi)), Err(refused(step, 0)));
        }
    }
}
