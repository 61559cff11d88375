//! What a caller has around it that is nothing to an agent: an SSH agent, a wrapper on `PATH`, sessions, models and keys of
//! other agents.

use std::{
    fs,
    os::unix::{fs::PermissionsExt as _, net::UnixListener},
    path::PathBuf,
};

use crate::{World, run::Call};

/// Variables of the caller: sessions of four agents, their models, efforts, endpoints and permissions, foreign keys, a
/// terminal that can do nothing. Every value that could be found again says `foreign`.
pub const VARIABLES: [(&str, &str); 37] = [
    ("AI_AGENT", "foreign-agent"),
    ("ANTHROPIC_API_KEY", "foreign-key-one-5c1f"),
    ("ANTHROPIC_AUTH_TOKEN", "foreign-token"),
    ("ANTHROPIC_BASE_URL", "http://127.0.0.1:1/foreign"),
    ("ANTHROPIC_DEFAULT_HAIKU_MODEL", "foreign-model"),
    ("ANTHROPIC_DEFAULT_OPUS_MODEL", "foreign-model"),
    ("ANTHROPIC_DEFAULT_SONNET_MODEL", "foreign-model"),
    ("ANTHROPIC_MODEL", "foreign-model"),
    ("ANTHROPIC_SMALL_FAST_MODEL", "foreign-model"),
    ("CLAUDECODE", "1"),
    ("CLAUDE_CODE_EFFORT_LEVEL", "low"),
    ("CLAUDE_CODE_ENTRYPOINT", "foreign-entry"),
    ("CLAUDE_CODE_SSE_PORT", "41999"),
    ("CLAUDE_CODE_SUBAGENT_MODEL", "foreign-model"),
    ("CLAUDE_CONFIG_DIR", "/home/foreign/.claude"),
    ("CODEX_API_KEY", "foreign-key"),
    ("CODEX_HOME", "/home/foreign/.codex"),
    ("CODEX_MODEL", "foreign-model"),
    ("CODEX_SANDBOX", "seatbelt"),
    ("CODEX_SANDBOX_NETWORK_DISABLED", "1"),
    ("GROK_AGENT", "foreign-agent"),
    ("GROK_CONFIG", "{\"models\":{\"default\":\"foreign-model\"}}"),
    ("GROK_MODEL", "foreign-model"),
    ("GROK_SANDBOX", "strict"),
    ("GROK_SESSION_ID", "foreign-session"),
    ("LD_PRELOAD", ""),
    ("MAX_THINKING_TOKENS", "1024"),
    ("OPENAI_API_KEY", "foreign-key-two-77ab"),
    ("OPENAI_BASE_URL", "http://127.0.0.1:1/foreign"),
    ("OPENAI_MODEL", "foreign-model"),
    ("OPENCODE", "1"),
    ("OPENCODE_CONFIG", "/home/foreign/opencode.json"),
    ("OPENCODE_CONFIG_CONTENT", "{\"model\":\"foreign/model\",\"permission\":\"ask\"}"),
    ("OPENCODE_MODEL", "foreign/model"),
    ("OPENCODE_PERMISSION", "{\"bash\":\"deny\"}"),
    ("TERM", "dumb"),
    ("XAI_API_KEY", "foreign-key"),
];

/// A caller with surroundings: an SSH agent that really listens, a folder with a space and wrappers first on `PATH`.
#[derive(Debug)]
pub struct Clutter {
    /// Where all of it is.
    pub world: World,
    agent_folder: tempfile::TempDir,
    ssh_agent: UnixListener,
}

impl Clutter {
    /// Puts them around a world.
    pub fn around(world: World) -> Self {
        let agent_folder = tempfile::Builder::new().prefix("ssh-").tempdir_in("/tmp").unwrap();
        fs::set_permissions(agent_folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let ssh_agent = UnixListener::bind(agent_folder.path().join("agent.7")).unwrap();
        fs::set_permissions(agent_folder.path().join("agent.7"), fs::Permissions::from_mode(0o777)).unwrap();
        ssh_agent.set_nonblocking(true).unwrap();
        world.folder("marks");
        let wrapper = format!("#!/bin/sh\necho ran >>{}\nexit 1\n", world.path("marks/wrapper").display());
        for name in ["claude", "codex", "grok", "opencode"] {
            world.script(&format!("my tools/{name}"), &wrapper);
        }
        Self { world, agent_folder, ssh_agent }
    }

    /// The socket of the SSH agent.
    pub fn socket(&self) -> PathBuf {
        self.agent_folder.path().join("agent.7")
    }

    /// The call among all that, with a standard input that never ends and one more pipe that everybody inherits.
    pub fn surround<'w>(&self, call: Call<'w>) -> Call<'w> {
        let pipe = self.world.path("inherited pipe");
        if !pipe.exists() {
            let mode = rustix::fs::Mode::from_raw_mode(0o666);
            rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).unwrap();
        }
        let inherit = format!("exec 7<>'{}'; exec \"$@\"", pipe.display());
        let through = ["/bin/bash", "-c", &inherit, "through"].map(str::to_owned);
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", self.world.path("my tools").display());
        let socket = self.socket().display().to_string();
        let call =
            call.through(&through).stdin_that_never_ends().env("PATH", &path).env("SSH_AUTH_SOCK", &socket);
        VARIABLES.iter().fold(call, |call, (name, value)| call.env(name, value))
    }

    /// Nobody spoke with the SSH agent and nothing ran a wrapper.
    #[track_caller]
    pub fn assert_untouched(&self) {
        let spoken = self.ssh_agent.accept().expect_err("somebody connected to the SSH agent");
        assert_eq!(spoken.kind(), std::io::ErrorKind::WouldBlock);
        assert!(!self.world.path("marks/wrapper").exists(), "a wrapper on PATH was run");
    }
}
