//! What reading an agent's stream costs: recordings of each agent, again and again, on one core.

use anyhow::{Context, Result};

use super::{report::Row, setting::Setting};
use crate::{repository, shell};

const MEGABYTES: u32 = 100;
/// 200 MB/s.
const TIME_BUDGET_MS: f64 = 500.0;
/// The longest line that is read, twice: as it came, and the text in it.
const MEMORY_BUDGET_MB: f64 = 17.0;
const TRIES: usize = 5;

/// Each dialect with a turn that uses tools.
const STREAMS: [(&str, &str, &str); 4] = [
    ("reading 100 MB of Grok's stream", "grok-messages", "grok/our_isolated_write.jsonl"),
    ("reading 100 MB of Claude Code's stream", "claude-stream", "claude/tools.jsonl"),
    ("reading 100 MB of Codex's stream", "codex-exec", "codex/full-access.jsonl"),
    ("reading 100 MB of OpenCode's stream", "opencode-run", "opencode/edits.jsonl"),
];

pub(super) fn measure(setting: &Setting) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let mut largest: f64 = 0.0;
    for (name, dialect, recording) in STREAMS {
        // The least of all tries: it computes and nothing else, so that what the host does can only make it slower.
        let mut least = f64::INFINITY;
        for _ in 0..TRIES {
            let (milliseconds, megabytes) = read(setting, dialect, recording)?;
            least = least.min(milliseconds);
            largest = largest.max(megabytes);
        }
        rows.push(Row::alone(name, least, "ms", TIME_BUDGET_MS));
    }
    rows.push(Row::alone("memory of a reader, whatever it reads", largest, "MB", MEMORY_BUDGET_MB));
    Ok(rows)
}

/// Milliseconds and megabytes, as the program measures them of itself.
fn read(setting: &Setting, dialect: &str, recording: &str) -> Result<(f64, f64)> {
    let path = repository::root().join("crates/stockade-providers/testdata").join(recording);
    let mut reader = shell::command(&setting.read_stream);
    reader.arg(dialect).arg(path).arg(MEGABYTES.to_string());
    let told = shell::output(&mut reader)?;
    let (milliseconds, kilobytes) =
        told.trim().split_once(' ').with_context(|| format!("the reader said `{told}`"))?;
    Ok((milliseconds.parse()?, kilobytes.parse::<f64>()? / 1_000.0))
}
