//! A receipt for people.

use std::{collections::BTreeMap, fmt::Write as _};

use stockade_core::{
    changes::FileChange,
    limits::LimitRecord,
    receipt::{EgressRecord, Receipt},
};

/// The receipt in a page.
pub(crate) fn summary(r: &Receipt, standing: Option<&str>) -> String {
    let mut t = String::new();
    // Writing to a String cannot fail.
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(t, "{name:<18} {value}");
    };
    line("run", &r.execution_id);
    line("status", &format!("{} (exit {})", r.status.id(), r.status.exit_code()));
    if let Some(standing) = standing {
        line("standing", standing);
    }
    if let Some(c) = &r.cause {
        line("cause", &format!("{}: {}", c.code, c.message));
        line(
            "boundary",
            &serde_json::to_value(c.boundary).map_or(String::new(), |v| v.as_str().unwrap_or("").to_owned()),
        );
        let errno = c.errno.map_or(String::new(), |n| format!(" ({})", stockade_fence::errno_name(n)));
        line("step", &format!("{}{errno}", c.step));
        for e in &c.evidence {
            line("evidence", e);
        }
        if let Some(remedy) = &c.remedy {
            line("remedy", remedy);
        }
    }
    let elapsed = r.elapsed_ms.map_or("not known".to_owned(), |ms| format!("{ms} ms"));
    line("elapsed", &elapsed);
    line("provider", &r.provider);
    if let Some(rt) = &r.runtime {
        let version = rt.version.as_deref().unwrap_or("unknown version");
        line("runtime", &format!("{version}, sha256 {} ({:?})", rt.sha256, rt.pin).to_lowercase());
    }
    line("model", &model(r));
    line("mode", r.mode.id());
    line("workspace", &r.cwd);
    if let Some(f) = &r.fence {
        let nesting = if f.nesting { ", nesting" } else { "" };
        line(
            "fence",
            &format!(
                "rung {}{nesting}, network {}, kernel uid {}, built in {:.1} ms, proven in {:.1} ms",
                f.rung.id(),
                f.network.policy.id(),
                f.kernel_uid,
                millis(f.build_us),
                millis(f.prove_us)
            ),
        );
    }
    if let Some(egress) = r.fence.as_ref().and_then(|f| f.network.egress.as_ref()) {
        line("egress", &self::egress(egress));
    }
    line("model requests", &r.model_requests.to_string());
    line("tool calls", &format!("{} ({} denied)", r.tool_calls, r.denial_count));
    if let Some(u) = &r.usage {
        let n = |n: Option<u64>| n.map_or("?".to_owned(), |n| n.to_string());
        line("tokens", &format!("{} in, {} out", n(u.input_tokens), n(u.output_tokens)));
    }
    line("cost", &r.cost_usd.map_or("unknown".to_owned(), |c| format!("{c:.4} USD")));
    line("process tree", &tree(r));
    for p in &r.tree.unkillable {
        line("unkillable", &format!("process {} ({}, state {})", p.pid, p.name, p.state));
    }
    for l in &r.held_limits {
        line("limit", &limit(l));
    }
    for g in r.guarantees.iter().filter(|g| !g.held) {
        line("missing", &format!("{}: {}", g.id.id(), g.mechanism));
    }
    line("changes", &changes(r));
    for c in r.changes.files.iter().take(20) {
        line("", &changed(c));
    }
    if let Some(git) = &r.git {
        for made in &git.refs {
            line("reference", &format!("{} {}", made.object.get(..12).unwrap_or_default(), made.name));
        }
        if let Some(worktree) = &git.worktree {
            line("worktree", worktree);
        }
    }
    for n in &r.notes {
        line("note", n);
    }
    line("run directory", &r.run_directory);
    t
}

fn egress(e: &EgressRecord) -> String {
    let counts = |map: &BTreeMap<String, u64>| {
        let each: Vec<String> = map.iter().map(|(what, count)| format!("{what} {count}")).collect();
        if each.is_empty() { "none".to_owned() } else { each.join(", ") }
    };
    format!(
        "let through: {}; turned away: {}; {} bytes out, {} in; TLS is not looked into",
        counts(&e.passed),
        counts(&e.turned_away),
        e.bytes_sent,
        e.bytes_received
    )
}

fn model(r: &Receipt) -> String {
    let served = r.reported_model.as_deref().unwrap_or("nobody");
    match (&r.model_evidence, r.model_verified) {
        (Some(e), true) => format!("{} asked, {served} answered (verified: {e})", r.model),
        (Some(e), false) => format!("{} asked, {served} answered (not verified: {e})", r.model),
        (None, _) => format!("{} asked", r.model),
    }
}

fn tree(r: &Receipt) -> String {
    if !r.process_started {
        return "no agent was started".to_owned();
    }
    let gone = if r.tree.gone { "gone, by the kernel's word" } else { "NOT proven to be gone" };
    let peak = r.tree.peak_processes.map_or(String::new(), |n| format!(", {n} processes at most"));
    format!("{gone}; {} killed at the end{peak}", r.tree.killed)
}

fn changed(c: &FileChange) -> String {
    let kind = serde_json::to_value(c.kind).map_or(String::new(), |v| v.as_str().unwrap_or("").to_owned());
    format!("{kind:<9} {}", c.path)
}

/// The changed files, one a line.
pub(crate) fn changed_files(r: &Receipt) -> String {
    r.changes.files.iter().flat_map(|c| [changed(c), "\n".to_owned()]).collect()
}

fn limit(l: &LimitRecord) -> String {
    let peak = l.peak.map_or(String::new(), |n| format!(", {} at most", l.id.show(n)));
    let reached = if l.reached { ", REACHED" } else { "" };
    format!("{} {} ({}{peak}{reached}): {}", l.id.id(), l.id.show(l.limit), l.state.id(), l.mechanism)
}

fn changes(r: &Receipt) -> String {
    let whole = if r.changes.complete { "" } else { " (incomplete)" };
    format!("{} files{whole}", r.changes.files.len())
}

#[expect(clippy::cast_precision_loss, reason = "microseconds of a build are far below 2^52")]
fn millis(us: u64) -> f64 {
    us as f64 / 1000.0
}
