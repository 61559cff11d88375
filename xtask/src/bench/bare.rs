//! A bare start: the planned argv, environment and generated configuration, without fence and gateway.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result};
use serde_json::Value;

use super::setting::{Setting, Subject};
use crate::shell;

/// The home inside the fence, as plans name it.
const HOME: &str = "/home/agent";

/// The plan as it is carried out outside the fence.
pub(super) struct Bare {
    plan: Value,
    endpoint: String,
}

impl Bare {
    pub(super) fn of(setting: &Setting, subject: &Subject) -> Result<Self> {
        Ok(Self { plan: setting.plan(subject)?, endpoint: subject.endpoint.clone() })
    }

    /// Prepares a start in a fresh home.
    pub(super) fn command(&self, setting: &Setting, home: &Path) -> Result<Command> {
        fs::create_dir_all(home)?;
        for (path, content) in self.map("/homeFiles")? {
            let file = home.join(path);
            fs::create_dir_all(file.parent().context("a file without a folder")?)?;
            fs::write(file, self.outside(content, home)?)?;
        }
        if let Some(prompt) = self.plan.pointer("/prompt/file").and_then(Value::as_str) {
            fs::copy(setting.prompt(), home.join(prompt))?;
        }
        let program = self.text("/executable/path")?;
        let mut command = shell::command(program);
        for argument in
            self.plan.pointer("/argv").and_then(Value::as_array).context("no argv")?.iter().skip(1)
        {
            command.arg(self.outside(argument, home)?);
        }
        command.env_clear();
        for (name, value) in self.map("/env")? {
            command.env(name, self.outside(value, home)?);
        }
        // Claude Code runs as root only where it is told that something holds it in. In a fence it is not root.
        command.env("IS_SANDBOX", "1");
        let by_file = self.plan.pointer("/prompt/file").is_some_and(|file| !file.is_null());
        let stdin = if by_file { Stdio::null() } else { Stdio::from(fs::File::open(setting.prompt())?) };
        command.current_dir(setting.workspace()).stdin(stdin).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(command)
    }

    fn text(&self, pointer: &str) -> Result<&str> {
        self.plan
            .pointer(pointer)
            .and_then(Value::as_str)
            .with_context(|| format!("the plan has no {pointer}"))
    }

    fn map(&self, pointer: &str) -> Result<&serde_json::Map<String, Value>> {
        self.plan
            .pointer(pointer)
            .and_then(Value::as_object)
            .with_context(|| format!("the plan has no {pointer}"))
    }

    /// A text of the plan with the paths and the address that hold outside.
    fn outside(&self, value: &Value, home: &Path) -> Result<String> {
        let text = value.as_str().context("no text")?;
        let home = home.to_str().context("the home's path is no text")?;
        let origin = self.endpoint.trim_end_matches("/v1");
        Ok(text.replace(HOME, home).replace("http://127.0.0.1:8080", origin))
    }
}
