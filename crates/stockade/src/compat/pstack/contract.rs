//! The worker contract: what a prompt says about the parent's git, and the hand-over by which a worker asks for it.

use serde::{Deserialize, Serialize};

/// Goes in front of every prompt. Words only: what holds is the fence.
const CONTRACT: &str = "\
# Worker contract

You work for a parent agent, in the current folder and nowhere else. Git belongs to the parent: do not commit, push,
switch branches or rewrite history. Finish the task and end with your result as plain text.

If the task cannot go on without the parent committing a checkpoint or running checks, end your answer with exactly one
block, and nothing after it:

```pstack-handoff
{\"task\": \"…\", \"checkpoint\": \"…\", \"operation\": \"commit-checkpoint\" or \"run-checks\", \"files\": [\"relative/path\"],
 \"checks\": [\"command\"], \"summary\": \"…\"}
```

# Assigned task:

";

/// How the block begins and ends.
const FENCE: &str = "```pstack-handoff";

/// A prompt with the contract in front.
pub(super) fn with_contract(prompt: &[u8]) -> Vec<u8> {
    [CONTRACT.as_bytes(), prompt].concat()
}

/// What a worker asks of its parent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Handoff {
    task: String,
    checkpoint: String,
    operation: Operation,
    files: Vec<String>,
    checks: Vec<String>,
    summary: String,
}

/// What the parent is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Operation {
    CommitCheckpoint,
    RunChecks,
}

/// What an answer ends with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ends {
    /// With the answer.
    Plainly,
    /// With a request to the parent.
    WithHandoff(Box<Handoff>),
    /// With something that was meant as one.
    WithBadHandoff(&'static str),
}

/// Looks for the block at the end of an answer.
pub(super) fn ending(answer: &str) -> Ends {
    let mut starts = answer.match_indices(FENCE).filter(|(at, _)| {
        let line_start = answer.get(..*at).is_none_or(|before| before.is_empty() || before.ends_with('\n'));
        let rest = answer.get(at + FENCE.len()..).unwrap_or_default();
        line_start && rest.trim_start_matches([' ', '\t', '\r']).starts_with('\n')
    });
    let Some((at, _)) = starts.next() else { return Ends::Plainly };
    if starts.next().is_some() {
        return Ends::WithBadHandoff("there is more than one block");
    }
    let rest = answer.get(at + FENCE.len()..).unwrap_or_default();
    let Some((body, after)) = rest.split_once("\n```") else {
        return Ends::WithBadHandoff("the block does not end");
    };
    if !after.trim().is_empty() {
        return Ends::WithBadHandoff("something comes after the block");
    }
    match serde_json::from_str::<Handoff>(body) {
        Ok(handoff) => match handoff.objection() {
            None => Ends::WithHandoff(Box::new(handoff)),
            Some(why) => Ends::WithBadHandoff(why),
        },
        Err(_) => Ends::WithBadHandoff("the block is not the JSON it should be"),
    }
}

impl Handoff {
    fn objection(&self) -> Option<&'static str> {
        if self.task.trim().is_empty() {
            return Some("the block names no task");
        }
        if self.checkpoint.chars().count() > 200 || self.summary.chars().count() > 1000 {
            return Some("a text of the block is too long");
        }
        if self.files.len() > 200 || self.checks.len() > 50 {
            return Some("a list of the block is too long");
        }
        (!self.files.iter().all(|f| is_inside(f)))
            .then_some("a file of the block is not one of the workspace")
    }
}

/// Whether a path names something in the workspace that is not git's.
fn is_inside(path: &str) -> bool {
    !path.is_empty()
        && !path.contains('\\')
        && path.split('/').all(|part| !matches!(part, "" | "." | ".." | ".git"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{"task":"t","checkpoint":"c","operation":"run-checks","files":["a/b.rs"],"checks":["make"],"summary":"s"}"#;

    fn answer(body: &str) -> String {
        format!("Half done.\n\n```pstack-handoff\n{body}\n```\n")
    }

    #[test]
    fn a_block_at_the_very_end_is_a_request() {
        let Ends::WithHandoff(handoff) = ending(&answer(GOOD)) else { panic!() };
        assert_eq!(serde_json::to_string(&handoff).unwrap(), GOOD);
        assert_eq!(ending("Done. I wrote no ```pstack-handoff block."), Ends::Plainly);
        assert_eq!(ending("Done."), Ends::Plainly);
    }

    #[test]
    fn what_was_meant_as_one_is_not_taken_for_an_answer() {
        let bad = [
            answer("{}"),
            answer(&GOOD.replace("a/b.rs", "../b.rs")),
            answer(&GOOD.replace("a/b.rs", ".git/config")),
            answer(&GOOD.replace("a/b.rs", "/etc/passwd")),
            answer(&GOOD.replace("run-checks", "push")),
            answer(&GOOD.replace("\"summary\":\"s\"", "\"summary\":\"s\",\"more\":1")),
            answer(&GOOD.replace("\"s\"}", &format!("\"{}\"}}", "s".repeat(1001)))),
            format!("{}and more", answer(GOOD)),
            answer(GOOD) + &answer(GOOD),
            "```pstack-handoff\n{".to_owned(),
        ];
        for text in bad {
            assert!(matches!(ending(&text), Ends::WithBadHandoff(_)), "{text}");
        }
    }

    #[test]
    fn the_task_follows_the_contract() {
        let prompt = with_contract(b"Count the words.");
        assert!(prompt.ends_with(b"# Assigned task:\n\nCount the words."));
    }
}
