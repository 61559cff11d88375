//! The table of a measurement.

use std::fmt::Write as _;

use anyhow::{Context, Result};

use super::measure::Cost;
use crate::repository;

const FILE: &str = "docs/benchmarks.md";

/// One thing that was measured.
pub(super) struct Row {
    pub(super) name: &'static str,
    /// Bare and with Stockade, where there is something to compare with.
    pair: Option<(f64, f64)>,
    /// What the budget is about.
    pub(super) value: f64,
    unit: &'static str,
    pub(super) budget: f64,
}

impl Row {
    pub(super) fn added(name: &'static str, cost: &Cost, budget: f64) -> Self {
        Self { name, pair: Some((cost.bare, cost.fenced)), value: cost.added, unit: "ms", budget }
    }

    pub(super) fn alone(name: &'static str, value: f64, unit: &'static str, budget: f64) -> Self {
        Self { name, pair: None, value, unit, budget }
    }
}

/// The rows for people.
pub(super) fn table(rows: &[Row]) -> String {
    let mut out = "| what | bare | with Stockade | ratio | counted | budget | of the budget |\n\
                   | --- | --- | --- | --- | --- | --- | --- |\n"
        .to_owned();
    for row in rows {
        let (bare, fenced, ratio) = match row.pair {
            Some((b, f)) => (format!("{b:.1} ms"), format!("{f:.1} ms"), format!("{:.2}", f / b)),
            None => ("–".to_owned(), "–".to_owned(), "–".to_owned()),
        };
        let Row { name, value, unit, budget, .. } = row;
        let share = value / budget;
        let _ = writeln!(
            out,
            "| {name} | {bare} | {fenced} | {ratio} | {value:.1} {unit} | {budget:.0} {unit} | {share:.2} |"
        );
    }
    out
}

/// The load of the last minute, as the kernel tells it.
pub(super) fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_owned()
}

/// Writes the rows into the documentation.
pub(super) fn write(rows: &[Row], load: &str) -> Result<()> {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let processors = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let text = format!(
        "# Benchmarks\n\n\
         What a run costs over a bare start of the same program: the same argv and generated configuration in a fresh\n\
         home, without fence and gateway. Interleaved pairs, medians; *counted* is the median of the differences (or, where\n\
         there is nothing to compare with, the median itself; of reading, the least). Written by `cargo xtask bench`; `cargo xtask test` fails\n\
         when anything takes more than twice its budget three times in a row.\n\n\
         Absolute numbers are of one machine (kernel {}, {processors} processors, load {load} before\n\
         the start: on a busy machine every number grows); ratios travel better.\n\n{}",
        kernel.trim(),
        table(rows)
    );
    std::fs::write(repository::root().join(FILE), text).with_context(|| format!("writing {FILE}"))?;
    println!("wrote {FILE}");
    Ok(())
}
