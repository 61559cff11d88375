//! Codex's `exec --json`: one JSON object a line, `thread.started`, `turn.started`, items, and `turn.completed` or
//! `turn.failed`.
//!
//! The stream leaves out what its sandbox or its policy refused. The rollout, Codex's own record of the session, has it.

mod failure;
mod item;
mod rollout;
#[cfg(test)]
mod tests;

use std::{
    borrow::Cow,
    collections::{BTreeMap, VecDeque},
};

use serde::Deserialize;
use serde_json::value::RawValue;
use stockade_core::{
    event::{EventKind, TurnOutcome, Usage},
    text,
};

use self::item::Item;
pub(crate) use self::rollout::Rollout;
use crate::{
    bounds::{OPEN_CALLS_LIMIT, TEXT_LIMIT_BYTES, name},
    reader::Recognised,
    text::{Text, json_line},
};

/// The code of the note for an error that did not end the turn.
const AGENT_ERROR: &str = "agent-error";

/// Any line: its type decides what else is read. Raw where a changed form must not lose the end of a turn.
#[derive(Deserialize)]
#[serde(bound(deserialize = "I: Deserialize<'de>"))]
struct Line<'a, I = Box<Item<'a>>> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    thread_id: Option<Text<'a>>,
    #[serde(default)]
    item: Option<I>,
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    message: Option<&'a RawValue>,
}

/// Tokens of a turn. Those from a cache are counted in `input_tokens`, reasoning in `output_tokens`.
#[derive(Default, Deserialize)]
#[expect(clippy::struct_field_names, reason = "the agent's names")]
struct TurnUsage {
    #[serde(default)]
    input_tokens: Option<u64>,
    #[serde(default)]
    cached_input_tokens: Option<u64>,
    #[serde(default)]
    cache_write_input_tokens: Option<u64>,
    #[serde(default)]
    output_tokens: Option<u64>,
    #[serde(default)]
    reasoning_output_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct Stated<'a> {
    #[serde(borrow)]
    message: Cow<'a, str>,
}

/// The state between lines.
#[derive(Debug, Default)]
pub(crate) struct CodexExec {
    thread: Option<String>,
    /// The last message of the turn: its answer.
    answer: Option<String>,
    /// Calls that are announced and not done, oldest first.
    open: VecDeque<String>,
}

impl CodexExec {
    /// Reads one line.
    pub(crate) fn read(&mut self, bytes: &[u8], out: &mut Vec<EventKind>) -> Recognised {
        let Some(line) = read(bytes) else { return Recognised::No };
        match &*line.kind {
            "thread.started" => {
                self.thread = line.thread_id.as_deref().map(name);
                out.push(EventKind::TurnStarted { session: self.thread.clone(), tools: Vec::new() });
            }
            "turn.started" => self.answer = None,
            "item.started" => line.item.iter().for_each(|item| self.announce(item, out)),
            "item.completed" => line.item.iter().for_each(|item| self.completed(item, out)),
            // What a list of plans looks like meanwhile.
            "item.updated" => {}
            "error" => {
                let text = line.message.map(stated).unwrap_or_default();
                let text = text::head(&text, TEXT_LIMIT_BYTES);
                out.push(EventKind::Note { code: AGENT_ERROR.to_owned(), text });
            }
            "turn.completed" => {
                out.extend(usage(line.usage));
                out.push(EventKind::TurnEnded {
                    outcome: TurnOutcome::Success { answer: self.answer.take() },
                });
            }
            "turn.failed" => {
                let text = line.error.map(stated).unwrap_or_default();
                out.push(EventKind::TurnEnded { outcome: failure::outcome(&text) });
            }
            other => return Recognised::Unknown(name(other)),
        }
        Recognised::Known
    }

    fn completed(&mut self, item: &Item<'_>, out: &mut Vec<EventKind>) {
        if let Some(text) = item.answer() {
            self.answer = Some(text.to_owned());
        }
        // Some calls are told of only when they are done.
        self.announce(item, out);
        let id = item.id();
        self.open.retain(|open| *open != id);
        item.completed(out);
    }

    fn announce(&mut self, item: &Item<'_>, out: &mut Vec<EventKind>) {
        let Some(input) = item.input() else { return };
        let id = item.id();
        if self.open.contains(&id) {
            return;
        }
        if self.open.len() >= OPEN_CALLS_LIMIT {
            self.open.pop_front();
        }
        self.open.push_back(id);
        out.push(item.call(input));
    }
}

/// Reads a line: in one pass where it has the usual form, else with the item by itself, which then may be unreadable.
fn read(bytes: &[u8]) -> Option<Line<'_>> {
    if let Some(line) = json_line(bytes) {
        return Some(line);
    }
    let line = json_line::<Line<'_, &RawValue>>(bytes)?;
    let Line { kind, thread_id, item, usage, error, message } = line;
    Some(Line { kind, thread_id, item: item.and_then(parse), usage, error, message })
}

/// The words of an error: a text, an object with a message, or whatever it is.
fn stated(raw: &RawValue) -> String {
    match (parse::<Text<'_>>(raw), parse::<Stated<'_>>(raw)) {
        (Some(text), _) => text.into_owned(),
        (None, Some(stated)) => stated.message.into_owned(),
        (None, None) => raw.get().to_owned(),
    }
}

/// Tokens, unless nothing was counted.
fn usage(raw: Option<&RawValue>) -> Option<EventKind> {
    let turn: TurnUsage = raw.and_then(parse).unwrap_or_default();
    let usage = Usage {
        input_tokens: turn.input_tokens,
        cached_input_tokens: turn.cached_input_tokens,
        cache_creation_input_tokens: turn.cache_write_input_tokens,
        output_tokens: turn.output_tokens,
        reasoning_tokens: turn.reasoning_output_tokens,
        total_tokens: turn.input_tokens.zip(turn.output_tokens).map(|(i, o)| i.saturating_add(o)),
    };
    (!usage.is_zero()).then(|| EventKind::Usage { usage, cost_usd: None, models: BTreeMap::new() })
}

/// Reads a raw value as `T`, or gives nothing.
fn parse<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Option<T> {
    serde_json::from_str(raw.get()).ok()
}
