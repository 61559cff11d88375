//! The four agents, and how a scripted model has each do the same things.

use std::{collections::BTreeSet, time::Duration};

use serde_json::{Value, json};
use stockade_core::{mode::AccessMode, profile::Profile};

use crate::{Ended, World, model, run::Call};

/// Both access modes.
pub const MODES: [AccessMode; 2] = [AccessMode::ReadOnly, AccessMode::IsolatedWrite];

/// Where a start takes seconds of computing, and others compute as well.
const LIMIT: Duration = Duration::from_secs(180);

/// One of the agents.
#[derive(Clone, Copy, Debug)]
pub struct Agent {
    /// As `--provider` takes it.
    pub name: &'static str,
    /// The modes in which it can keep a sandbox of its own.
    pub keeps: &'static [AccessMode],
    /// A call of its tool that runs a command.
    pub shell: fn(&str) -> Value,
    /// A call of its tool that reads a file. Codex has none, and runs `cat`.
    pub read: fn(&str) -> Value,
}

fn call(name: &str, arguments: &Value) -> Value {
    json!({ "tools": [{ "name": name, "arguments": arguments }] })
}

/// All of them.
pub const AGENTS: [Agent; 4] = [
    Agent {
        name: "grok",
        keeps: &MODES,
        shell: model::shell,
        read: |path| call("read_file", &json!({ "target_file": path })),
    },
    Agent {
        name: "claude",
        keeps: &[AccessMode::IsolatedWrite],
        shell: |command| call("Bash", &json!({ "command": command, "description": "test" })),
        read: |path| call("Read", &json!({ "file_path": path })),
    },
    Agent {
        name: "codex",
        keeps: &MODES,
        shell: |command| call("exec_command", &json!({ "cmd": command })),
        read: |path| call("exec_command", &json!({ "cmd": format!("cat '{path}'") })),
    },
    Agent {
        name: "opencode",
        keeps: &[],
        shell: |command| call("bash", &json!({ "command": command, "description": "test" })),
        read: |path| call("read", &json!({ "filePath": path })),
    },
];

impl Agent {
    /// Prepares a run of it as `r`.
    pub fn run<'w>(&self, world: &'w World, mode: AccessMode, sandbox: &str, endpoint: &str) -> Call<'w> {
        let call = world.run("r", &["--provider", self.name, "--mode", mode.id(), "--endpoint", endpoint]);
        call.args(&["--provider-sandbox", sandbox])
    }

    /// Its built-in profile.
    pub fn profile(&self) -> Profile {
        stockade_providers::find(self.name).unwrap().load().unwrap().profile
    }

    /// What its default model is offered in the turn itself.
    pub fn tools(&self, mode: AccessMode) -> BTreeSet<String> {
        self.profile().wire.classes[0].tools(mode).iter().cloned().collect()
    }
}

/// Waits for the end of a call of any of them.
pub fn end(call: Call<'_>) -> Ended {
    call.start().wait(LIMIT)
}
