//! Stub agents: scripts that misbehave in ways real agents do. They speak Grok's dialect.

use std::path::PathBuf;

use crate::World;

/// A line that Grok prints first.
pub const INIT: &str = r#"{"type":"system","subtype":"init","session_id":"s-1","model":"m","tools":["run_terminal_command"],"cwd":"/w"}"#;

/// A message of the agent.
pub fn message(text: &str) -> String {
    format!(
        r#"{{"type":"assistant","message":{{"role":"assistant","model":"m","content":[{{"type":"text","text":"{text}"}}],"stop_reason":"end_turn"}}}}"#
    )
}

/// The result of a turn that went well.
pub fn success(text: &str) -> String {
    format!(
        r#"{{"type":"result","subtype":"success","is_error":false,"num_turns":1,"result":"{text}","stop_reason":"end_turn","usage":{{"input_tokens":5,"output_tokens":2}},"modelUsage":{{"m":{{"inputTokens":5,"outputTokens":2}}}}}}"#
    )
}

impl World {
    /// A stub agent from the body of a bash script. `say TEXT` prints a line.
    pub fn stub(&self, name: &str, body: &str) -> PathBuf {
        let script = format!("#!/bin/bash\nsay() {{ printf '%s\\n' \"$1\"; }}\n{body}\n");
        self.script(&format!("stubs/{name}"), &script)
    }

    /// A stub that prints these lines and exits with 0.
    pub fn stub_lines(&self, name: &str, lines: &[&str]) -> PathBuf {
        let mut body = String::from("cat <<'STOCKADE_END'\n");
        for line in lines {
            body.push_str(line);
            body.push('\n');
        }
        body.push_str("STOCKADE_END");
        self.stub(name, &body)
    }
}
