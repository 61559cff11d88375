//! One lane: prompt and scenario in, answer, diff and receipt out.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::{Demo, sample::Sample};
use crate::{scripted::ScriptedModel, shell};

/// A lane to be shown.
pub(super) struct Lane {
    /// The access mode.
    pub(super) mode: &'static str,
    prompt: &'static str,
    /// What the scripted model says, given the worktree's path.
    steps: fn(&str) -> Value,
}

impl Lane {
    pub(super) fn read_only() -> Self {
        Self {
            mode: "read-only",
            prompt: "What does this repository do? Try to note it in report.md as well.\n",
            steps: |tree| {
                json!([
                    tool("read_file", &json!({"target_file": format!("{tree}/README.md")})),
                    tool("run_terminal_command", &shell_call("Note it", "echo 'It counts words.' > report.md")),
                    {"text": "It counts the words of a file. I could not write report.md: the folder is read-only."},
                ])
            },
        }
    }

    pub(super) fn isolated_write() -> Self {
        Self {
            mode: "isolated-write",
            prompt: "Let count.sh take several files, and add a line to the poem.\n",
            steps: |tree| {
                json!([
                    tool("read_file", &json!({"target_file": format!("{tree}/count.sh")})),
                    tool("search_replace", &json!({
                        "file_path": format!("{tree}/count.sh"),
                        "old_string": "wc -w < \"$1\"",
                        "new_string": "cat -- \"$@\" | wc -w",
                    })),
                    tool("run_terminal_command", &shell_call("Write and check", "echo 'a red wheel barrow' >> poem.txt && sh count.sh README.md poem.txt")),
                    {"text": "count.sh takes several files now, and the poem has a third line."},
                ])
            },
        }
    }

    pub(super) fn run(&self, demo: &Demo, sample: &Sample) -> Result<()> {
        let folder = demo.folder.join(self.mode);
        if folder.exists() {
            fs::remove_dir_all(&folder).with_context(|| format!("removing {}", folder.display()))?;
        }
        fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        let tree = sample.worktree.to_str().context("the path of the sample is no text")?;
        let scenario = folder.join("scenario.json");
        let steps = (self.steps)(tree);
        write(&scenario, &json!({"version": 1, "name": self.mode, "steps": steps}).to_string())?;
        write(&folder.join("prompt.md"), self.prompt)?;
        let model = ScriptedModel::start(&demo.binary, &scenario)?;

        let mut run = demo.stockade();
        run.args(["run", "--provider", "grok", "--provider-sandbox", "replace", "--mode", self.mode]);
        run.args(["--endpoint", &model.url, "--cwd", tree]);
        for (flag, name) in
            [("--prompt", "prompt.md"), ("--output", "answer.md"), ("--receipt", "receipt.json")]
        {
            run.arg(flag).arg(folder.join(name));
        }
        println!("prompt:  {}", self.prompt.trim_end());
        let outcome = shell::run(&mut run);
        let receipt: Value = serde_json::from_str(&read(&folder.join("receipt.json"))?)?;
        show(&receipt);
        outcome?;
        println!("answer:  {}", read(&folder.join("answer.md"))?.trim_end());
        // Work in a repository is in objects; the worktree itself has not changed.
        let diff = if receipt.pointer("/git").is_none_or(Value::is_null) {
            sample.diff()?
        } else {
            shell::output(demo.stockade().args(["receipt", "diff"]).arg(folder.join("receipt.json")))?
        };
        println!("diff:    {}", if diff.is_empty() { "nothing changed" } else { "" });
        print!("{diff}");
        Ok(())
    }
}

fn tool(name: &str, arguments: &Value) -> Value {
    json!({"tools": [{"name": name, "arguments": arguments}]})
}

fn shell_call(description: &str, command: &str) -> Value {
    json!({"description": description, "command": command})
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}

/// The receipt in a few lines: what happened, what was chosen and what held it.
fn show(receipt: &Value) {
    let text = |pointer: &str| match receipt.pointer(pointer) {
        None | Some(Value::Null) => "none".to_owned(),
        Some(Value::String(s)) => s.clone(),
        Some(other) => other.to_string(),
    };
    println!("status:  {} in {} ms", text("/status"), text("/elapsedMs"));
    println!(
        "model:   {} asked, {} answered ({})",
        text("/model"),
        text("/reportedModel"),
        text("/modelEvidence")
    );
    println!(
        "agent:   {} {}, pinned by {}",
        text("/runtime/name"),
        text("/runtime/version"),
        text("/runtime/pin")
    );
    println!(
        "fence:   rung {}, network {}, built in {} us, proven in {} us",
        text("/fence/rung"),
        text("/fence/network"),
        text("/fence/buildUs"),
        text("/fence/proveUs")
    );
    for guarantee in receipt.pointer("/guarantees").and_then(Value::as_array).into_iter().flatten() {
        let field = |key: &str| guarantee.get(key).and_then(Value::as_str).unwrap_or_default();
        let held = guarantee.get("held").and_then(Value::as_bool).unwrap_or_default();
        println!(
            "         {} {}: {}{}",
            if held { "held   " } else { "missing" },
            field("id"),
            field("mechanism"),
            proven_by(guarantee)
        );
    }
    for note in receipt.pointer("/notes").and_then(Value::as_array).into_iter().flatten() {
        println!("note:    {}", note.as_str().unwrap_or_default());
    }
    let changed = receipt.pointer("/changes/files").and_then(Value::as_array).map_or(0, Vec::len);
    println!(
        "changes: {changed} file(s), {} tool call(s), {} denied",
        text("/toolCalls"),
        text("/denialCount")
    );
    println!("record:  {}", text("/runDirectory"));
}

fn proven_by(guarantee: &Value) -> String {
    let canaries = guarantee.get("proof").and_then(Value::as_array);
    let names: Vec<&str> = canaries.into_iter().flatten().filter_map(Value::as_str).collect();
    if names.is_empty() { String::new() } else { format!("; proven by {}", names.join(", ")) }
}
