//! The lines that each agent prints, for stubs that misbehave as it does.

use serde_json::{Value, json};

use crate::{Agent, World};

/// The model that stubs name, where their agent names one.
const MODEL: &str = "m";

impl Agent {
    /// The opening of a turn.
    pub fn begins(self) -> String {
        lines(&match self {
            Self::Claude | Self::Grok => vec![
                json!({ "type": "system", "subtype": "init", "session_id": "s-1", "model": MODEL, "tools": ["shell"] }),
            ],
            Self::Codex => {
                vec![
                    json!({ "type": "thread.started", "thread_id": "s-1" }),
                    json!({ "type": "turn.started" }),
                ]
            }
            Self::Opencode => vec![part("step_start", json!({ "type": "step-start" }))],
        })
    }

    /// A message.
    pub fn says(self, text: &str) -> String {
        self.says_as(MODEL, text)
    }

    /// A message by this model. Only two of them say whose it is.
    pub fn says_as(self, model: &str, text: &str) -> String {
        lines(&[match self {
            Self::Claude | Self::Grok => assistant(model, &json!({ "type": "text", "text": text })),
            Self::Codex => item("item.completed", json!({ "type": "agent_message", "text": text })),
            Self::Opencode => part("text", json!({ "type": "text", "text": text })),
        }])
    }

    /// The announcement of a command. OpenCode tells of none before it has ended.
    pub fn calls(self) -> String {
        lines(&match self {
            Self::Claude | Self::Grok => vec![assistant(MODEL, &tool_use(self))],
            Self::Codex => vec![item("item.started", command("in_progress", "", None))],
            Self::Opencode => Vec::new(),
        })
    }

    /// A command that went well, after its announcement.
    pub fn returns(self, output: &str) -> String {
        lines(&[match self {
            Self::Claude | Self::Grok => tool_result(output, false),
            Self::Codex => item("item.completed", command("completed", output, Some(0))),
            Self::Opencode => {
                let state = json!({ "status": "completed", "input": {}, "output": output, "metadata": { "exit": 0 } });
                part("tool_use", json!({ "type": "tool", "tool": "bash", "callID": "c-1", "state": state }))
            }
        }])
    }

    /// A command that the agent refused, after its announcement, and went on.
    pub fn denies(self) -> String {
        let line = match self {
            Self::Claude => json!({ "type": "user", "message": { "role": "user", "content": [
                { "type": "tool_result", "tool_use_id": "c-1", "content": self.denial(), "is_error": true } ] },
                "tool_result_meta": [{ "id": "c-1", "permission_decision": { "decision": "reject", "source": "config" } }] }),
            Self::Codex => item("item.completed", command("declined", self.denial(), None)),
            Self::Grok => tool_result(self.denial(), true),
            Self::Opencode => refused(self.denial()),
        };
        lines(&[line])
    }

    /// A command that the agent refused and that ended the turn, after its announcement. Codex says no more than that.
    pub fn cancels(self) -> String {
        let stopped = "The user doesn't want to proceed with this tool use.";
        lines(&match self {
            Self::Claude => vec![
                tool_result(stopped, true),
                json!({
                    "type": "result", "subtype": "error_during_execution", "is_error": true, "num_turns": 1,
                    "terminal_reason": "aborted_tools", "stop_reason": "tool_use", "errors": ["stopped"],
                    "usage": { "input_tokens": 5, "output_tokens": 2 },
                    "permission_denials": [{ "tool_name": "Bash", "tool_use_id": "c-1", "tool_input": {} }],
                }),
            ],
            Self::Codex => return self.denies(),
            Self::Grok => vec![
                tool_result(
                    r#"[{"type":"content","content":{"type":"text","text":"User cancelled the execution for tool `run_terminal_command`"}}]"#,
                    true,
                ),
                json!({
                    "type": "result", "subtype": "error_during_execution", "is_error": true, "num_turns": 1,
                    "stop_reason": "cancelled", "usage": { "input_tokens": 5, "output_tokens": 2 }, "errors": ["cancelled"],
                }),
            ],
            Self::Opencode => vec![
                refused("The user rejected permission to use this specific tool call."),
                step_finish("tool-calls"),
            ],
        })
    }

    /// What it says of a command that it refused.
    pub fn denial(self) -> &'static str {
        match self {
            Self::Claude => "Claude requested permissions to use Bash, but you haven't granted it yet.",
            Self::Codex => "exec command rejected by user",
            Self::Grok => {
                "Tool `run_terminal_command` was not executed: Denied by permission policy: deny rule on shell"
            }
            Self::Opencode => {
                "The user has specified a rule which prevents you from using this specific tool call."
            }
        }
    }

    /// The name that its shell has in a receipt.
    pub fn shell_name(self) -> &'static str {
        match self {
            Self::Claude => "Bash",
            Self::Codex => "command_execution",
            Self::Grok => "run_terminal_command",
            Self::Opencode => "bash",
        }
    }

    /// The end of a turn that went well, with these words as its answer, and seven tokens.
    pub fn succeeds(self, text: &str) -> String {
        self.succeeds_with(&[MODEL], text)
    }

    /// The same, with the models that its usage lists. Two of them list none.
    pub fn succeeds_with(self, models: &[&str], text: &str) -> String {
        let listed: serde_json::Map<String, Value> = models
            .iter()
            .map(|model| ((*model).to_owned(), json!({ "inputTokens": 5, "outputTokens": 2 })))
            .collect();
        match self {
            Self::Claude | Self::Grok => lines(&[json!({
                "type": "result", "subtype": "success", "is_error": false, "num_turns": 1, "result": text,
                "stop_reason": "end_turn", "usage": { "input_tokens": 5, "output_tokens": 2 }, "modelUsage": listed,
            })]),
            Self::Codex => {
                let usage = json!({ "input_tokens": 5, "cached_input_tokens": 0, "output_tokens": 2 });
                self.says(text) + &lines(&[json!({ "type": "turn.completed", "usage": usage })])
            }
            Self::Opencode => self.says(text) + &lines(&[step_finish("stop")]),
        }
    }

    /// The end of a turn that failed.
    pub fn fails(self, text: &str) -> String {
        lines(&match self {
            Self::Claude | Self::Grok => vec![json!({
                "type": "result", "subtype": "error_during_execution", "is_error": true, "num_turns": 1, "errors": [text],
            })],
            Self::Codex => vec![
                json!({ "type": "error", "message": text }),
                json!({ "type": "turn.failed", "error": { "message": text } }),
            ],
            Self::Opencode => vec![json!({
                "type": "error", "sessionID": "s-1", "error": { "name": "UnknownError", "data": { "message": text } },
            })],
        })
    }

    /// A command that makes the session's own log in a stub and opens it as descriptor 8.
    pub fn opens_log(self) -> &'static str {
        match self {
            Self::Claude | Self::Opencode => "exec 8>~/session.jsonl\n",
            Self::Codex => {
                "folder=$CODEX_HOME/sessions/2026/01/02; mkdir -p \"$folder\"; exec 8>\"$folder/rollout-1.jsonl\"\n"
            }
            Self::Grok => {
                "while [ $# -gt 0 ]; do case \"$1\" in -s) session=$2;; --cwd) cwd=$2;; esac; shift; done\n\
                 folder=$GROK_HOME/sessions/${cwd//\\//%2F}/$session; mkdir -p \"$folder\"; exec 8>\"$folder/events.jsonl\"\n"
            }
        }
    }

    /// A profile that names the log of [`Agent::opens_log`]; `None`: the built-in one does.
    pub fn profile_with_log(self, world: &World) -> Option<String> {
        let dialect = match self {
            Self::Claude => "dialect = \"claude-stream\"",
            Self::Opencode => "dialect = \"opencode-run\"",
            Self::Codex | Self::Grok => return None,
        };
        let with_log = format!("{dialect}\nsession_log = \"session.jsonl\"");
        Some(self.profile_with(world, &[(dialect, &with_log)]))
    }
}

/// A command of a stub that prints these lines.
pub fn print(lines: &str) -> String {
    format!("cat <<'STOCKADE_END'\n{lines}STOCKADE_END\n")
}

fn lines(all: &[Value]) -> String {
    all.iter().fold(String::new(), |text, line| text + &line.to_string() + "\n")
}

fn assistant(model: &str, block: &Value) -> Value {
    json!({ "type": "assistant", "message": { "role": "assistant", "model": model, "content": [block] } })
}

fn tool_use(agent: Agent) -> Value {
    json!({ "type": "tool_use", "id": "c-1", "name": agent.shell_name(), "input": { "command": "true" } })
}

fn tool_result(text: &str, is_error: bool) -> Value {
    let block = json!({ "type": "tool_result", "tool_use_id": "c-1", "content": text, "is_error": is_error });
    json!({ "type": "user", "message": { "role": "user", "content": [block] } })
}

fn item(kind: &str, mut item: Value) -> Value {
    let id = if item["type"] == "agent_message" { "m-1" } else { "c-1" };
    item["id"] = json!(id);
    json!({ "type": kind, "item": item })
}

fn command(status: &str, output: &str, exit_code: Option<i32>) -> Value {
    json!({
        "type": "command_execution", "command": "true", "aggregated_output": output, "exit_code": exit_code,
        "status": status,
    })
}

fn part(kind: &str, mut part: Value) -> Value {
    part["messageID"] = json!("m-1");
    json!({ "type": kind, "timestamp": 1, "sessionID": "s-1", "part": part })
}

fn refused(error: &str) -> Value {
    let state = json!({ "status": "error", "input": {}, "error": error });
    part("tool_use", json!({ "type": "tool", "tool": "bash", "callID": "c-1", "state": state }))
}

fn step_finish(reason: &str) -> Value {
    let tokens = json!({ "input": 5, "output": 2, "reasoning": 0, "cache": { "read": 0, "write": 0 } });
    part("step_finish", json!({ "type": "step-finish", "reason": reason, "tokens": tokens }))
}
