//! A check of the fence for people.

use std::fmt::Write as _;

use stockade_core::mode::AccessMode;
use stockade_lane::{CheckedProbe, FenceCheck};

use super::Verbosity;

/// The check in a page; every probe, where more is asked for.
pub(crate) fn summary(check: &FenceCheck, verbosity: Verbosity) -> String {
    let mut t = String::new();
    let nests = if check.nesting { ", in which a sandbox nests" } else { "" };
    // Writing to a String cannot fail.
    let _ = writeln!(t, "fence of the rung {}{nests}", check.rung.id());
    let unexpected: Vec<_> = check.probes.iter().filter(|p| p.unexpected).collect();
    let seconds = format!("{}.{}", check.elapsed_ms / 1000, check.elapsed_ms / 100 % 10);
    let _ = if check.is_sound() {
        writeln!(t, "SOUND: {} probes as expected, nothing changed outside, {seconds} s", check.probes.len())
    } else {
        writeln!(
            t,
            "NOT SOUND: {} of {} probes not as expected, {} changes outside, {seconds} s",
            unexpected.len(),
            check.probes.len(),
            check.outside.len()
        )
    };
    for mode in AccessMode::ALL {
        guarantees(&mut t, check, mode);
    }
    if !unexpected.is_empty() {
        let _ = writeln!(t, "\nnot as expected");
        for probe in unexpected {
            row(&mut t, probe);
        }
    }
    if !check.outside.is_empty() {
        let _ = writeln!(t, "\nfound from outside");
        for found in &check.outside {
            let _ = writeln!(t, "  {:<14} {}", found.mode.id(), found.what);
        }
    }
    missing(&mut t, check);
    if verbosity > Verbosity::Normal {
        let _ = writeln!(t, "\nprobes");
        for probe in &check.probes {
            row(&mut t, probe);
        }
    }
    t
}

fn guarantees(t: &mut String, check: &FenceCheck, mode: AccessMode) {
    let mut of_mode = check.guarantees.iter().filter(|g| g.mode == mode).peekable();
    if of_mode.peek().is_none() {
        return;
    }
    let _ = writeln!(t, "\n{}", mode.id());
    for g in of_mode {
        let word = match (g.held, g.passed == g.probes, g.required) {
            (true, true, _) => "held   ",
            (true, false, _) => "BROKEN ",
            (false, _, true) => "MISSING",
            (false, _, false) => "missing",
        };
        let probes = match g.probes {
            0 => "no probe".to_owned(),
            n => format!("{} of {n} probes", g.passed),
        };
        let _ = writeln!(t, "  {word} {:<20} {probes:<16} {}", g.id.id(), g.mechanism);
    }
}

fn row(t: &mut String, p: &CheckedProbe) {
    let detail = if p.detail.is_empty() { String::new() } else { format!(" ({})", p.detail) };
    let _ = writeln!(
        t,
        "  {} {:<14} {}: {}{detail}, expected {}; outside {}",
        p.id,
        p.mode.id(),
        p.action,
        p.observed,
        p.expected,
        p.control
    );
}

/// What stands in the way of a better rung.
fn missing(t: &mut String, check: &FenceCheck) {
    for trial in &check.rejected_rungs {
        if let Some(refused) = &trial.refused {
            let _ = writeln!(
                t,
                "\nthe better rung {} does not stand here: {} {}\n  `stockade doctor` tells how to get it",
                trial.rung.id(),
                refused.step,
                refused.errno_name
            );
        }
    }
}
