//! What the runs of a world asked of the network beside the calls of their model: nothing that the test did not declare.
//!
//! Looked at for every run of every test, when its world goes, so that a call of an agent's own cannot hide in a test that
//! is about something else.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    sync::{Mutex, OnceLock},
};

use serde_json::Value;
use stockade_core::event::network_code;

use crate::World;

/// Decisions about calls of the model themselves: what they say decides how a run ends, and is tested there.
const ABOUT_THE_MODEL: [&str; 3] =
    [network_code::MODEL_MISMATCH, network_code::RETRY_STORM, network_code::TOOLSET_MISMATCH];

/// What the runs of a world may ask for.
#[derive(Debug, Default)]
pub(crate) struct Declared {
    targets: Mutex<BTreeSet<String>>,
    anything: OnceLock<&'static str>,
}

impl World {
    /// Declares names and request lines that tools are made to ask for in this world. All else fails the test.
    pub fn expects_network(&self, targets: &[&str]) {
        self.declared.targets.lock().unwrap().extend(targets.iter().map(ToString::to_string));
    }

    /// Says that the test itself looks at every decision about the network, or that they are no agent's, and why.
    pub fn judges_network_itself(&self, reason: &'static str) {
        let _said_again = self.declared.anything.set(reason);
    }

    /// What was asked for in this world and not declared: the run and the event, one a line.
    pub(crate) fn undeclared(&self) -> Vec<String> {
        if self.declared.anything.get().is_some() {
            return Vec::new();
        }
        // A world in which nothing was run has none.
        let runs = fs::read_dir(self.state().join("runs")).into_iter().flatten().flatten();
        let targets = self.declared.targets.lock().unwrap();
        runs.flat_map(|run| decisions(&run.path())).filter(|line| !is_declared(line, &targets)).collect()
    }
}

/// The lines about the network in a run's events, after the name of the run.
fn decisions(run: &Path) -> Vec<String> {
    let events = fs::read_to_string(run.join("events.ndjson")).unwrap_or_default();
    let name = run.file_name().unwrap_or_default().display();
    events
        .lines()
        .filter(|line| line.contains("\"network-decision\""))
        .map(|line| format!("{name} {line}"))
        .collect()
}

/// A line that was cut off, as by a kill, is declared by nobody.
fn is_declared(line: &str, targets: &BTreeSet<String>) -> bool {
    let json = line.split_once(' ').map_or(line, |(_, json)| json);
    let Ok(event) = serde_json::from_str::<Value>(json) else { return false };
    let event = &event["event"];
    // The words may stand in a message of the agent.
    event["kind"] != "network-decision"
        || event["code"].as_str().is_some_and(|code| ABOUT_THE_MODEL.contains(&code))
        || event["target"].as_str().is_some_and(|target| targets.contains(target))
}
