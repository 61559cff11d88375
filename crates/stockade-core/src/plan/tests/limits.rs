//! What holds each limit on each kind of host, and when that is not enough.

use super::*;
use crate::limits::{LimitBy, LimitDemand, LimitId, LimitState};

fn kernel_root(survey: Survey) -> (Survey, Workspace) {
    let idmap_refused = Some(hosts::refused("mount_setattr(IDMAP)", 22, "EINVAL"));
    (survey, Workspace { idmap_refused, ..order().workspace })
}

#[test]
fn what_holds_processes_and_memory_depends_on_the_host() {
    let plain = |survey| (survey, order().workspace);
    let older = |survey: Survey, kernel: &str| Survey { kernel: kernel.to_owned(), ..survey };
    let without_groups = |survey| Survey { cgroups: hosts::plain().cgroups, ..survey };
    let delegated = Survey { cgroups: hosts::groups_delegated(), ..hosts::plain() };
    let cases = [
        ("a user", 400, plain(hosts::plain())),
        ("a user with a delegated group", 400, plain(delegated)),
        ("a user, kernel 5.13", 400, plain(older(hosts::plain(), "5.13.0"))),
        ("root", 400, plain(hosts::root())),
        ("root, kernel 5.12", 400, plain(older(hosts::root(), "5.12.0"))),
        ("root of a container, few processes", 100, plain(hosts::root_of_a_container())),
        ("root on an overlay", 400, kernel_root(hosts::root())),
        ("root on an overlay, few processes", 100, kernel_root(hosts::root())),
        ("root on an overlay without groups, few processes", 100, kernel_root(without_groups(hosts::root()))),
    ];
    let mut seen = String::new();
    for (name, max_processes, (survey, workspace)) in cases {
        let limits = Limits { max_processes, ..Limits::default() };
        let plan = planned(&Order { workspace, limits, ..order() }, &survey).unwrap();
        writeln!(seen, "{name}").unwrap();
        for l in plan.held_limits.iter().filter(|l| matches!(l.id, LimitId::Processes | LimitId::Memory)) {
            writeln!(seen, "  {:<9} {:<8} {}", l.id.id(), l.state.id(), l.mechanism).unwrap();
        }
        for group in &plan.cgroups {
            writeln!(seen, "  group     v{} {}", group.version, group.parent.display()).unwrap();
        }
    }
    insta::assert_snapshot!(seen);
}

#[test]
fn a_limit_of_none_is_no_limit_and_makes_no_group() {
    let limits = Limits { max_memory_bytes: None, max_growth_bytes: None, ..Limits::default() };
    let plan = planned(&Order { limits, ..order() }, &hosts::root()).unwrap();
    let ids: Vec<_> = plan.held_limits.iter().map(|l| l.id.id()).collect();
    assert_eq!(ids, ["processes", "open-files", "file-size", "temp", "output"]);
    assert_eq!(plan.cgroups, []);
}

#[test]
fn a_demand_for_enforced_limits_names_every_limit_that_is_only_watched() {
    let demand = Order { require_limits: LimitDemand::Enforced, ..order() };
    insta::assert_snapshot!(render::refusal(&planned(&demand, &hosts::plain()).unwrap_err()));
    // In groups of its own only growth is left.
    let refusal = planned(&demand, &hosts::root()).unwrap_err();
    assert!(refusal.cause.message.ends_with("can only watch: growth"), "{}", refusal.cause.message);

    let limits = Limits { max_growth_bytes: None, ..Limits::default() };
    let plan = planned(&Order { limits, ..demand.clone() }, &hosts::root()).unwrap();
    assert!(plan.held_limits.iter().all(|l| l.state == LimitState::Enforced));
    let row = plan.guarantees.iter().find(|g| g.id == Guarantee::Limits).unwrap();
    assert_eq!((row.required, row.held), (true, true));

    let accepted = Order { accept_missing: vec![Guarantee::Limits], ..demand };
    let plan = planned(&accepted, &hosts::plain()).unwrap();
    let row = plan.guarantees.iter().find(|g| g.id == Guarantee::Limits).unwrap();
    assert_eq!((row.required, row.held), (true, false));
    assert!(plan.held_limits.iter().any(|l| l.by == LimitBy::Sampling));
}
