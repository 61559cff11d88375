//! Asks the agent's own preflight command, where the order wants it asked: whether it has a login and knows the model.
//!
//! Its exit code proves nothing, so that the texts decide. Where it tells of no login it may be asked once more, for an
//! agent that updates itself denies a login that it has a moment later; both answers are kept.

use std::time::Duration;

use stockade_core::{
    event::{EventKind, Source},
    plan::{LaunchPlan, PlannedPreflight},
    receipt::{Preflight, PreflightStatus},
    status::{Boundary, Cause, Refusal, Status},
    text,
};
use stockade_fence::Fence;
use tokio::{sync::mpsc, time::Instant};

use crate::{
    clock::RunClock,
    question::{self, Answer, Question},
    recorder::Recorder,
    request::StopRequest,
};

/// How long it may take. Measured: 280 ms; it may ask a name server in vain.
const LIMIT: Duration = Duration::from_secs(30);
/// A list of models is far shorter.
const SAID_LIMIT_BYTES: usize = 65_536;
/// Of what it said a receipt has one line, up to here.
const LINE_LIMIT_BYTES: usize = 200;

/// The note at which the wait for the second try begins.
pub const PREFLIGHT_WAITS: &str = "preflight-waits";
/// The note at which it is over.
pub const PREFLIGHT_ASKED_AGAIN: &str = "preflight-asked-again";

/// What one answer means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    Passed,
    NoLogin,
    Failed,
    NoModel,
}

/// Asks it. What it said is kept in `told`, whatever it was.
pub(crate) async fn ask(
    fence: &mut Fence,
    plan: &LaunchPlan,
    clock: RunClock,
    recorder: &mut Recorder<'_>,
    stops: &mut mpsc::Receiver<StopRequest>,
    told: &mut Option<Preflight>,
) -> Result<(), Refusal> {
    let Some(planned) = &plan.preflight else { return Ok(()) };
    let told = told.insert(Preflight { argv: planned.argv.clone(), ..Preflight::default() });
    let deadline = clock.deadline(plan.limits.timeout_ms).map(Instant::from);
    let mut asking = Asking { fence, plan, planned, deadline, stops, told };
    let first = asking.once(1).await?;
    let wait = planned.retry_after_ms.filter(|_| first == Meaning::NoLogin);
    let Some(wait) = wait.map(Duration::from_millis) else { return asking.end(first) };
    let mut note = |code: &str, text: String| {
        recorder.record(Source::Stockade, EventKind::Note { code: code.to_owned(), text });
    };
    note(PREFLIGHT_WAITS, format!("it told of no login, and is asked once more in {} ms", wait.as_millis()));
    asking.wait(wait).await?;
    note(PREFLIGHT_ASKED_AGAIN, "it is asked once more".to_owned());
    let second = asking.once(2).await?;
    asking.end(second)
}

struct Asking<'a> {
    fence: &'a mut Fence,
    plan: &'a LaunchPlan,
    planned: &'a PlannedPreflight,
    /// The run's own.
    deadline: Option<Instant>,
    stops: &'a mut mpsc::Receiver<StopRequest>,
    told: &'a mut Preflight,
}

impl Asking<'_> {
    async fn once(&mut self, attempt: u32) -> Result<Meaning, Refusal> {
        let own_end = Instant::now() + LIMIT;
        let until = self.deadline.map_or(own_end, |d| d.min(own_end));
        let question = Question { argv: &self.planned.argv, until, keeps_bytes: SAID_LIMIT_BYTES };
        let answer = question::ask(self.fence, self.plan, &question, self.stops).await;
        match answer.map_err(|e| broke(&e.to_string()))? {
            Answer::Exited { code, signal, said } => {
                let code = code.or_else(|| signal.map(|s| 128 + s));
                let meaning = meaning(self.planned, code, &said);
                self.told.exit_code = code;
                self.tell(&shown(self.planned, attempt, meaning, code, &said));
                Ok(meaning)
            }
            Answer::TooLong if self.deadline.is_some_and(|d| d <= until) => Err(self.past_deadline()),
            Answer::TooLong => {
                self.told.status = PreflightStatus::TimedOut;
                self.told.exit_code = None;
                self.tell(&format!("attempt {attempt} gave no answer in {} s", LIMIT.as_secs()));
                Err(self.refused(Status::UnavailableCli, "preflight-hangs", "does not answer"))
            }
            Answer::Stopped(why) => Err(self.stopped(why)),
        }
    }

    async fn wait(&mut self, time: Duration) -> Result<(), Refusal> {
        let end = Instant::now() + time;
        let until = self.deadline.map_or(end, |d| d.min(end));
        tokio::select! {
            biased;
            Some(StopRequest::Cancel(why) | StopRequest::Kill(why)) = self.stops.recv() => Err(self.stopped(why)),
            () = tokio::time::sleep_until(until) => {
                if until < end { Err(self.past_deadline()) } else { Ok(()) }
            }
        }
    }

    fn end(&mut self, meaning: Meaning) -> Result<(), Refusal> {
        self.told.status =
            if meaning == Meaning::Passed { PreflightStatus::Passed } else { PreflightStatus::Failed };
        match meaning {
            Meaning::Passed => Ok(()),
            Meaning::NoLogin => {
                Err(self.refused(Status::Unauthenticated, "preflight-no-login", "says that it has no login"))
            }
            Meaning::NoModel => {
                let what = format!("does not list `{}`", self.plan.model.asked);
                Err(self.refused(Status::UnavailableModel, "preflight-no-model", &what))
            }
            Meaning::Failed => {
                Err(self.refused(Status::UnavailableCli, "preflight-failed", "fails before any turn"))
            }
        }
    }

    fn tell(&mut self, line: &str) {
        let evidence = &mut self.told.evidence;
        if !evidence.is_empty() {
            evidence.push('\n');
        }
        evidence.push_str(line);
    }

    fn refused(&self, status: Status, code: &str, what: &str) -> Refusal {
        let message = format!("`{}` {what}: `{}`", self.plan.provider, self.planned.argv.join(" "));
        let cause = Cause::new(code, Boundary::Executable, "preflight", message);
        let cause = self.told.evidence.lines().fold(cause, Cause::with_evidence);
        Refusal::new(status, cause.with_remedy("ask the same command by hand, or use the pinned executable"))
    }

    fn past_deadline(&mut self) -> Refusal {
        self.told.status = PreflightStatus::TimedOut;
        deadline_passed(self.plan)
    }

    fn stopped(&mut self, why: &str) -> Refusal {
        self.told.status = PreflightStatus::Cancelled;
        question::stopped(why)
    }
}

/// A run whose time was over before its agent started.
pub(crate) fn deadline_passed(plan: &LaunchPlan) -> Refusal {
    let limit = plan.limits.timeout_ms.unwrap_or_default();
    let cause = Cause::new(
        "limit-wall",
        Boundary::Limit,
        "wall",
        format!("the deadline passed before the agent started: {limit} ms"),
    );
    Refusal::new(Status::TimedOut, cause.with_remedy("raise `--timeout`"))
}

fn broke(why: &str) -> Refusal {
    let message = format!("the agent cannot be asked before its turn: {why}");
    Refusal::new(Status::LauncherFailed, Cause::new("launch", Boundary::Fence, "preflight", message))
}

fn meaning(planned: &PlannedPreflight, code: Option<i32>, said: &str) -> Meaning {
    if denial(planned, said).is_some() {
        return Meaning::NoLogin;
    }
    if code != Some(0) {
        return Meaning::Failed;
    }
    let has = |word: &String| said.split_whitespace().any(|w| w == word);
    if planned.words.iter().all(has) { Meaning::Passed } else { Meaning::NoModel }
}

/// The line that tells of no login.
fn denial<'a>(planned: &PlannedPreflight, said: &'a str) -> Option<&'a str> {
    said.lines().find(|line| {
        let line = line.to_lowercase();
        planned.unauthenticated.iter().any(|text| line.contains(&text.to_lowercase()))
    })
}

/// One attempt in one line: what it came to, and of what was said the line that decided, or the first.
fn shown(
    planned: &PlannedPreflight,
    attempt: u32,
    meaning: Meaning,
    code: Option<i32>,
    said: &str,
) -> String {
    let came_to = match meaning {
        Meaning::Passed => "passed",
        Meaning::NoLogin => "failed, no login",
        Meaning::Failed => "failed",
        Meaning::NoModel => "failed, the model is not listed",
    };
    let code = code.map_or_else(|| "no exit code".to_owned(), |code| format!("exit code {code}"));
    let line = denial(planned, said).or_else(|| said.lines().find(|l| !l.trim().is_empty()));
    let line = text::head(line.unwrap_or_default().trim(), LINE_LIMIT_BYTES);
    let line = line.replace(char::is_control, "?");
    let lines = said.lines().count();
    format!("attempt {attempt} {came_to}: {code}, {lines} line(s), \"{line}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned() -> PlannedPreflight {
        PlannedPreflight {
            argv: vec!["/provider/a".to_owned(), "models".to_owned()],
            unauthenticated: vec!["not authenticated".to_owned(), "Not logged in".to_owned()],
            words: vec!["m-1".to_owned()],
            retry_after_ms: None,
        }
    }

    #[test]
    fn texts_decide_and_not_the_exit_code() {
        let of = |code, said: &str| meaning(&planned(), code, said);
        let list = "Available models:\n  * m-1 (default)\n";
        for login in [
            "You are logged in with grok.com.",
            "You are using XAI_API_KEY.",
            "Model 'm-1' is using its own API key.",
        ] {
            assert_eq!(of(Some(0), &format!("{login}\n{list}")), Meaning::Passed, "{login}");
        }
        for denied in ["You are not authenticated.", "You are NOT LOGGED IN"] {
            assert_eq!(of(Some(0), &format!("{denied}\n{list}")), Meaning::NoLogin, "{denied}");
            assert_eq!(of(Some(1), denied), Meaning::NoLogin, "{denied}");
        }
        assert_eq!(of(Some(0), "You are logged in.\n  * m-1-mini\n  * xm-1"), Meaning::NoModel);
        assert_eq!(of(Some(3), list), Meaning::Failed);
        assert_eq!(of(None, list), Meaning::Failed);
    }

    #[test]
    fn a_receipt_has_the_line_that_decided_and_counts() {
        let said = format!("\nhello \u{1b}[1m\nYou are not authenticated.{}\n", "!".repeat(900));
        let line = shown(&planned(), 1, Meaning::NoLogin, Some(0), &said);
        assert!(
            line.starts_with("attempt 1 failed, no login: exit code 0, 3 line(s), \"You are not auth"),
            "{line}"
        );
        assert!(line.len() < 300, "{line}");
        let line = shown(&planned(), 2, Meaning::Failed, None, "\u{1b}[31mno");
        assert_eq!(line, "attempt 2 failed: no exit code, 1 line(s), \"?[31mno\"");
    }
}
