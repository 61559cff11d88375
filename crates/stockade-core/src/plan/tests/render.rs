//! Plans and refusals as short texts, so that a changed snapshot can be read.

use std::fmt::Write as _;

use crate::{
    plan::{LaunchPlan, Mount, MountSource, PlannedIdentity},
    status::Refusal,
};

pub(super) fn outcome(outcome: &Result<LaunchPlan, Refusal>) -> String {
    match outcome {
        Ok(p) => plan(p),
        Err(r) => refusal(r),
    }
}

/// One line: the rung and what is missing on it, or the cause.
pub(super) fn in_short(outcome: &Result<LaunchPlan, Refusal>) -> String {
    match outcome {
        Ok(p) => {
            let missing: Vec<_> = p.guarantees.iter().filter(|g| !g.held).map(|g| g.id.id()).collect();
            format!("plan      rung {}, missing [{}]\n", p.rung.id(), missing.join(", "))
        }
        Err(r) => format!(
            "refused   {} at {}, errno {:?}: {}\n",
            r.cause.code, r.cause.step, r.cause.errno, r.cause.message
        ),
    }
}

pub(super) fn refusal(r: &Refusal) -> String {
    let c = &r.cause;
    let status = r.status.map_or("usage", crate::status::Status::id);
    let boundary = serde_json::to_value(c.boundary).unwrap();
    let mut out = format!(
        "refused   {status}, exit {}\ncause     {} on {} at {}, errno {:?}\nmessage   {}\n",
        r.exit_code(),
        c.code,
        boundary.as_str().unwrap(),
        c.step,
        c.errno,
        c.message
    );
    for line in &c.evidence {
        writeln!(out, "evidence  {line}").unwrap();
    }
    writeln!(out, "remedy    {}", c.remedy.as_deref().unwrap_or("none")).unwrap();
    out
}

fn plan(p: &LaunchPlan) -> String {
    let identity = match &p.identity {
        PlannedIdentity::Caller => "caller".to_owned(),
        PlannedIdentity::WorkspaceOwner { uid, gid } => format!("workspace owner {uid}:{gid}"),
        PlannedIdentity::PrivateUid => "private uid".to_owned(),
        PlannedIdentity::KernelRoot { reason } => format!("kernel root: {reason}"),
    };
    let nests = if p.nesting { ", nests" } else { "" };
    let mut out = format!("plan      rung {}{nests}, identity {identity}\n", p.rung.id());
    for trial in &p.rejected_rungs {
        let r = trial.refused.as_ref().unwrap();
        writeln!(out, "rejected  {}: {} {}", trial.rung.id(), r.step, r.errno_name).unwrap();
    }
    writeln!(out, "argv      {}", p.argv.join(" ")).unwrap();
    for m in &p.mounts {
        writeln!(out, "mount     {}", mount(m)).unwrap();
    }
    for g in &p.guarantees {
        let word = if g.held { "held" } else { "missing" };
        let need = if g.required { "" } else { " (not required)" };
        writeln!(out, "{word:<9} {}{need}: {}", g.id.id(), g.mechanism).unwrap();
    }
    for note in &p.notes {
        writeln!(out, "note      {note}").unwrap();
    }
    out
}

pub(super) fn mount(m: &Mount) -> String {
    let source = match &m.source {
        MountSource::Workspace => "workspace",
        MountSource::MadeWorktree => "made worktree",
        MountSource::GitEntry => "git entry",
        MountSource::GitFolder => "private git folder",
        MountSource::GitObjects => "git objects",
        MountSource::CallersTree => "caller's tree",
        MountSource::Home => "home",
        MountSource::Provider => "provider",
        MountSource::Path { .. } => "path",
    };
    format!("{} {source} at {}", if m.writable { "rw" } else { "ro" }, m.target.display())
}
