//! Which guarantees a rung gives to an order, by what, and whether that is enough.

use super::{PlannedGuarantee, limits};
use crate::{
    guarantee::Guarantee,
    limits::{LimitDemand, LimitState, PlannedLimit},
    mode::{AccessMode, NetworkPolicy},
    order::Order,
    status::{Boundary, Cause, Refusal, Status},
    survey::Rung,
};

/// Lists every guarantee; refuses when a required one is missing and its absence was not accepted.
pub(super) fn of(
    order: &Order,
    rung: Rung,
    held_limits: &[PlannedLimit],
) -> Result<Vec<PlannedGuarantee>, Refusal> {
    let all: Vec<_> = Guarantee::ALL
        .into_iter()
        .filter(|g| *g != Guarantee::WorkspaceReadonly || order.mode == AccessMode::ReadOnly)
        .map(|id| {
            let (held, mechanism) = state(id, order, rung, held_limits);
            let demanded = id == Guarantee::Limits && order.require_limits == LimitDemand::Enforced;
            PlannedGuarantee { id, required: demanded || id.required_in(order.mode), held, mechanism }
        })
        .collect();
    // `--network host` is the consent to the missing `network`; nothing else is implied by any flag.
    let consented = |g: Guarantee| {
        order.accept_missing.contains(&g) || (g == Guarantee::Network && order.network == NetworkPolicy::Host)
    };
    if let Some(g) = all.iter().find(|g| g.required && !g.held && !consented(g.id)) {
        return Err(Refusal::new(
            Status::SandboxUnavailable,
            Cause::new(
                "guarantee-missing",
                Boundary::Fence,
                format!("guarantee {}", g.id.id()),
                format!("`{}` cannot be held: {}", g.id.id(), g.mechanism),
            )
            .with_evidence(format!("rung {}", rung.id()))
            .with_remedy(format!(
                "use `--network model`, or say `--accept-missing {}`; the receipt will repeat it",
                g.id.id()
            )),
        ));
    }
    Ok(all)
}

fn state(g: Guarantee, order: &Order, rung: Rung, held_limits: &[PlannedLimit]) -> (bool, String) {
    let host_network = order.network == NetworkPolicy::Host;
    let landlock = if rung == Rung::Nsl { ", Landlock" } else { "" };
    let held = |text: String| (true, text);
    let missing = |text: &str| (false, text.to_owned());
    match g {
        Guarantee::WorkspaceReadonly => held(format!("read-only mount of the workspace{landlock}")),
        Guarantee::WriteConfinement if host_network && rung == Rung::Ns => missing(
            "on the host's network without Landlock, abstract sockets of the host's services can be reached",
        ),
        Guarantee::WriteConfinement => {
            held(format!("constructed read-only root, private temp and home{landlock}"))
        }
        Guarantee::RepoMetadata if order.workspace.git.is_some() => {
            held("a private git folder in the place of the real one, objects mounted read-only".to_owned())
        }
        Guarantee::RepoMetadata => {
            held("`.git` mounted read-only, nothing else of the repository mounted".to_owned())
        }
        Guarantee::Secrets => {
            held("constructed root, environment from an allow-list, key added in the gateway".to_owned())
        }
        Guarantee::ProcessVisibility => held("PID namespace, fresh /proc, seccomp".to_owned()),
        Guarantee::Privileges => {
            held("user namespace, no capabilities, no_new_privs, seccomp on privileged modes".to_owned())
        }
        Guarantee::NoNesting => held("seccomp on namespaces and mounts".to_owned()),
        Guarantee::Network if host_network => missing("the caller chose the host's network"),
        Guarantee::Network if order.network == NetworkPolicy::Allow => held(format!(
            "empty network namespace, the gateway's listeners inside it; beside the model only {}",
            named(order)
        )),
        Guarantee::Network => held("empty network namespace, the gateway's listener inside it".to_owned()),
        Guarantee::TreeEnd => held("PID namespace that ends with its lifeline, pidfd as proof".to_owned()),
        Guarantee::Bounds => held("clocks and counters of the runner".to_owned()),
        Guarantee::Limits => {
            // Watching is what is asked for, unless the order says otherwise.
            let enough = order.require_limits == LimitDemand::Reported
                || held_limits.iter().all(|l| l.state == LimitState::Enforced);
            (enough, limits::sentence(held_limits))
        }
    }
}

/// The destinations in words; the plan and the receipt have the whole list.
fn named(order: &Order) -> String {
    const NAMED: usize = 5;
    let mut names: Vec<String> = order.allow.iter().take(NAMED).map(ToString::to_string).collect();
    if order.allow.len() > NAMED {
        names.push(format!("{} more", order.allow.len() - NAMED));
    }
    names.join(", ")
}
