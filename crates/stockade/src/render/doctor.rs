//! A diagnosis for people.

use std::fmt::Write as _;

use stockade_lane::Diagnosis;

use crate::config::Setting;

/// The diagnosis in a page.
pub(crate) fn summary(d: &Diagnosis, settings: &[Setting]) -> String {
    let mut t = String::new();
    // Writing to a String cannot fail.
    let _ =
        writeln!(t, "{} in {} with --provider-sandbox {}", d.provider, d.mode.id(), d.provider_sandbox.id());
    let _ = match (&d.cause, d.ready) {
        (_, true) => writeln!(t, "READY: such a run would start here\n"),
        (Some(c), false) => writeln!(t, "NOT READY: {}\n", c.message),
        (None, false) => writeln!(t, "NOT READY\n"),
    };
    if let Some(c) = &d.cause {
        let errno = c.errno.map_or(String::new(), |n| format!(" ({})", stockade_fence::errno_name(n)));
        let _ = writeln!(t, "  at      {}{errno}", c.step);
        for e in &c.evidence {
            let _ = writeln!(t, "  because {e}");
        }
        if let Some(r) = &c.remedy {
            let _ = writeln!(t, "  remedy  {r}");
        }
        t.push('\n');
    }
    let _ = writeln!(t, "rungs");
    for trial in &d.survey.rungs {
        let _ = match &trial.refused {
            None => writeln!(t, "  stands  {:<11} ({} us)", trial.rung.id(), trial.elapsed_us),
            Some(r) => writeln!(t, "  refused {:<11} at {} ({})", trial.rung.id(), r.step, r.errno_name),
        };
    }
    let _ = writeln!(t, "\nguarantees");
    for g in &d.guarantees {
        let word = match (g.held, g.required) {
            (true, _) => "held   ",
            (false, true) => "MISSING",
            (false, false) => "missing",
        };
        let _ = writeln!(t, "  {word} {:<20} {}", g.id.id(), g.mechanism);
        if !g.proof.is_empty() {
            let _ = writeln!(t, "          proven by {}", g.proof.join(", "));
        }
        if let Some(r) = g.refused.as_ref().filter(|_| !g.held) {
            let _ = writeln!(t, "          refused at {} ({})", r.step, r.errno_name);
        }
    }
    t.push('\n');
    let _ = match &d.pin {
        Some(p) => writeln!(
            t,
            "executable  {} {} ({:?}, sha256 {})",
            p.path.display(),
            p.version.as_deref().unwrap_or("unknown version"),
            p.pin,
            p.sha256
        ),
        None => writeln!(t, "executable  not installed: `stockade provision {}` fetches it", d.provider),
    };
    let _ = writeln!(t, "credential  {}", d.credential);
    for what in &d.unproven {
        let _ = writeln!(t, "unproven    {what}");
    }
    let _ = writeln!(t, "kernel      {} {}", d.survey.kernel, d.survey.machine);
    for s in settings {
        let _ = writeln!(t, "setting     {} = {} (from {})", s.name, s.value, s.source);
    }
    t
}
