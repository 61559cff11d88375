//! The last line of a terminal while a run goes on: drawn anew each second, gone at the end.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use stockade_core::event::EventKind;

/// The line. Dropping it clears it.
#[derive(Debug)]
pub(crate) struct StatusLine {
    bar: ProgressBar,
    so_far: SoFar,
}

/// What was counted of a run so far.
#[derive(Clone, Copy, Debug, Default)]
struct SoFar {
    requests: u64,
    tokens: u64,
    /// Whether any answer stated its tokens.
    tokens_stated: bool,
}

impl StatusLine {
    /// A line that is not drawn yet.
    pub(crate) fn new() -> Self {
        let bar = ProgressBar::hidden();
        // It has one key, which is known: nothing in it can be wrong.
        if let Ok(style) = ProgressStyle::with_template("{wide_msg}") {
            bar.set_style(style);
        }
        Self { bar, so_far: SoFar::default() }
    }

    /// Prints a line above it.
    pub(crate) fn above(&self, line: &str) {
        self.bar.suspend(|| super::say(line));
    }

    /// Counts what an event says.
    pub(crate) fn event(&mut self, kind: &EventKind) {
        self.so_far.count(kind);
    }

    /// Draws it.
    pub(crate) fn draw(&self, elapsed_s: u64, silent_s: u64, last: &str) {
        if self.bar.is_hidden() {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.set_message(self.so_far.line(elapsed_s, silent_s, last));
        self.bar.tick();
    }
}

impl Drop for StatusLine {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

impl SoFar {
    fn count(&mut self, kind: &EventKind) {
        match kind {
            EventKind::ModelRequest { .. } => self.requests += 1,
            EventKind::ModelResponse { usage: Some(usage), .. } => {
                let stated = usage.input_tokens.unwrap_or(0).saturating_add(usage.output_tokens.unwrap_or(0));
                self.tokens = self.tokens.saturating_add(usage.total_tokens.unwrap_or(stated));
                self.tokens_stated = true;
            }
            _ => {}
        }
    }

    fn line(self, elapsed_s: u64, silent_s: u64, last: &str) -> String {
        let (minutes, seconds) = (elapsed_s / 60, elapsed_s % 60);
        let requests = if self.requests == 1 { "request" } else { "requests" };
        let tokens = if self.tokens_stated { format!(", {} tokens", self.tokens) } else { String::new() };
        let age = if silent_s == 0 { "now".to_owned() } else { format!("{silent_s} s ago") };
        format!(
            "{minutes}:{seconds:02}, {} {requests}{tokens}; last output {age}, last moved: {last}",
            self.requests
        )
    }
}

#[cfg(test)]
mod tests {
    use stockade_core::event::Usage;

    use super::*;

    #[test]
    fn it_tells_the_time_the_tokens_and_how_long_ago_the_agent_said_something() {
        let mut so_far = SoFar::default();
        assert_eq!(so_far.line(7, 0, "output"), "0:07, 0 requests; last output now, last moved: output");
        so_far.count(&EventKind::ModelRequest {
            request: 1,
            class: "turn".to_owned(),
            model: None,
            tools: Vec::new(),
            bytes: 0,
            effort: None,
        });
        so_far.count(&response(Usage { input_tokens: Some(40), output_tokens: Some(2), ..Usage::default() }));
        so_far.count(&response(Usage { total_tokens: Some(100), ..Usage::default() }));
        assert_eq!(
            so_far.line(671, 4, "cpu"),
            "11:11, 1 request, 142 tokens; last output 4 s ago, last moved: cpu"
        );
    }

    fn response(usage: Usage) -> EventKind {
        EventKind::ModelResponse {
            request: 1,
            class: "turn".to_owned(),
            status: Some(200),
            failure: None,
            finish_reason: None,
            served_model: None,
            usage: Some(usage),
            cut: false,
            content_type: None,
            retry_after_s: None,
            error: None,
            stated: None,
            elapsed_ms: 1,
        }
    }
}
