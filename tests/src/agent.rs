//! The four agents: what their profiles say, how a scripted model has each do the same things, and stubs in their place.

use std::{collections::BTreeSet, time::Duration};

use serde_json::{Value, json};
use stockade_core::{
    mode::AccessMode::{self, IsolatedWrite, ReadOnly},
    profile::Profile,
};

use crate::{Ended, World, run::Call};

/// Both access modes.
pub const MODES: [AccessMode; 2] = [ReadOnly, IsolatedWrite];

/// Where a start takes seconds of computing, and others compute as well.
const LIMIT: Duration = Duration::from_secs(180);

/// One of the agents that have a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agent {
    /// Claude Code.
    Claude,
    /// Codex.
    Codex,
    /// Grok Build.
    Grok,
    /// OpenCode.
    Opencode,
}

impl Agent {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Claude, Self::Codex, Self::Grok, Self::Opencode];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Grok => "grok",
            Self::Opencode => "opencode",
        }
    }

    /// The text of its built-in profile.
    pub fn profile_text(self) -> &'static str {
        stockade_providers::find(self.name()).unwrap().text
    }

    /// Its built-in profile.
    pub fn profile(self) -> Profile {
        stockade_providers::find(self.name()).unwrap().load().unwrap().profile
    }

    /// The model that its profile names.
    pub fn model(self) -> String {
        self.profile().models.default
    }

    /// What that model is offered in the turn itself.
    pub fn tools(self, mode: AccessMode) -> BTreeSet<String> {
        self.profile().wire.classes[0].tools(mode).iter().cloned().collect()
    }

    /// The modes in which it can keep a sandbox of its own.
    pub fn keeps(self) -> &'static [AccessMode] {
        match self {
            Self::Codex | Self::Grok => &MODES,
            Self::Claude => &[IsolatedWrite],
            Self::Opencode => &[],
        }
    }

    /// A profile that differs from the built-in one in these words, as a file.
    #[track_caller]
    pub fn profile_with(self, world: &World, changes: &[(&str, &str)]) -> String {
        let profile = changes.iter().fold(self.profile_text().to_owned(), |profile, (ours, theirs)| {
            assert!(profile.contains(ours), "the profile of {} no longer says {ours}", self.name());
            profile.replace(ours, theirs)
        });
        world.write(&format!("out/{}.toml", self.name()), profile).display().to_string()
    }

    /// Prepares a run of it as `r`, its own sandbox replaced.
    pub fn run<'w>(self, world: &'w World, mode: AccessMode, endpoint: &str) -> Call<'w> {
        self.run_with(world, mode, "replace", endpoint)
    }

    /// Prepares a run of it as `r`, its own sandbox as said.
    pub fn run_with<'w>(self, world: &'w World, mode: AccessMode, sandbox: &str, endpoint: &str) -> Call<'w> {
        let call = world.run("r", &["--provider", self.name(), "--mode", mode.id(), "--endpoint", endpoint]);
        call.args(&["--provider-sandbox", sandbox])
    }

    /// Prepares a run of a stub that speaks as it does and asks no model.
    pub fn run_stub<'w>(self, world: &'w World, mode: AccessMode, body: &str) -> Call<'w> {
        let stub = world.stub("agent", body).display().to_string();
        self.run(world, mode, "http://127.0.0.1:9/v1").args(&["--model", "m", "--executable", &stub])
    }

    /// A step in which the model has its shell run a command.
    pub fn shell(self, command: &str) -> Value {
        let (name, arguments) = match self {
            Self::Claude => ("Bash", json!({ "command": command, "description": "test" })),
            Self::Codex => ("exec_command", json!({ "cmd": command, "yield_time_ms": 30_000 })),
            Self::Grok => ("run_terminal_command", json!({ "command": command, "description": "test" })),
            Self::Opencode => ("bash", json!({ "command": command, "description": "test" })),
        };
        json!({ "tools": [{ "name": name, "arguments": arguments }] })
    }

    /// A step in which the model has a file read. Codex has no tool for it, and runs `cat`.
    pub fn read(self, path: &str) -> Value {
        let (name, arguments) = match self {
            Self::Claude => ("Read", json!({ "file_path": path })),
            Self::Codex => return self.shell(&format!("cat '{path}'")),
            Self::Grok => ("read_file", json!({ "target_file": path })),
            Self::Opencode => ("read", json!({ "filePath": path })),
        };
        json!({ "tools": [{ "name": name, "arguments": arguments }] })
    }

    /// What the last message of the user says in a request.
    pub fn prompt_in(self, request: &Value) -> String {
        let body = &request["body"];
        let list = if self == Self::Codex { &body["input"] } else { &body["messages"] };
        let mut users = list.as_array().unwrap().iter().filter(|message| message["role"] == "user");
        match &users.next_back().expect("a message of the user")["content"] {
            Value::String(text) => text.clone(),
            parts => parts.as_array().unwrap().last().unwrap()["text"].as_str().unwrap().to_owned(),
        }
    }
}

/// Waits for the end of a call of any of them.
pub fn end(call: Call<'_>) -> Ended {
    call.start().wait(LIMIT)
}
