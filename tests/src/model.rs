//! The scripted model as a process beside the test.

use std::{
    ffi::OsString,
    io::{BufRead as _, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use stockade_model::RequestSeen;

use crate::{World, world};

/// A scripted model under way. Ends when dropped.
#[derive(Debug)]
pub struct ScriptedModel {
    child: Child,
    /// Its base URL.
    pub url: String,
    /// Its log.
    pub log: PathBuf,
    /// Its control socket.
    pub control: PathBuf,
    /// Its certificate authority, where it speaks TLS.
    pub ca: Option<PathBuf>,
}

impl ScriptedModel {
    /// Serves steps, `otherwise` saying `done`.
    pub fn steps(world: &World, steps: &Value) -> Self {
        Self::scenario(
            world,
            &json!({ "version": 1, "name": "test", "steps": steps, "otherwise": { "text": "done" } }),
            &[],
        )
    }

    /// Serves a scenario with further flags.
    pub fn scenario(world: &World, scenario: &Value, flags: &[&str]) -> Self {
        Self::through(world, scenario, flags, &[])
    }

    /// The same, started by a program that ends in running the rest of its arguments, such as `nsenter`.
    pub fn through(world: &World, scenario: &Value, flags: &[&str], program: &[String]) -> Self {
        let folder = tempfile::Builder::new().prefix("model-").tempdir_in(world.root()).unwrap().keep();
        let file = folder.join("scenario.json");
        std::fs::write(&file, serde_json::to_vec(scenario).unwrap()).unwrap();
        let (log, control, ca) = (folder.join("log"), folder.join("control"), folder.join("ca.pem"));
        let mut words: Vec<OsString> = program.iter().map(OsString::from).collect();
        words.push(world::binary().into());
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .arg("scripted-model")
            .arg("--scenario")
            .arg(&file)
            .arg("--log")
            .arg(&log)
            .arg("--control")
            .arg(&control);
        command.args(["--var", &format!("workspace={}", world.ws().display())]);
        command.args(["--var", &format!("outside={}", world.path("outside").display())]);
        command.args(flags);
        let tls = flags.contains(&"--tls");
        if tls {
            command.arg("--ca-out").arg(&ca);
        }
        let mut child = command
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the scripted model starts");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("not ready: {e}: {line}"));
        Self { child, url: ready["url"].as_str().unwrap().to_owned(), log, control, ca: tls.then_some(ca) }
    }

    /// The lines of its log so far.
    pub fn lines(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        text.lines().filter_map(|l| serde_json::from_str(l).ok()).collect()
    }

    /// The requests it has seen.
    pub fn requests(&self) -> Vec<Value> {
        self.lines().into_iter().filter_map(|l| l.get("request").cloned()).collect()
    }

    /// What the model was told about the tool call of a step: the last tool result of the next main request.
    pub fn tool_result(&self, step: u64) -> String {
        let requests = self.requests();
        let next = requests.iter().find(|r| r["class"] == "main" && r["step"] == step + 1);
        let next =
            next.unwrap_or_else(|| panic!("the conversation ended before step {}: {requests:#?}", step + 1));
        let seen: RequestSeen = serde_json::from_value(next.clone()).unwrap();
        seen.tool_results().pop().expect("a tool result")
    }

    /// Waits until an answer is held under this name.
    pub fn wait_for_hold(&self, name: &str) {
        let until = Instant::now() + Duration::from_secs(20);
        while !self.lines().iter().any(|l| l["held"] == name) {
            assert!(Instant::now() < until, "nothing was held as `{name}`: {:?}", self.lines());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Releases what is held under this name.
    pub fn release(&self, name: &str) {
        stockade_model::release(&self.control, name).unwrap();
    }
}

impl Drop for ScriptedModel {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        drop(self.child.wait());
    }
}

/// A tool call of Grok's shell.
pub fn shell(command: &str) -> Value {
    json!({ "tools": [{ "name": "run_terminal_command", "arguments": { "command": command, "description": "test" } }] })
}
