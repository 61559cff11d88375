//! What came over the wire, as the scripted model logged it.

use std::{collections::BTreeSet, time::Duration};

use serde_json::Value;
use stockade_model::{LogLine, RequestClass, RequestSeen};

/// The requests of one lane.
#[derive(Clone, Debug)]
pub(crate) struct Wire {
    requests: Vec<RequestSeen>,
}

/// What the model was told about the tool call of one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ToolResult {
    /// The text.
    pub(crate) text: String,
    /// From the request that was answered with the call to the one that brought the result.
    pub(crate) elapsed: Duration,
}

impl Wire {
    /// Takes over a log.
    pub(crate) fn new(log: Vec<LogLine>) -> Self {
        let requests = log.into_iter().filter_map(|line| match line {
            LogLine::Request(seen) => Some(*seen),
            LogLine::Held(_) | LogLine::Released(_) | LogLine::Answered(_) => None,
        });
        Self { requests: requests.collect() }
    }

    /// The requests of the conversation itself.
    pub(crate) fn turns(&self) -> impl Iterator<Item = &RequestSeen> {
        self.requests.iter().filter(|request| request.class == RequestClass::Main)
    }

    /// The sets of tools that the conversation's requests offered.
    pub(crate) fn offered(&self) -> BTreeSet<BTreeSet<&str>> {
        self.turns().map(|turn| turn.tools.iter().map(String::as_str).collect()).collect()
    }

    /// The models that the conversation's requests asked for.
    pub(crate) fn asked(&self) -> BTreeSet<&str> {
        self.turns().map(|turn| turn.model.as_deref().unwrap_or("none")).collect()
    }

    /// What the model was told about the tool call of a step; `None`: the conversation did not come that far.
    pub(crate) fn result_of(&self, step: usize) -> Option<ToolResult> {
        let asked = self.turn(step)?;
        let told = self.turn(step.checked_add(1)?)?;
        let texts = told.tool_results();
        if texts.is_empty() {
            return None;
        }
        let elapsed = Duration::from_millis(told.elapsed_ms.saturating_sub(asked.elapsed_ms));
        Some(ToolResult { text: texts.join("\n"), elapsed })
    }

    /// Whether a word is anywhere in any request.
    pub(crate) fn mentions(&self, word: &str) -> bool {
        self.requests.iter().any(|request| {
            request.body.as_ref().is_some_and(|body| holds(body, word))
                || request.body_text.as_ref().is_some_and(|text| text.contains(word))
        })
    }

    /// Whether every request was logged as a whole.
    pub(crate) fn is_whole(&self) -> bool {
        !self.requests.iter().any(|request| request.body_cut)
    }

    fn turn(&self, step: usize) -> Option<&RequestSeen> {
        self.turns().find(|turn| turn.step == Some(step))
    }
}

/// The nesting is bounded: the parser refuses JSON deeper than 128 levels.
fn holds(value: &Value, word: &str) -> bool {
    match value {
        Value::String(text) => text.contains(word),
        Value::Array(items) => items.iter().any(|item| holds(item, word)),
        Value::Object(entries) => entries.iter().any(|(key, item)| key.contains(word) || holds(item, word)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::checks::examples::request;

    #[test]
    fn finds_the_result_of_each_step_and_nothing_older() {
        let call = |id: &str| json!({"role": "assistant", "content": "", "tool_calls": [{"id": id}]});
        let user = json!({"role": "user", "content": "go"});
        let first = json!({"role": "tool", "tool_call_id": "a", "content": "one"});
        let second =
            json!({"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "two"}]});
        let log = vec![
            LogLine::Request(Box::new(request(0, 100, &json!([user])))),
            LogLine::Request(Box::new(request(1, 130, &json!([user, call("a"), first])))),
            LogLine::Request(Box::new(request(2, 190, &json!([user, call("a"), first, call("b"), second])))),
        ];
        let wire = Wire::new(log);
        let result = |text: &str, elapsed| {
            Some(ToolResult { text: text.to_owned(), elapsed: Duration::from_millis(elapsed) })
        };
        assert_eq!(wire.result_of(0), result("one", 30));
        assert_eq!(wire.result_of(1), result("two", 60));
        assert_eq!(wire.result_of(2), None);
        assert!(wire.mentions("two") && !wire.mentions("three"));
        assert_eq!(wire.asked(), BTreeSet::from(["grok-4.6"]));
    }

    #[test]
    fn a_request_without_a_result_is_none() {
        let messages = json!([{"role": "user", "content": "go"}, {"role": "assistant", "content": "x"}]);
        let log = vec![
            LogLine::Request(Box::new(request(0, 0, &json!([])))),
            LogLine::Request(Box::new(request(1, 0, &messages))),
        ];
        assert_eq!(Wire::new(log).result_of(0), None);
    }
}
