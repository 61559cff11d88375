//! `cargo xtask bench`: what a run costs over a bare start of the same program, in interleaved pairs.

mod bare;
mod egress;
mod fence;
mod git;
mod measure;
pub(crate) mod peers;
mod reading;
mod report;
mod setting;

use anyhow::{Result, bail};

use measure::{added, median, peak_memory, refusal};
use report::Row;
use setting::Setting;

/// What the numbers are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To be written to the documentation.
    Record,
    /// To fail at twice the budget: a shared machine is noisy.
    Gate,
}

/// What a run may cost, in the unit of its row.
const STUB_BUDGET_MS: f64 = 20.0;
const TURN_BUDGET_MS: f64 = 40.0;
/// For an agent whose start alone takes longer than Grok's.
const BRIEF_BUDGET_MS: f64 = 60.0;
/// Of a bare turn, for an agent that computes for seconds before it does anything.
const BRIEF_BUDGET_SHARE: f64 = 0.02;
const REFUSAL_BUDGET_MS: f64 = 50.0;
const MEMORY_BUDGET_MB: f64 = 15.0;
/// How many times its budget a row may cost at the gate.
const GATE: f64 = 2.0;

/// How often the gate measures before it says no: what else the machine does can only make a number larger.
const GATE_TRIES: u32 = 3;

pub(crate) fn run(purpose: Purpose) -> Result<()> {
    match purpose {
        Purpose::Record => {
            let load = report::load();
            let rows = measure_all(&Setting::make()?)?;
            println!("{}", report::table(&rows));
            report::write(&rows, &load)
        }
        Purpose::Gate => {
            // What was too slow each time: one good time shows what a row costs.
            let mut over: Option<Vec<&str>> = None;
            for _ in 0..GATE_TRIES {
                // Anew each time: what a run writes must not be there yet.
                let rows = measure_all(&Setting::make()?)?;
                println!("{}", report::table(&rows));
                let slow = rows.iter().filter(|r| r.value > r.budget * GATE).map(|r| r.name);
                let slow: Vec<&str> =
                    slow.filter(|name| over.as_ref().is_none_or(|before| before.contains(name))).collect();
                if slow.is_empty() {
                    return Ok(());
                }
                over = Some(slow);
            }
            bail!("too far over the budget, {GATE_TRIES} times: {}", over.unwrap_or_default().join("; "))
        }
    }
}

fn measure_all(setting: &Setting) -> Result<Vec<Row>> {
    let stub = added(setting, &setting.stub, 21)?;
    let turn = added(setting, &setting.agent, 15)?;
    let refusal_ms = median((0..15).map(|_| refusal(setting)).collect::<Result<_>>()?);
    let memory_mb = median((0..5).map(|_| peak_memory(setting)).collect::<Result<_>>()?);
    let mut rows = vec![
        Row::added("run of a stub that says one line", &stub, STUB_BUDGET_MS),
        Row::added("run of Grok with one tool call", &turn, TURN_BUDGET_MS),
        Row::alone("refusal on a host without Landlock, whole process", refusal_ms, "ms", REFUSAL_BUDGET_MS),
        Row::alone("peak memory of Stockade's own processes", memory_mb, "MB", MEMORY_BUDGET_MB),
    ];
    for (name, provider) in
        [("a turn of Claude Code without tools", "claude"), ("a turn of Codex without tools", "codex")]
    {
        rows.push(Row::added(name, &added(setting, &setting.brief(provider), 9)?, BRIEF_BUDGET_MS));
    }
    let slow = added(setting, &setting.brief("opencode"), 5)?;
    rows.push(Row::added("a turn of OpenCode without tools", &slow, slow.bare * BRIEF_BUDGET_SHARE));
    rows.extend(fence::measure()?);
    rows.extend(egress::measure(setting)?);
    rows.extend(reading::measure(setting)?);
    rows.push(git::measure(setting)?);
    Ok(rows)
}
