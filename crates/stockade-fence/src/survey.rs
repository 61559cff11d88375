//! The survey: what this host can do, measured by doing it once in a child that ends at once.
//!
//! Nothing is concluded from version numbers, marker files or the presence of a program, and nothing is kept
//! from one process to the next. `stockade-core` holds the types and decides; this module only measures.

use std::ffi::OsString;

use stockade_core::survey::{Refused, Rung, Survey};

use crate::errno::errno_name;

mod bubblewrap;
mod host;
mod interception;
mod landlock;
mod namespaces;
mod rungs;
mod seccomp;
mod steps;
mod trial;

/// How many rungs are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Stop at the first rung that stands: what a run needs.
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
pub fn measure(request: &SurveyRequest) -> Survey {
    let status = host::ProcessStatus::read();
    let caller = host::caller();
    let mut landlock = landlock::version_only();
    let rungs = rungs::climb(&caller, &landlock, request.extent);
    // The best rung has seen both locks bite, and in a Landlock domain nothing can be mounted: where it stands, nothing
    // is left to measure. Else each part is tried alone, so that the refusal can name it.
    let best_stands = rungs.iter().any(|t| t.rung == Rung::Nsl && t.refused.is_none());
    let in_detail = !best_stands || request.extent == Extent::EveryRung;
    let seccomp_refused = if in_detail { seccomp::try_filter() } else { None };
    if in_detail {
        landlock = landlock::measure();
    }
    let (kernel, machine) = host::kernel();
    Survey {
        kernel,
        machine,
        outer: interception::outer_fence(&status, landlock.layers_in_use),
        caller,
        landlock,
        seccomp_refused,
        rungs,
        bubblewrap: bubblewrap::look_up(request.path.as_deref()),
        lsm: host::lsm(),
    }
}

/// A refused step with the name of its error number.
fn refused(step: impl Into<String>, errno: i32) -> Refused {
    Refused { step: step.into(), errno, errno_name: errno_name(errno).to_owned() }
}
