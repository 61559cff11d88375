//! The file format of scenarios, and the checks of each step.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use hyper::header::{HeaderName, HeaderValue};
use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::step::{Answer, Completion, Ending, Fault, HttpAnswer, Step, ToolCall, Usage};
use super::{Scenario, ScenarioError};

/// The longest pause a step may ask for. A step that shall last longer holds or hangs.
const MAX_PAUSE_MS: u64 = 600_000;
/// The longest name of a hold.
const MAX_HOLD_NAME: usize = 64;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ScenarioFile {
    version: u32,
    name: String,
    steps: Vec<StepFile>,
    otherwise: Option<StepFile>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StepFile {
    delay_ms: Option<u64>,
    http: Option<HttpFile>,
    think: Option<Pieces>,
    text: Option<Pieces>,
    gap_ms: Option<u64>,
    hold: Option<String>,
    tools: Option<Vec<ToolFile>>,
    end: Option<End>,
    fault: Option<Fault>,
    finish: Option<String>,
    model: Option<String>,
    usage: Option<UsageFile>,
    slow_ms: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct HttpFile {
    status: u16,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    content_type: Option<String>,
    body: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ToolFile {
    name: String,
    arguments: Value,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
enum End {
    Finish,
    Cut,
    Abort,
    Malformed,
    Hang,
    Close,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(clippy::struct_field_names, reason = "these are the keys of the file")]
struct UsageFile {
    input_tokens: u64,
    output_tokens: u64,
    #[serde(default)]
    cached_tokens: u64,
    #[serde(default)]
    reasoning_tokens: u64,
}

/// A text, written as one string or as a list of pieces.
struct Pieces(Vec<String>);

impl<'de> Deserialize<'de> for Pieces {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PiecesVisitor)
    }
}

struct PiecesVisitor;

impl<'de> Visitor<'de> for PiecesVisitor {
    type Value = Pieces;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string or a list of strings")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Pieces, E> {
        Ok(Pieces(vec![text.to_owned()]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Pieces, A::Error> {
        let mut pieces = Vec::new();
        while let Some(piece) = sequence.next_element()? {
            pieces.push(piece);
        }
        Ok(Pieces(pieces))
    }
}

pub(super) fn parse(text: &str) -> Result<Scenario, ScenarioError> {
    if text.len() > Scenario::MAX_BYTES {
        return Err(ScenarioError::TooLarge { bytes: text.len() });
    }
    let file: ScenarioFile =
        serde_json::from_str(text).map_err(|source| ScenarioError::Malformed { source })?;
    if file.version != Scenario::VERSION {
        return Err(ScenarioError::Version { found: file.version });
    }
    if file.steps.len() > Scenario::MAX_STEPS {
        return Err(ScenarioError::TooManySteps { steps: file.steps.len() });
    }
    let mut steps = Vec::with_capacity(file.steps.len());
    for (index, step) in file.steps.into_iter().enumerate() {
        let checked = check(step)
            .map_err(|problem| ScenarioError::Step { step: format!("steps[{index}]"), problem })?;
        steps.push(checked);
    }
    let otherwise = match file.otherwise {
        Some(step) => {
            check(step).map_err(|problem| ScenarioError::Step { step: "otherwise".to_owned(), problem })?
        }
        None => Step::text("Done."),
    };
    Ok(Scenario { name: file.name, steps, otherwise })
}

fn check(mut file: StepFile) -> Result<Step, &'static str> {
    let delay = pause(file.delay_ms)?;
    let completes = file.has_completion_keys();
    let answer = match (file.http.take(), file.end) {
        (Some(_), _) if file.fault.is_some() => return Err("`http` and `fault` are two answers"),
        (None, Some(_)) if file.fault.is_some() => return Err("`fault` is an end of its own"),
        (Some(http), None) if !completes => Answer::Http(check_http(http)?),
        (Some(_), _) => return Err("`http` replaces the completion, so only `delayMs` goes with it"),
        (None, Some(End::Close)) if !completes => Answer::Close,
        (None, Some(End::Close)) => {
            return Err("nothing is sent before `close`, so only `delayMs` goes with it");
        }
        (None, None) if !completes => {
            return file.fault.map_or(Err("the step says nothing"), |fault| {
                Ok(Step { delay, answer: Answer::Fault(fault) })
            });
        }
        (None, end) => Answer::Completion(check_completion(file, end)?),
    };
    Ok(Step { delay, answer })
}

impl StepFile {
    fn has_completion_keys(&self) -> bool {
        self.think.is_some()
            || self.text.is_some()
            || self.gap_ms.is_some()
            || self.hold.is_some()
            || self.tools.is_some()
            || self.finish.is_some()
            || self.model.is_some()
            || self.usage.is_some()
            || self.slow_ms.is_some()
    }
}

fn check_http(file: HttpFile) -> Result<HttpAnswer, &'static str> {
    if !(200..=599).contains(&file.status) {
        return Err("`status` is not between 200 and 599");
    }
    for (name, value) in &file.headers {
        if HeaderName::try_from(name.as_str()).is_err() || HeaderValue::try_from(value.as_str()).is_err() {
            return Err("`headers` has a name or a value that no HTTP header can have");
        }
    }
    if file.content_type.as_deref().is_some_and(|value| HeaderValue::try_from(value).is_err()) {
        return Err("`contentType` is a value that no HTTP header can have");
    }
    Ok(HttpAnswer {
        status: file.status,
        headers: file.headers.into_iter().collect(),
        content_type: file.content_type,
        body: file.body,
    })
}

fn check_completion(file: StepFile, end: Option<End>) -> Result<Completion, &'static str> {
    let ending = match end {
        None => file.fault.map_or(Ending::Finish, Ending::Fault),
        Some(End::Finish) => Ending::Finish,
        Some(End::Cut) => Ending::Cut,
        Some(End::Abort | End::Close) => Ending::Abort,
        Some(End::Malformed) => Ending::Malformed,
        Some(End::Hang) => Ending::Hang,
    };
    if file.finish.is_some() && ending != Ending::Finish {
        return Err("`finish` is sent only where `end` is `finish`");
    }
    if file.hold.as_deref().is_some_and(|name| !is_hold_name(name)) {
        return Err("`hold` is not a name of 1 to 64 letters, digits, `-` or `_`");
    }
    let byte_pause = file.slow_ms.map(|slow| pause(Some(slow))).transpose()?;
    Ok(Completion {
        think: file.think.map(|pieces| pieces.0).unwrap_or_default(),
        text: file.text.map(|pieces| pieces.0).unwrap_or_default(),
        gap: pause(file.gap_ms)?,
        hold: file.hold,
        tools: file.tools.unwrap_or_default().into_iter().map(ToolCall::from).collect(),
        ending,
        finish: file.finish,
        model: file.model,
        usage: file.usage.map(Usage::from).unwrap_or_default(),
        byte_pause,
    })
}

fn pause(milliseconds: Option<u64>) -> Result<Duration, &'static str> {
    match milliseconds {
        Some(milliseconds) if milliseconds > MAX_PAUSE_MS => {
            Err("a pause is longer than 600000 ms; use `hold` or `hang`")
        }
        Some(milliseconds) => Ok(Duration::from_millis(milliseconds)),
        None => Ok(Duration::ZERO),
    }
}

fn is_hold_name(name: &str) -> bool {
    (1..=MAX_HOLD_NAME).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

impl From<ToolFile> for ToolCall {
    fn from(file: ToolFile) -> Self {
        Self { name: file.name, arguments: file.arguments }
    }
}

impl From<UsageFile> for Usage {
    fn from(file: UsageFile) -> Self {
        Self {
            input: file.input_tokens,
            cached: file.cached_tokens,
            output: file.output_tokens,
            reasoning: file.reasoning_tokens,
        }
    }
}
