//! The lines as they are read. What can change its form without meaning for us is left raw and read leniently.

use std::borrow::Cow;

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;
use stockade_core::{
    event::{ToolStatus, TurnOutcome},
    text,
};

use crate::text::Text;

/// The tool that stands for calls of a tool that is not offered, or with arguments that do not fit.
const INVALID: &str = "invalid";
/// An agent that asks gives this answer when nobody is there, and ends its turn.
const REJECTED: &str = "The user rejected permission to use this specific tool call";
/// A rule forbids the call, and the turn goes on.
const FORBIDDEN: &str = "The user has specified a rule which prevents you from using this specific tool call";
/// The text of an error that is kept, in bytes.
const ERROR_HEAD_BYTES: usize = 2_000;

/// Any line: its type decides what else is read.
#[derive(Deserialize)]
pub(super) struct Line<'a> {
    #[serde(rename = "type", borrow)]
    pub(super) kind: Cow<'a, str>,
    #[serde(rename = "sessionID", borrow, default)]
    pub(super) session: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub(super) part: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) error: Option<&'a RawValue>,
}

/// A finished part of a message.
#[derive(Default, Deserialize)]
pub(super) struct Part<'a> {
    #[serde(rename = "messageID", borrow, default)]
    pub(super) message: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub(super) text: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub(super) tool: Option<Text<'a>>,
    #[serde(rename = "callID", borrow, default)]
    pub(super) call: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub(super) state: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) reason: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub(super) tokens: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) cost: Option<&'a RawValue>,
}

/// How a tool ended.
#[derive(Default, Deserialize)]
pub(super) struct ToolState<'a> {
    #[serde(borrow, default)]
    status: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub(super) input: Option<&'a RawValue>,
    #[serde(borrow, default)]
    output: Option<Text<'a>>,
    #[serde(borrow, default)]
    error: Option<Text<'a>>,
    #[serde(borrow, default)]
    metadata: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
struct Metadata {
    #[serde(default)]
    exit: Option<i64>,
}

/// The input of the tool that stands for another one.
#[derive(Default, Deserialize)]
struct Meant {
    #[serde(default)]
    tool: Option<String>,
}

impl ToolState<'_> {
    /// The tool that the model meant.
    pub(super) fn tool_meant(&self, called: &str) -> String {
        let meant = || self.input.and_then(parse_owned::<Meant>).and_then(|meant| meant.tool);
        let meant = if called == INVALID { meant() } else { None };
        meant.unwrap_or_else(|| called.to_owned())
    }

    /// How it ended, and what the model was told.
    pub(super) fn told(&self, tool: Option<&str>) -> (ToolStatus, String) {
        if self.status.as_deref() == Some("completed") {
            let exit = self.metadata.and_then(parse_owned::<Metadata>).and_then(|meta| meta.exit);
            let failed = tool == Some(INVALID) || exit.is_some_and(|code| code != 0);
            let status = if failed { ToolStatus::Failed } else { ToolStatus::Completed };
            return (status, self.output.as_deref().unwrap_or_default().to_owned());
        }
        let error = self.error.as_deref().unwrap_or_default();
        // These are the agent's own words: a tool's own error comes with the tool's own text.
        let status = if error.starts_with(REJECTED) {
            ToolStatus::Cancelled
        } else if error.starts_with(FORBIDDEN) {
            ToolStatus::Denied
        } else {
            ToolStatus::Failed
        };
        (status, error.to_owned())
    }
}

/// The error of an `error` line.
#[derive(Default, Deserialize)]
pub(super) struct ErrorLine<'a> {
    #[serde(borrow, default)]
    name: Option<Text<'a>>,
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
struct ErrorData {
    #[serde(default)]
    message: Option<String>,
    #[serde(rename = "statusCode", default)]
    status: Option<u16>,
}

impl ErrorLine<'_> {
    /// The end that it is. `raw` is the error as it was printed.
    pub(super) fn outcome(&self, raw: Option<&RawValue>) -> TurnOutcome {
        let data: ErrorData = self.data.and_then(parse_owned).unwrap_or_default();
        match self.name.as_deref() {
            Some("MessageAbortedError") => return TurnOutcome::Cancelled { permission: None },
            Some("ContentFilterError") => {
                let said = data.message.unwrap_or_default();
                return TurnOutcome::Refusal { text: text::head(&said, ERROR_HEAD_BYTES) };
            }
            _ => {}
        }
        let said = match (&self.name, data.message) {
            (Some(name), Some(message)) => [&**name, &*message].join(": "),
            _ => raw.map(RawValue::get).unwrap_or_default().to_owned(),
        };
        TurnOutcome::Error { text: text::head(&said, ERROR_HEAD_BYTES), http_status: data.status }
    }
}

/// Reads a raw value; `None`: it has another form.
pub(super) fn parse<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Option<T> {
    serde_json::from_str(raw.get()).ok()
}

fn parse_owned<T: DeserializeOwned>(raw: &RawValue) -> Option<T> {
    serde_json::from_str(raw.get()).ok()
}
