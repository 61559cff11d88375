//! What is measured: binaries, a workspace, a stub and the real agent, and an endpoint.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::{binary, repository, scripted::ScriptedModel, shell, test::PROVIDERS};

/// A stub that ends a turn well and at once, in the stream of the agent whose profile it runs under.
const STUB: &str = r#"#!/bin/sh
printf '%s\n' '{"type":"system","subtype":"init","session_id":"stub","model":"grok-4.6","tools":[]}' \
'{"type":"result","subtype":"success","is_error":false,"num_turns":1,"result":"ok","stop_reason":"end_turn","session_id":"stub"}'
"#;

/// Where everything is.
pub(super) struct Setting {
    /// Removed with the setting.
    _scratch: tempfile::TempDir,
    pub(super) folder: PathBuf,
    pub(super) binary: PathBuf,
    pub(super) host_class: PathBuf,
    pub(super) egress_client: PathBuf,
    pub(super) read_stream: PathBuf,
    /// Has Grok read a file, and then answers.
    pub(super) model: ScriptedModel,
    /// Answers at once.
    brief_model: ScriptedModel,
    pub(super) stub: Subject,
    /// Grok, with one tool call.
    pub(super) agent: Subject,
}

/// A program that is measured bare and under Stockade.
pub(super) struct Subject {
    /// Tells its files from those of others.
    pub(super) name: &'static str,
    /// Under whose profile it runs.
    provider: &'static str,
    /// Named by `--executable`; `None`: the pinned agent.
    executable: Option<PathBuf>,
    /// The model it asks.
    pub(super) endpoint: String,
}

impl Setting {
    pub(super) fn make() -> Result<Self> {
        // Outside this repository: an agent that finds itself inside one starts git, and in the fence it does not.
        let scratch = tempfile::Builder::new().prefix("stockade-bench-").tempdir_in("/var/tmp")?;
        let folder = scratch.path().to_owned();
        let workspace = folder.join("workspace");
        fs::create_dir_all(&workspace).with_context(|| format!("making {}", workspace.display()))?;
        write(&workspace.join("README.md"), "Nothing to see.\n")?;
        write(&folder.join("prompt.md"), "Read README.md.\n")?;
        let read = json!({"target_file": workspace.join("README.md")});
        let steps =
            json!([{"tools": [{"name": "read_file", "arguments": read}]}, {"text": "Nothing to see."}]);
        let scenario = folder.join("scenario.json");
        write(&scenario, &json!({"version": 1, "name": "bench", "steps": steps}).to_string())?;
        let stub = folder.join("stub");
        write(&stub, STUB)?;
        fs::set_permissions(&stub, fs::Permissions::from_mode(0o755))?;

        let binary = binary::build()?;
        shell::run(repository::cargo("build").args([
            "--locked",
            "--profile",
            "ci",
            "-p",
            "stockade-tests",
            "--bin",
            "host-class",
            "--bin",
            "egress-client",
            "--bin",
            "read-stream",
        ]))?;
        let model = ScriptedModel::start(&binary, &scenario)?;
        let brief = folder.join("brief.json");
        let answer =
            json!({"version": 1, "name": "brief", "steps": [], "otherwise": {"text": "Nothing to see."}});
        write(&brief, &answer.to_string())?;
        let brief_model = ScriptedModel::start(&binary, &brief)?;
        let grok =
            |name, executable| Subject { name, provider: "grok", executable, endpoint: model.url.clone() };
        let setting = Self {
            _scratch: scratch,
            host_class: repository::target().join("ci/host-class"),
            egress_client: repository::target().join("ci/egress-client"),
            read_stream: repository::target().join("ci/read-stream"),
            folder,
            binary,
            stub: grok("stub", Some(stub)),
            agent: grok("agent", None),
            model,
            brief_model,
        };
        for provider in PROVIDERS {
            shell::run(
                Self::environment(&mut shell::command(&setting.binary)).args(["provision", provider]),
            )?;
        }
        Ok(setting)
    }

    /// The client of the egress listener as the agent of a run.
    pub(super) fn egress_subject(&self) -> Subject {
        let executable = Some(self.egress_client.clone());
        Subject { name: "egress", provider: "grok", executable, endpoint: self.model.url.clone() }
    }

    /// A pinned agent that is answered at once.
    pub(super) fn brief(&self, provider: &'static str) -> Subject {
        Subject { name: provider, provider, executable: None, endpoint: self.brief_model.url.clone() }
    }

    pub(super) fn workspace(&self) -> PathBuf {
        self.folder.join("workspace")
    }

    pub(super) fn prompt(&self) -> PathBuf {
        self.folder.join("prompt.md")
    }

    /// The state that the tests use too, so that the agent is fetched once.
    pub(super) fn environment(command: &mut Command) -> &mut Command {
        command.env("XDG_STATE_HOME", repository::target().join("test-state")).stdin(Stdio::null())
    }

    /// The arguments of an order, for `run` and `plan`.
    fn order(&self, command: &mut Command, subject: &Subject, sandbox: &str) {
        command.args(["--provider", subject.provider, "--mode", "read-only", "--provider-sandbox", sandbox]);
        command.args(["--endpoint", &subject.endpoint, "--cwd"]).arg(self.workspace());
        command.arg("--prompt").arg(self.prompt());
        if let Some(executable) = &subject.executable {
            command.arg("--executable").arg(executable);
        }
    }

    /// A run under Stockade; `name` tells its files from those of other runs.
    pub(super) fn run(&self, subject: &Subject, sandbox: &str, name: &str) -> Command {
        let mut command = shell::command(&self.binary);
        self.finish_run(&mut command, subject, sandbox, name);
        command
    }

    /// The same on a host of another class.
    pub(super) fn run_on(&self, classes: &[&str], subject: &Subject, sandbox: &str, name: &str) -> Command {
        let mut command = shell::command(&self.host_class);
        command.args(classes).arg("--").arg(&self.binary);
        self.finish_run(&mut command, subject, sandbox, name);
        command
    }

    fn finish_run(&self, command: &mut Command, subject: &Subject, sandbox: &str, name: &str) {
        command.args(["--quiet", "run"]);
        self.order(command, subject, sandbox);
        command.arg("--output").arg(self.folder.join(format!("{name}.md")));
        command.arg("--receipt").arg(self.folder.join(format!("{name}.json")));
        Self::environment(command).stdout(Stdio::null()).stderr(Stdio::null());
    }

    /// The plan of such a run.
    pub(super) fn plan(&self, subject: &Subject) -> Result<Value> {
        let mut command = shell::command(&self.binary);
        command.args(["plan", "--json"]);
        self.order(&mut command, subject, "replace");
        Ok(serde_json::from_str(&shell::output(Self::environment(&mut command))?)?)
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}
