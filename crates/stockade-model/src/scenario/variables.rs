//! Variables: `{{name}}` in the scenario, values from the caller.

use std::collections::BTreeMap;

use serde_json::Value;

use super::step::{Answer, Completion, HttpAnswer, Step, ToolCall};
use super::{Scenario, ScenarioError};

type Values = BTreeMap<String, String>;

pub(super) fn fill(scenario: Scenario, values: &Values) -> Result<Scenario, ScenarioError> {
    let mut steps = Vec::with_capacity(scenario.steps.len());
    for (index, step) in scenario.steps.into_iter().enumerate() {
        let filled = fill_step(step, values)
            .map_err(|name| ScenarioError::Variable { step: format!("steps[{index}]"), name })?;
        steps.push(filled);
    }
    let otherwise = fill_step(scenario.otherwise, values)
        .map_err(|name| ScenarioError::Variable { step: "otherwise".to_owned(), name })?;
    Ok(Scenario { name: scenario.name, steps, otherwise })
}

/// The error is the name that has no value.
fn fill_step(step: Step, values: &Values) -> Result<Step, String> {
    let answer = match step.answer {
        plain @ (Answer::Close | Answer::Fault(_)) => plain,
        Answer::Http(http) => {
            let body = http.body.map(|body| fill_text(&body, values)).transpose()?;
            Answer::Http(HttpAnswer { body, ..http })
        }
        Answer::Completion(completion) => {
            let think = fill_all(&completion.think, values)?;
            let text = fill_all(&completion.text, values)?;
            let tools =
                completion.tools.into_iter().map(|call| fill_call(call, values)).collect::<Result<_, _>>()?;
            Answer::Completion(Completion { think, text, tools, ..completion })
        }
    };
    Ok(Step { delay: step.delay, answer })
}

fn fill_all(pieces: &[String], values: &Values) -> Result<Vec<String>, String> {
    pieces.iter().map(|piece| fill_text(piece, values)).collect()
}

fn fill_call(call: ToolCall, values: &Values) -> Result<ToolCall, String> {
    Ok(ToolCall { name: call.name, arguments: fill_value(call.arguments, values)? })
}

/// The nesting is bounded: the parser refuses JSON deeper than 128 levels.
fn fill_value(value: Value, values: &Values) -> Result<Value, String> {
    Ok(match value {
        Value::String(text) => Value::String(fill_text(&text, values)?),
        Value::Array(items) => {
            Value::Array(items.into_iter().map(|item| fill_value(item, values)).collect::<Result<_, _>>()?)
        }
        Value::Object(entries) => Value::Object(
            entries
                .into_iter()
                .map(|(key, item)| Ok((key, fill_value(item, values)?)))
                .collect::<Result<_, String>>()?,
        ),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_)) => other,
    })
}

/// Braces around anything but a name are left as they are: shell and template texts use them too.
fn fill_text(text: &str, values: &Values) -> Result<String, String> {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{") {
        filled.push_str(before);
        match after.split_once("}}") {
            Some((name, behind)) if is_name(name) => {
                filled.push_str(values.get(name).ok_or_else(|| name.to_owned())?);
                rest = behind;
            }
            Some(_) | None => {
                filled.push_str("{{");
                rest = after;
            }
        }
    }
    filled.push_str(rest);
    Ok(filled)
}

fn is_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}
