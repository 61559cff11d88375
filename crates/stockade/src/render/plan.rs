//! A plan for people.

use std::fmt::Write as _;

use stockade_core::{
    git::{GitWorkspace, WorkTree},
    limits::LimitId,
    plan::{LaunchPlan, PlannedIdentity},
};

/// The plan in a page.
pub(crate) fn summary(plan: &LaunchPlan) -> String {
    let mut t = String::new();
    // Writing to a String cannot fail.
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(t, "{name:<18} {value}");
    };
    line("provider", &format!("{} (profile {} v{})", plan.provider, plan.profile.name, plan.profile.version));
    line(
        "executable",
        &format!("{} ({:?})", plan.executable.path.display(), plan.executable.pin).to_lowercase(),
    );
    line("model", &format!("{} ({})", plan.model.asked, plan.model.source));
    line("effort", plan.effort.as_deref().unwrap_or("not sent"));
    line("mode", plan.mode.id());
    line("workspace", &plan.cwd.display().to_string());
    if let Some(git) = &plan.git {
        line("git", &repository(git));
    }
    let nests = if plan.nesting { ", nests" } else { "" };
    line("rung", &format!("{}{nests}", plan.rung.id()));
    line("runs as", &identity(&plan.identity));
    line(
        "provider sandbox",
        &format!("{} ({})", plan.provider_sandbox.choice.id(), plan.provider_sandbox.source),
    );
    line(
        "endpoint",
        &format!("{} ({}, {})", plan.endpoint.url, plan.endpoint.api.id(), plan.endpoint.source),
    );
    if let Some(tunnel) = &plan.wire.tunnel {
        line("route", &format!("the agent itself, by TLS to {tunnel}, unseen"));
    }
    line("key", plan.endpoint.key_env.as_deref().unwrap_or("none"));
    let listed: Vec<String> = plan.allow.iter().map(ToString::to_string).collect();
    line("network", &[&[plan.network.id().to_owned()][..], &listed].concat().join(" "));
    line("prompt", &format!("{} bytes, sha256 {}", plan.prompt.text.bytes, plan.prompt.text.sha256));
    let limits = &plan.limits;
    let time = |ms: Option<u64>| ms.map_or_else(|| "none".to_owned(), |ms| format!("{} s", ms / 1000));
    line("deadline", &time(limits.timeout_ms));
    line("idle limit", &time(limits.idle_timeout_ms));
    let _ = writeln!(t, "\nlimits");
    for l in &plan.held_limits {
        let (id, value, state) = (l.id.id(), l.id.show(l.limit), l.state.id());
        let _ = writeln!(t, "  {id:<12} {value:<10} {state:<8} {}", l.mechanism);
    }
    for unlimited in unlimited(plan) {
        let _ = writeln!(t, "  {:<12} none", unlimited.id());
    }
    let _ = writeln!(t, "\nmounts");
    for m in &plan.mounts {
        let _ = writeln!(t, "  {} {}", if m.writable { "rw" } else { "ro" }, m.target.display());
    }
    let _ = writeln!(t, "\nguarantees");
    for g in &plan.guarantees {
        let word = match (g.held, g.required) {
            (true, _) => "held   ",
            (false, true) => "MISSING",
            (false, false) => "missing",
        };
        let _ = writeln!(t, "  {word} {:<20} {}", g.id.id(), g.mechanism);
    }
    let _ = writeln!(t, "\nargv\n  {}", plan.argv.join(" "));
    for n in &plan.notes {
        let _ = writeln!(t, "note: {n}");
    }
    t
}

/// Limits the order does without.
fn unlimited(plan: &LaunchPlan) -> impl Iterator<Item = LimitId> {
    let limits =
        [(LimitId::Memory, plan.limits.max_memory_bytes), (LimitId::Growth, plan.limits.max_growth_bytes)];
    limits.into_iter().filter(|(_, limit)| limit.is_none()).map(|(id, _)| id)
}

pub(crate) fn identity(identity: &PlannedIdentity) -> String {
    match identity {
        PlannedIdentity::Caller => "the caller's own user id".to_owned(),
        PlannedIdentity::WorkspaceOwner { uid, .. } => format!("the workspace's owner, user id {uid}"),
        PlannedIdentity::PrivateUid => "a user id of the run's own, with id-mapped mounts".to_owned(),
        PlannedIdentity::KernelRoot { reason } => {
            format!("kernel user id 0 without capabilities ({reason})")
        }
    }
}

/// What git works on, in a line.
fn repository(git: &GitWorkspace) -> String {
    let files = match git.tree {
        WorkTree::Shown => "a look at",
        WorkTree::Made if git.include_dirty => {
            "a worktree made for the run, uncommitted changes included, of"
        }
        WorkTree::Made => "a worktree made for the run, of",
        WorkTree::Named => "the linked worktree named, of",
    };
    let base = git.base.as_deref().and_then(|b| b.get(..12)).map_or(String::new(), |b| format!(" at {b}"));
    let author =
        git.author.as_ref().map_or(String::new(), |a| format!(", commits by {} <{}>", a.name, a.email));
    format!("{files} `{}`{base}{author}", git.common.display())
}
