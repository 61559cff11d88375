//! `stockade gc`: shows what old runs left; removes it when told to.

use std::path::Path;
use std::time::{Duration, SystemTime};

use serde_json::json;
use stockade_core::status::exit_code;
use stockade_journal::{
    State,
    gc::{self, GcPolicy, Leftover, LeftoverKind},
};

use stockade_lane::{git, scratch};

use super::TEMPORARY;
use crate::{cli::GcArgs, error::CliError, render, world::World};

/// Records of runs are kept this long unless the caller says otherwise.
const KEEP: Duration = Duration::from_secs(30 * 24 * 60 * 60);

pub(crate) fn run(args: &GcArgs, world: &World) -> Result<u8, CliError> {
    let state = State::create(&world.state_root()?)?;
    let keep = args.older_than.and_then(|t| t.0).map_or(KEEP, Duration::from_millis);
    let policy = GcPolicy { keep_ended: keep, keep_interrupted: keep };
    #[expect(clippy::disallowed_methods, reason = "the binary is the edge where the clock comes in")]
    let now = SystemTime::now();
    let path = world.get("PATH").unwrap_or_default();
    let mut found = gc::plan_gc(&state, now, &policy)?;
    found.extend(git::leftovers(&state, path)?);
    found.extend(scratch::leftovers(Path::new(TEMPORARY), now));
    let mut rows = Vec::new();
    let mut failed = false;
    for leftover in &found {
        let removed = if args.remove && leftover.safe { Some(remove(&state, leftover, path)) } else { None };
        failed |= matches!(removed, Some(Err(_)));
        rows.push((leftover, removed));
    }
    if args.json {
        let list: Vec<_> = rows.iter().map(|(l, r)| entry(l, r.as_ref())).collect();
        render::json(&list)?;
    } else {
        let mut text = String::new();
        for (l, removed) in &rows {
            let word = match removed {
                Some(Ok(())) => "removed".to_owned(),
                Some(Err(e)) => format!("NOT removed ({e})"),
                None if l.safe => "left over".to_owned(),
                None => "kept".to_owned(),
            };
            text.push_str(&format!("{word:<10} {} ({} bytes): {}\n", l.path.display(), l.bytes, l.why));
        }
        if rows.is_empty() {
            text.push_str("nothing is left over\n");
        } else if !args.remove && found.iter().any(|l| l.safe) {
            text.push_str("`stockade gc --remove` removes what is left over\n");
        }
        render::out(&text)?;
    }
    Ok(if failed { exit_code::STORAGE } else { exit_code::OK })
}

fn remove(state: &State, leftover: &Leftover, path: &str) -> Result<(), stockade_journal::JournalError> {
    match leftover.kind {
        LeftoverKind::Worktree => git::remove(state, leftover, path),
        LeftoverKind::Scratch => scratch::remove(state, leftover),
        _ => gc::remove(state, leftover),
    }
}

fn entry(l: &Leftover, removed: Option<&Result<(), stockade_journal::JournalError>>) -> serde_json::Value {
    json!({
        "kind": l.kind.id(),
        "path": l.path,
        "run": l.run,
        "bytes": l.bytes,
        "why": l.why,
        "safe": l.safe,
        "removed": matches!(removed, Some(Ok(()))),
        "error": removed.and_then(|r| r.as_ref().err()).map(ToString::to_string),
    })
}
