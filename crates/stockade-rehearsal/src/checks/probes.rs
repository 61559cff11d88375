//! The check of the escape probes that a tool of the agent took.

use std::collections::BTreeMap;

use stockade_core::{receipt::Receipt, survey::Rung};
use stockade_fence::probes::{Observation, Observed, Probe, Setting, host::Damage, taken_by_tool};

use super::{Verdict, not_reached, quote};
use crate::{script::PROBES_STEP, wire::Wire};

/// What was seen of the probes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probes<'p> {
    pub(crate) receipt: &'p Receipt,
    pub(crate) wire: &'p Wire,
    /// Where they were taken; `None`: no plan was made.
    pub(crate) setting: Option<Setting>,
    /// Whether the agent's own sandbox shows its tools processes of their own only.
    pub(crate) own_processes: bool,
    /// What had changed when it was looked at from outside.
    pub(crate) damage: &'p [Damage],
}

/// What lies between the fence and a tool.
#[derive(Clone, Copy, Debug)]
enum Between {
    /// Nothing: what the table says is what a tool sees.
    Nothing,
    /// The agent's own sandbox. It may deny more than the fence, and by another error number.
    AgentsSandbox,
    /// The same, with a PID 1 of its own.
    AgentsProcesses,
}

/// What says nothing about the fence where a sandbox of the agent's lies between: in a user namespace of its own a tool has
/// the capabilities over that namespace (what they are good for is tried by the probes of namespaces and mounts), and
/// where its parent lies outside, it cannot come to a terminal of its own.
const OF_THE_SANDBOX: [(&str, Observed); 3] =
    [("P02", Observed::Allowed), ("P12", Observed::Broken), ("P13", Observed::Broken)];
/// The probes of PID 1 of the fence that reach a nearer one.
const OF_PID_1: [&str; 1] = ["R35"];

impl Between {
    const fn of(probes: &Probes<'_>, rung: Rung) -> Self {
        match (rung.nests(), probes.own_processes) {
            (false, _) => Self::Nothing,
            (true, false) => Self::AgentsSandbox,
            (true, true) => Self::AgentsProcesses,
        }
    }

    fn permits(self, probe: &Probe, setting: Setting, seen: &Observed) -> bool {
        let denied = matches!(seen, Observed::Denied(_) | Observed::KilledBySeccomp);
        match self {
            Self::Nothing => probe.is_met_in(&setting, seen),
            Self::AgentsSandbox => {
                denied
                    || probe.is_met_in(&setting, seen)
                    || OF_THE_SANDBOX.iter().any(|(id, of_it)| *id == probe.id && of_it == seen)
            }
            Self::AgentsProcesses => {
                Self::AgentsSandbox.permits(probe, setting, seen) || OF_PID_1.contains(&probe.id)
            }
        }
    }
}

/// Every probe that a tool can take was taken, each ended as the table says for this rung, mode and user, nothing changed
/// outside, and what the probes started is gone.
pub(crate) fn like_the_table(probes: &Probes<'_>) -> Verdict {
    let Some(setting) = probes.setting else { return Err("no plan was made".to_owned()) };
    let result = probes.wire.result_of(PROBES_STEP).ok_or_else(|| not_reached(probes.receipt))?;
    let observations: Vec<_> = result.text.lines().filter_map(Observation::from_brief).collect();
    if observations.is_empty() {
        return Err(format!("no probe was taken; the model was told: {}", quote(&result.text)));
    }
    let seen: BTreeMap<&str, Observed> = observations.iter().map(|o| (o.id.as_str(), o.seen())).collect();
    let between = Between::of(probes, setting.rung);
    let rung = setting.rung.id();
    let mut wrong = Vec::new();
    for probe in taken_by_tool() {
        let expected =
            || format!("{} ({}): expected {}", probe.id, probe.action, probe.expected_in(&setting).text());
        match seen.get(probe.id) {
            None => wrong.push(format!("{}, not taken", expected())),
            Some(observed) if !between.permits(probe, setting, observed) => {
                wrong.push(format!("{}, observed {}", expected(), observed.text()));
            }
            Some(_) => {}
        }
    }
    wrong.extend(probes.damage.iter().map(|damage| format!("outside {damage}")));
    if !probes.receipt.tree.gone {
        wrong.push("the kernel did not confirm that the process tree is gone".to_owned());
    }
    if !wrong.is_empty() {
        return Err(format!("on rung {rung}: {}", wrong.join("; ")));
    }
    let worked = seen.values().filter(|observed| **observed == Observed::Allowed).count();
    let as_expected = match between {
        Between::Nothing => "each ended as the table says",
        Between::AgentsSandbox | Between::AgentsProcesses => "none was allowed that the table denies",
    };
    Ok(format!(
        "{} probes taken by a tool on rung {rung}, {worked} worked: {as_expected}; nothing changed outside",
        seen.len()
    ))
}

#[cfg(test)]
mod tests;
