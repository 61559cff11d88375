//! The survey: what this host can do, measured by doing it once in a child that ends at once.
//!
//! Nothing is concluded from version numbers, marker files or the presence of a program, and nothing is kept
//! from one process to the next. `stockade-core` holds the types and decides; this module only measures.

use std::ffi::OsString;
use std::path::Path;

use stockade_core::survey::{CallerFacts, LandlockFacts, Refused, Rung, Survey};

use crate::errno::errno_name;
use crate::error::FenceError;
use crate::idmap;
use crate::sys::machine;

mod bubblewrap;
mod cgroups;
mod host;
mod interception;
mod landlock;
mod namespaces;
mod programs;
mod rungs;
mod seccomp;
mod steps;
mod trial;

/// How many of the rungs that are asked for are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Stop at the first that stands: what a run needs.
    FirstThatStands,
    /// Try every rung: what a person who asks about the host wants to see.
    EveryRung,
}

/// What the survey needs to be told, because a library reads neither the environment nor its arguments.
#[derive(Clone, Debug)]
pub struct SurveyRequest {
    /// The value of `PATH` in which bubblewrap is looked up; `None`: there is none.
    pub path: Option<OsString>,
    /// How many rungs are tried.
    pub extent: Extent,
}

/// Measures the host. Takes a few milliseconds; every wait inside is bounded.
///
/// Forks short-lived children, so the caller should have a single thread (a runtime that is idle does no harm:
/// the children make system calls only).
pub fn measure(request: SurveyRequest, rungs: &[Rung]) -> Survey {
    Measuring::begin(request).finish(rungs)
}

/// A survey whose longest part, the trial of the best rung, goes on beside whatever its caller does meanwhile.
#[derive(Debug)]
pub struct Measuring {
    request: SurveyRequest,
    status: host::ProcessStatus,
    caller: CallerFacts,
    landlock: LandlockFacts,
    /// Taken by `finish`, and left to itself by a drop.
    first: Option<rungs::First>,
}

impl Measuring {
    /// Begins. Forks, so the same holds as for [`measure`].
    pub fn begin(request: SurveyRequest) -> Self {
        let status = host::ProcessStatus::read();
        let caller = host::caller();
        let landlock = landlock::version_only();
        let first = Some(rungs::First::begin(&caller, &landlock));
        Self { request, status, caller, landlock, first }
    }

    /// Tries to map the owners of what lies at the path. Works on root hosts only.
    ///
    /// An error of kind [`CannotIdmap`](crate::FenceErrorKind::CannotIdmap) says that the file system does not take part;
    /// every other kind, that the attempt itself was refused.
    pub fn can_idmap(&self, path: &Path) -> Result<(), FenceError> {
        idmap::try_on(path, self.first.as_ref().and_then(rungs::First::owners))
    }

    /// Waits for the trial and measures the rest. The rungs are tried in this order.
    pub fn finish(mut self, rungs: &[Rung]) -> Survey {
        let first = self.first.take().unwrap_or_else(|| rungs::First::begin(&self.caller, &self.landlock));
        let mut bubblewrap = bubblewrap::look_up(self.request.path.as_deref());
        let mut climb = rungs::Climb {
            caller: &self.caller,
            landlock: &self.landlock,
            extent: self.request.extent,
            bubblewrap: &mut bubblewrap,
        };
        let rungs = climb.up(rungs, first);
        // The best rung has seen both locks bite, and in a Landlock domain nothing can be mounted: where it stands,
        // nothing is left to measure. Else each part is tried alone, so that the refusal can name it.
        let best_stands = rungs.iter().any(|t| t.rung == Rung::Nsl && t.refused.is_none());
        let in_detail = !best_stands || self.request.extent == Extent::EveryRung;
        let seccomp_refused = if in_detail { seccomp::try_filter() } else { None };
        let landlock = if in_detail { landlock::measure() } else { self.landlock.clone() };
        let (kernel, machine) = machine::release_and_machine();
        Survey {
            kernel,
            machine,
            outer: interception::outer_fence(&self.status, landlock.layers_in_use),
            caller: self.caller.clone(),
            landlock,
            seccomp_refused,
            rungs,
            bubblewrap,
            socat: programs::first("socat", self.request.path.as_deref()),
            cgroups: cgroups::find(),
            lsm: host::lsm(),
        }
    }
}

impl Drop for Measuring {
    fn drop(&mut self) {
        if let Some(first) = self.first.take() {
            first.abandon();
        }
    }
}

/// A refused step with the name of its error number.
fn refused(step: impl Into<String>, errno: i32) -> Refused {
    Refused { step: step.into(), errno, errno_name: errno_name(errno).to_owned() }
}
