//! Scenarios: what the model says, step by step, as a file.

mod file;
mod step;
mod variables;

use std::collections::{BTreeMap, BTreeSet};

pub(crate) use step::{Answer, Completion, Ending, Fault, Finish, HttpAnswer, Step, ToolCall, Usage};

/// A conversation as the model will hold it. Made by [`Scenario::parse`] only, and valid from then on.
///
/// A scenario is one JSON object with `version` (1), `name`, `steps` and optionally `otherwise`, the step that is
/// played once the steps are used up (by default the text `Done.`). One scenario is one conversation. The keys of a
/// step, all optional, say what happens in this order:
///
/// | key | meaning |
/// | --- | --- |
/// | `delayMs` | waits before anything is answered |
/// | `http` | answers with `{status, headers, contentType, body}` instead of a completion |
/// | `think`, `text` | reasoning, then text: a string, or a list of pieces sent one by one |
/// | `gapMs` | waits between the pieces |
/// | `hold` | keeps the answer open until this name is released on the control socket |
/// | `tools` | tool calls, `[{name, arguments}]`; a string as `arguments` is sent as it is, well-formed or not |
/// | `end` | `finish` (default), `cut` (the stream ends properly, without finish reason), `abort` (the connection is dropped in the middle), `malformed` (an event that is not JSON, then the end), `hang` (nothing more, for ever), `close` (the connection is closed without any answer) |
/// | `fault` | `overloaded`, `rate-limited`, `quota` or `context-overflow`: an error as the vendor of the API words it, instead of a completion, or stated in the stream after what was said |
/// | `finish` | the finish reason (default `stop`, or `tool_calls` after tool calls); those two, `length` and `content_filter` are put into the word of the API, others are sent as they are |
/// | `model` | the served model (default: the one asked for) |
/// | `usage` | `{inputTokens, cachedTokens, outputTokens, reasoningTokens}` |
/// | `slowMs` | sends the answer byte by byte with this pause after each |
///
/// `{{name}}` in texts, bodies and arguments stands for a variable that the caller supplies.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    name: String,
    steps: Vec<Step>,
    otherwise: Step,
}

/// Why a text is no scenario.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// The text is longer than [`Scenario::MAX_BYTES`].
    #[error("the scenario has {bytes} bytes, more than {}", Scenario::MAX_BYTES)]
    TooLarge {
        /// Length of the text in bytes.
        bytes: usize,
    },
    /// The text is not JSON, or has a key or a value that no scenario has.
    #[error("the scenario is malformed")]
    Malformed {
        /// What the parser said; it names key, line and column.
        source: serde_json::Error,
    },
    /// The scenario is written for another version of this format.
    #[error("the scenario has version {found}, known is {}", Scenario::VERSION)]
    Version {
        /// The version in the file.
        found: u32,
    },
    /// There are more steps than [`Scenario::MAX_STEPS`].
    #[error("the scenario has {steps} steps, more than {}", Scenario::MAX_STEPS)]
    TooManySteps {
        /// How many there are.
        steps: usize,
    },
    /// A step asks for something that cannot be done.
    #[error("{step}: {problem}")]
    Step {
        /// `steps[N]` counted from 0, or `otherwise`.
        step: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A step names a variable that the caller did not supply.
    #[error("{step}: no value for `{{{{{name}}}}}`")]
    Variable {
        /// `steps[N]` counted from 0, or `otherwise`.
        step: String,
        /// The name of the variable.
        name: String,
    },
}

impl Scenario {
    /// The version of the format that this build reads.
    pub const VERSION: u32 = 1;
    /// The longest scenario in bytes: large enough for an answer of several megabytes.
    pub const MAX_BYTES: usize = 16 * 1024 * 1024;
    /// The most steps a scenario may have.
    pub const MAX_STEPS: usize = 1024;

    /// Reads a scenario and checks every step. Unknown keys are errors that name the key and its line.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        file::parse(text)
    }

    /// The name the scenario gives itself.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number of steps, `otherwise` not counted.
    pub fn step_count(&self) -> usize {
        self.steps.len()
    }

    /// The names that some step holds at.
    pub fn hold_names(&self) -> BTreeSet<&str> {
        self.steps.iter().chain([&self.otherwise]).filter_map(Step::hold_name).collect()
    }

    /// Puts the values of variables in place of `{{name}}` everywhere; a name without a value is an error.
    pub fn with_variables(self, values: &BTreeMap<String, String>) -> Result<Self, ScenarioError> {
        variables::fill(self, values)
    }

    /// The step for a conversation in which the model has already answered `index` times.
    pub(crate) fn step(&self, index: usize) -> &Step {
        self.steps.get(index).unwrap_or(&self.otherwise)
    }
}

#[cfg(test)]
mod tests;
