//! The four agents with a profile: what their profiles say, their shells, and stubs in their place.

use serde_json::{Value, json};

use crate::{World, run::Call};

/// One of the agents that have a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    /// Claude Code.
    Claude,
    /// Codex.
    Codex,
    /// Grok Build.
    Grok,
    /// OpenCode.
    Opencode,
}

impl Provider {
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

    /// The model that its profile names.
    pub fn model(self) -> &'static str {
        match self {
            Self::Claude => "claude-opus-5-5",
            Self::Codex => "gpt-5.5",
            Self::Grok => "grok-4.6",
            Self::Opencode => "glm-5.3",
        }
    }

    /// The text of its built-in profile.
    pub fn profile(self) -> &'static str {
        match self {
            Self::Claude => include_str!("../../crates/stockade-providers/profiles/claude.toml"),
            Self::Codex => include_str!("../../crates/stockade-providers/profiles/codex.toml"),
            Self::Grok => include_str!("../../crates/stockade-providers/profiles/grok.toml"),
            Self::Opencode => include_str!("../../crates/stockade-providers/profiles/opencode.toml"),
        }
    }

    /// A profile that differs from the built-in one in these words, as a file.
    #[track_caller]
    pub fn profile_with(self, world: &World, changes: &[(&str, &str)]) -> String {
        let profile = changes.iter().fold(self.profile().to_owned(), |profile, (ours, theirs)| {
            assert!(profile.contains(ours), "the profile of {} no longer says {ours}", self.name());
            profile.replace(ours, theirs)
        });
        world.write(&format!("out/{}.toml", self.name()), profile).display().to_string()
    }

    /// Prepares a run with its own sandbox replaced. The receipt is named `r`.
    pub fn run<'w>(self, world: &'w World, mode: &str, endpoint: &str) -> Call<'w> {
        let args = ["--provider", self.name(), "--mode", mode, "--provider-sandbox", "replace"];
        world.run("r", &args).args(&["--endpoint", endpoint])
    }

    /// Prepares a run of a stub that speaks as it does and asks no model.
    pub fn run_stub<'w>(self, world: &'w World, mode: &str, body: &str) -> Call<'w> {
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
