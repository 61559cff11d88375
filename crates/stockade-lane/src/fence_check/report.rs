//! What a check found.

use std::time::Duration;

use serde::Serialize;
use stockade_core::{
    guarantee::Guarantee,
    mode::AccessMode,
    plan::LaunchPlan,
    survey::{Rung, RungTrial},
};
use stockade_fence::probes::{
    KernelUser, Observation, Observed, PROBES, Probe, ProcessLimit, Setting, host::Damage,
};

/// How a check ended.
#[derive(Clone, Debug)]
pub enum Checked {
    /// Every probe was taken.
    Done(Box<FenceCheck>),
    /// The caller stopped it.
    Stopped,
}

/// The wall of this host, as the probes found it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FenceCheck {
    /// The rung.
    pub rung: Rung,
    /// Whether a sandbox can be nested inside.
    pub nesting: bool,
    /// Every guarantee in every mode.
    pub guarantees: Vec<CheckedGuarantee>,
    /// Every probe in every mode.
    pub probes: Vec<CheckedProbe>,
    /// What had changed when it was looked at from outside.
    pub outside: Vec<FoundOutside>,
    /// Better rungs, and what they lack here.
    pub rejected_rungs: Vec<RungTrial>,
    /// How long all of it took.
    pub elapsed_ms: u64,
}

/// A guarantee and the probes that try to break it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckedGuarantee {
    /// Which.
    pub id: Guarantee,
    /// The mode.
    pub mode: AccessMode,
    /// Whether the mode requires it.
    pub required: bool,
    /// Whether this rung holds it.
    pub held: bool,
    /// By what, or why not.
    pub mechanism: String,
    /// Its probes.
    pub probes: usize,
    /// Those that were as expected.
    pub passed: usize,
}

/// One probe in one mode.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckedProbe {
    /// The name of its row.
    pub id: &'static str,
    /// The guarantee it tries to break.
    pub guarantee: Guarantee,
    /// The mode.
    pub mode: AccessMode,
    /// What it does.
    pub action: &'static str,
    /// What was to be observed.
    pub expected: &'static str,
    /// What was observed; `not taken`, where nothing was.
    pub observed: String,
    /// How far it came, where there is more to say.
    pub detail: String,
    /// What the same action did outside.
    pub control: String,
    /// Whether the observation, or the one outside, is not the expected one.
    pub unexpected: bool,
}

/// Something that should not be as it is.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FoundOutside {
    /// The mode of the fence.
    pub mode: AccessMode,
    /// What it is.
    pub what: String,
}

impl FenceCheck {
    /// Whether everything is as it has to be.
    pub fn is_sound(&self) -> bool {
        self.outside.is_empty() && self.probes.iter().all(|probe| !probe.unexpected)
    }
}

/// What was found in the fence of one mode.
#[derive(Debug)]
pub(super) struct Inside {
    pub(super) plan: LaunchPlan,
    pub(super) observed: Vec<Observation>,
    pub(super) user: KernelUser,
    pub(super) processes: ProcessLimit,
    pub(super) damage: Vec<Damage>,
}

pub(super) fn report(modes: &[Inside], outside: &[Observation], elapsed: Duration) -> FenceCheck {
    let probes: Vec<_> = modes.iter().flat_map(|inside| checked(inside, outside)).collect();
    let guarantees = modes.iter().flat_map(|inside| {
        inside.plan.guarantees.iter().map(|g| {
            let of_it = probes.iter().filter(|p| p.guarantee == g.id && p.mode == inside.plan.mode);
            CheckedGuarantee {
                id: g.id,
                mode: inside.plan.mode,
                required: g.required,
                held: g.held,
                mechanism: g.mechanism.clone(),
                probes: of_it.clone().count(),
                passed: of_it.filter(|p| !p.unexpected).count(),
            }
        })
    });
    let found = |inside: &Inside| {
        let mode = inside.plan.mode;
        inside.damage.iter().map(|d| FoundOutside { mode, what: d.to_string() }).collect::<Vec<_>>()
    };
    let first = modes.first().map(|inside| &inside.plan);
    FenceCheck {
        rung: first.map_or(Rung::Ns, |plan| plan.rung),
        nesting: first.is_some_and(|plan| plan.nesting),
        guarantees: guarantees.collect(),
        outside: modes.iter().flat_map(found).collect(),
        rejected_rungs: first.map(|plan| plan.rejected_rungs.clone()).unwrap_or_default(),
        probes,
        elapsed_ms: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
    }
}

fn checked(inside: &Inside, outside: &[Observation]) -> Vec<CheckedProbe> {
    let mode = inside.plan.mode;
    let setting = Setting { mode, rung: inside.plan.rung, user: inside.user, processes: inside.processes };
    let judge = |probe: &'static Probe| {
        let seen = find(&inside.observed, probe);
        let control = find(outside, probe);
        let as_expected = |observation: &Observation| probe.is_met_in(&setting, &observation.seen());
        CheckedProbe {
            id: probe.id,
            guarantee: probe.guarantee,
            mode,
            action: probe.action,
            expected: probe.expected_in(&setting).text(),
            observed: text(seen),
            detail: seen.map(|s| s.detail.clone()).unwrap_or_default(),
            control: text(control),
            unexpected: !seen.is_some_and(as_expected) || !found_something(probe, control),
        }
    };
    PROBES.iter().map(judge).collect()
}

/// Whether the same action outside shows that the probe would have found something.
fn found_something(probe: &Probe, control: Option<&Observation>) -> bool {
    let uid = rustix::process::geteuid().as_raw();
    let seen = control.map_or(Observed::Broken, Observation::seen);
    probe.control.is_met_by(&seen, uid)
}

fn find<'o>(observed: &'o [Observation], probe: &Probe) -> Option<&'o Observation> {
    observed.iter().find(|observation| observation.id == probe.id)
}

fn text(observation: Option<&Observation>) -> String {
    observation.map_or_else(|| "not taken".to_owned(), |o| o.observed.clone())
}
