//! Which guarantees a rung gives to an order, by what, and whether that is enough.

use super::{PlannedGuarantee, limits, refusals};
use crate::{
    guarantee::Guarantee,
    limits::{LimitDemand, LimitState, PlannedLimit},
    mode::{AccessMode, NetworkPolicy},
    order::Order,
    status::{Boundary, Cause},
    survey::Rung,
};

/// Lists every guarantee; refuses when a required one is missing and its absence was not accepted.
pub(super) fn of(
    order: &Order,
    rung: Rung,
    held_limits: &[PlannedLimit],
) -> Result<Vec<PlannedGuarantee>, Box<Cause>> {
    let all: Vec<_> = Guarantee::ALL
        .into_iter()
        .filter(|g| *g != Guarantee::WorkspaceReadonly || order.mode == AccessMode::ReadOnly)
        .map(|id| {
            let (held, mechanism) = state(id, order, rung, held_limits);
            let demanded = id == Guarantee::Limits && order.require_limits == LimitDemand::Enforced;
            PlannedGuarantee { id, required: demanded || id.required_on(rung, order.mode), held, mechanism }
        })
        .collect();
    // `--network host` is the consent to the missing `network`; nothing else is implied by any flag.
    let consented = |g: Guarantee| {
        order.accept_missing.contains(&g) || (g == Guarantee::Network && order.network == NetworkPolicy::Host)
    };
    if let Some(g) = all.iter().find(|g| g.required && !g.held && !consented(g.id)) {
        let instead = match g.id {
            Guarantee::ProcessVisibility => refusals::UNMASK_PROC,
            _ => "use `--network model`",
        };
        return Err(Box::new(
            Cause::new(
                "guarantee-missing",
                Boundary::Fence,
                format!("guarantee {}", g.id.id()),
                format!("`{}` cannot be held: {}", g.id.id(), g.mechanism),
            )
            .with_evidence(format!("rung {}", rung.id()))
            .with_remedy(format!(
                "{instead}, or say `--accept-missing {}`; the receipt will repeat it",
                g.id.id()
            )),
        ));
    }
    Ok(all)
}

fn state(g: Guarantee, order: &Order, rung: Rung, held_limits: &[PlannedLimit]) -> (bool, String) {
    let host_network = order.network == NetworkPolicy::Host;
    // By what the mounts are made, and what stands behind them.
    let (made, second) = match rung {
        Rung::Nsl => ("", ", Landlock"),
        Rung::Ns | Rung::NsNest | Rung::NsHostproc => ("", ""),
        Rung::Bs => ("through bubblewrap: ", ""),
    };
    let held = |text: String| (true, text);
    let missing = |text: &str| (false, text.to_owned());
    match g {
        Guarantee::WorkspaceReadonly => held(format!("{made}read-only mount of the workspace{second}")),
        Guarantee::WriteConfinement if host_network && rung != Rung::Nsl => missing(
            "on the host's network without Landlock, abstract sockets of the host's services can be reached",
        ),
        Guarantee::WriteConfinement => {
            held(format!("{made}constructed read-only root, private temp and home{second}"))
        }
        Guarantee::RepoMetadata if order.workspace.git.is_some() => {
            held("a private git folder in the place of the real one, objects mounted read-only".to_owned())
        }
        Guarantee::RepoMetadata => {
            held(format!("{made}`.git` mounted read-only, nothing else of the repository mounted"))
        }
        Guarantee::Secrets => {
            let proc = if rung == Rung::NsHostproc { ", a user namespace before the host's /proc" } else { "" };
            held(format!("constructed root, environment from an allow-list, key added in the gateway{proc}"))
        }
        Guarantee::ProcessVisibility if rung == Rung::NsHostproc => {
            missing("the host's /proc stays mounted: other processes and their command lines can be seen")
        }
        Guarantee::ProcessVisibility => held(format!("{made}PID namespace, fresh /proc, seccomp")),
        Guarantee::Privileges if rung.nests() => held(
            "user namespace, a kernel user that is not root, no capabilities, no_new_privs, seccomp on privileged modes \
             and on every extended attribute"
                .to_owned(),
        ),
        Guarantee::Privileges => {
            held("user namespace, no capabilities, no_new_privs, seccomp on privileged modes".to_owned())
        }
        Guarantee::NoNesting if rung.nests() => missing("nests: the provider's own sandbox"),
        Guarantee::NoNesting => held("seccomp on namespaces and mounts".to_owned()),
        Guarantee::Network if host_network => missing("the caller chose the host's network"),
        Guarantee::Network if order.network == NetworkPolicy::Allow => held(format!(
            "{made}empty network namespace, the gateway's listeners inside it; beside the model only {}",
            named(order)
        )),
        Guarantee::Network => {
            held(format!("{made}empty network namespace, the gateway's listener inside it"))
        }
        Guarantee::TreeEnd => {
            held(format!("{made}PID namespace that ends with its lifeline, pidfd as proof"))
        }
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
