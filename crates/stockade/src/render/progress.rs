//! A run as it goes: text, tool calls and notes on standard error, events as NDJSON where asked for.

use std::{
    fs::File,
    io::{Stdout, Write},
};

use stockade_core::{
    event::{Event, EventKind, ToolStatus},
    judge::note_code,
    text,
};
use stockade_lane::Observer;

use super::{Verbosity, is_terminal, say, status_line::StatusLine};

/// Where events go.
#[derive(Debug)]
pub(crate) enum EventSink {
    /// Nowhere.
    None,
    /// Standard output.
    Stdout(Stdout),
    /// A file.
    File(File),
}

/// Shows a run as it goes.
#[derive(Debug)]
pub(crate) struct Live {
    verbosity: Verbosity,
    sink: EventSink,
    sink_failed: bool,
    /// On a terminal, unless nothing is to be said.
    status: Option<StatusLine>,
}

impl Live {
    pub(crate) fn new(verbosity: Verbosity, sink: EventSink) -> Self {
        let status = (verbosity > Verbosity::Quiet && is_terminal()).then(StatusLine::new);
        Self { verbosity, sink, sink_failed: false, status }
    }

    fn stream(&mut self, event: &Event) {
        if self.sink_failed || matches!(self.sink, EventSink::None) {
            return;
        }
        // Events are strings, numbers and lists of them: they always serialise.
        let mut line = serde_json::to_vec(event).unwrap_or_default();
        line.push(b'\n');
        let done = match &mut self.sink {
            EventSink::None => Ok(()),
            EventSink::Stdout(s) => s.write_all(&line).and_then(|()| s.flush()),
            EventSink::File(f) => f.write_all(&line),
        };
        if done.is_err() {
            // The reader went away; the run directory still has every event.
            self.sink_failed = true;
        }
    }

    fn show(&self, event: &Event) {
        if self.verbosity < Verbosity::Verbose && self.status.is_none() {
            return;
        }
        if let Some(line) = line(&event.event, self.verbosity) {
            #[expect(clippy::cast_precision_loss, reason = "seconds of a run are far below 2^52")]
            let seconds = event.elapsed_ms as f64 / 1000.0;
            self.say(&format!("[{seconds:8.3}] {line}\n"));
        }
    }

    fn say(&self, line: &str) {
        match &self.status {
            Some(status) => status.above(line),
            None => say(line),
        }
    }
}

impl Observer for Live {
    fn event(&mut self, event: &Event) {
        self.stream(event);
        if let Some(status) = &mut self.status {
            status.event(&event.event);
        }
        self.show(event);
    }

    fn heartbeat(&mut self, elapsed_s: u64, silent_s: u64, what: &str) {
        // Where there is a status line, it has said so already.
        if self.verbosity > Verbosity::Quiet && self.status.is_none() {
            say(&format!("[{elapsed_s:4} s  ] no output for {silent_s} s; last was {what}\n"));
        }
    }

    fn tick(&mut self, elapsed_s: u64, silent_s: u64, what: &str) {
        if let Some(status) = &self.status {
            status.draw(elapsed_s, silent_s, what);
        }
    }
}

/// One line about an event. Agent output is hostile text: control characters never reach the terminal.
fn line(kind: &EventKind, verbosity: Verbosity) -> Option<String> {
    let all = verbosity == Verbosity::Verbose;
    let line = match kind {
        EventKind::PlanMade { rung, .. } => format!("plan made, rung {}", rung.id()),
        EventKind::FenceProven { canaries, elapsed_us, .. } => {
            format!("fence proven by {canaries} canaries in {elapsed_us} us")
        }
        EventKind::AgentStarted { argv } => {
            format!("agent started: {}", argv.first().cloned().unwrap_or_default())
        }
        EventKind::Message { text, .. } => clean(text, 2000),
        EventKind::Thought { text, .. } if all => format!("(thinking) {}", clean(text, 400)),
        EventKind::ToolCall { tool, input, .. } => format!("-> {} {}", clean(tool, 80), clean(input, 200)),
        EventKind::ToolUpdate { status, output, .. } => match status {
            ToolStatus::Completed | ToolStatus::Running => format!("<- {}", clean(output, 120)),
            ToolStatus::Failed => format!("<- failed: {}", clean(output, 200)),
            ToolStatus::Denied => format!("<- denied: {}", clean(output, 200)),
            ToolStatus::Cancelled => format!("<- cancelled: {}", clean(output, 200)),
        },
        EventKind::ModelRequest { request, class, model, .. } if all => {
            format!("model request {request} ({class}) for {}", model.as_deref().unwrap_or("?"))
        }
        EventKind::ModelResponse { request, status, cut, failure, finish_reason, .. } => {
            let what = match (status, failure) {
                (Some(200), _) if !*cut && !all => return None,
                (Some(s), _) => s.to_string(),
                (None, f) => f.clone().unwrap_or_default(),
            };
            let end = if *cut { "cut" } else { finish_reason.as_deref().unwrap_or("no finish reason") };
            format!("model response {request}: {what}, {end}")
        }
        EventKind::NetworkDecision { target, code, .. } => format!("network: {code} {}", clean(target, 120)),
        EventKind::LimitReached { limit, value, measured } => {
            format!("limit {limit} reached ({value}): {measured}")
        }
        // Shown with the ending, where it is the reason of a failure.
        EventKind::Note { code, .. } if code == note_code::STDERR_TAIL && !all => return None,
        EventKind::Note { code, text } => format!("note: {code}: {}", clean(text, 400)),
        EventKind::AgentExited { code, signal, left_behind } => match (code, signal) {
            (Some(c), _) => format!("agent exited with {c}, left {left_behind} processes"),
            (None, s) => format!("agent ended by signal {}, left {left_behind} processes", s.unwrap_or(0)),
        },
        EventKind::TreeEnded { gone, elapsed_us, .. } => {
            format!("process tree {} after {elapsed_us} us", if *gone { "gone" } else { "NOT gone" })
        }
        _ if all => {
            let value = serde_json::to_value(kind).ok()?;
            value.get("kind")?.as_str()?.to_owned()
        }
        _ => return None,
    };
    Some(line)
}

fn clean(text_: &str, limit: usize) -> String {
    let shown: String = text_
        .trim()
        .chars()
        .map(|c| if c == '\n' || c == '\t' { ' ' } else { c })
        .filter(|c| !c.is_control() && !is_direction(*c))
        .collect();
    text::head(&shown, limit)
}

/// Whether a character only turns the direction of what follows: a text could look like another.
fn is_direction(c: char) -> bool {
    matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_of_an_agent_never_reach_the_terminal() {
        let kind = EventKind::Message { text: "a\u{1b}[31mred\u{7}\nb\u{202e}".to_owned(), cut_bytes: 0 };
        assert_eq!(line(&kind, Verbosity::Normal).unwrap(), "a[31mred b");
    }
}
