//! What a fence alone costs, measured by the fence's own test program.

use anyhow::{Context, Result};
use serde::Deserialize;

use super::{measure::Cost, report::Row};
use crate::{repository, shell};

const ADDED_BUDGET_MS: f64 = 9.0;
const PEER_BUDGET_MS: f64 = 5.0;
const CROWD_BUDGET_MS: f64 = 600.0;

/// The last line that the program prints: medians in milliseconds.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Told {
    plain: f64,
    fence: f64,
    /// The median of the differences.
    added: f64,
    /// Missing where bubblewrap does not work.
    bubblewrap: Option<f64>,
    hundred: f64,
}

pub(super) fn measure() -> Result<Vec<Row>> {
    let mut cargo = repository::cargo("test");
    cargo.args(["--quiet", "--locked", "--profile", "ci", "-p", "stockade-fence", "--test", "place"]);
    let text = shell::output(cargo.args(["--", "bench"]))?;
    let last = text.lines().last().unwrap_or_default();
    let told: Told = serde_json::from_str(last).with_context(|| format!("the measurement said `{last}`"))?;
    let plain = Cost { bare: told.plain, fenced: told.fence, added: told.added };
    let mut rows = vec![Row::added("fence with canaries around `/bin/true`", &plain, ADDED_BUDGET_MS)];
    if let Some(bare) = told.bubblewrap {
        let peer = Cost { bare, fenced: told.fence, added: told.fence - bare };
        rows.push(Row::added("the same against bubblewrap's namespaces", &peer, PEER_BUDGET_MS));
    }
    rows.push(Row::alone(
        "a hundred fences at once, until the last is gone",
        told.hundred,
        "ms",
        CROWD_BUDGET_MS,
    ));
    Ok(rows)
}
