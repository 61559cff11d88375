//! The scripted model as a process: an endpoint on loopback that needs no account.

use std::{
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, ChildStdin, Stdio},
};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::shell;

/// A running scripted model. It ends when this is dropped: its standard input is its lifeline.
pub(crate) struct ScriptedModel {
    child: Child,
    lifeline: Option<ChildStdin>,
    /// The base URL of its endpoint.
    pub(crate) url: String,
}

impl ScriptedModel {
    /// Starts it with a scenario and waits for its address.
    pub(crate) fn start(binary: &Path, scenario: &Path) -> Result<Self> {
        let mut command = shell::command(binary);
        command.args(["scripted-model", "--listen", "127.0.0.1:0", "--scenario"]).arg(scenario);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let lifeline = child.stdin.take();
        let stdout = child.stdout.take().context("the scripted model has no standard output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let mut model = Self { child, lifeline, url: String::new() };
        let announced: Value = serde_json::from_str(&line)
            .with_context(|| format!("the scripted model announced `{}`", line.trim_end()))?;
        match announced.get("url").and_then(Value::as_str) {
            Some(url) => url.clone_into(&mut model.url),
            None => bail!("the scripted model announced no address: {line}"),
        }
        Ok(model)
    }
}

impl Drop for ScriptedModel {
    fn drop(&mut self) {
        drop(self.lifeline.take());
        let _status = self.child.wait();
    }
}
