//! Words that do not belong into a file that others read.

use anyhow::{Context, Result};

use super::{Findings, House};
use crate::repository;

/// Words, and what is wrong with them. Written in two parts, so that this file does not find itself.
const WORDS: [(&str, &str); 7] = [
    (concat!("..", "/shared"), "a path outside the repository"),
    (concat!("/work/", "shared"), "a path of one machine"),
    (concat!("/work/", "main"), "a path of one machine"),
    (concat!("todo", "!"), "unfinished code"),
    (concat!("dbg", "!"), "a trace of debugging"),
    (concat!("unimplemented", "!"), "unfinished code"),
    (concat!("FIX", "ME"), "unfinished code"),
];

pub(super) fn check(house: &House, findings: &mut Findings) -> Result<()> {
    for file in &house.files {
        let bytes =
            std::fs::read(repository::root().join(file)).with_context(|| format!("reading {file}"))?;
        // What is no text is no place for words.
        let Ok(text) = String::from_utf8(bytes) else { continue };
        for (number, line) in (1..).zip(text.lines()) {
            for problem in problems(line) {
                findings.add(format!("{file}:{number}: {problem}"));
            }
        }
    }
    Ok(())
}

fn problems(line: &str) -> Vec<String> {
    let mut found: Vec<String> = WORDS
        .iter()
        .filter(|(word, _)| line.contains(word))
        .map(|(word, why)| format!("`{word}`: {why}"))
        .collect();
    if names_an_issue(line) {
        found.push("an issue number; say what it was about instead".to_owned());
    }
    found
}

/// Finds a number after `#` (after a space, an opening bracket or the start of the line) and after the word.
fn names_an_issue(line: &str) -> bool {
    let starts_with_digit = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
    let by_sign = line.match_indices('#').any(|(at, _)| {
        let before = line.get(..at).and_then(|b| b.chars().next_back());
        let after = line.get(at + 1..).unwrap_or_default();
        before.is_none_or(|c| c.is_whitespace() || c == '(' || c == '[') && starts_with_digit(after)
    });
    let lower = line.to_lowercase();
    let word = concat!("iss", "ue ");
    let by_word = lower.match_indices(word).any(|(at, _)| {
        let before = lower.get(..at).and_then(|b| b.chars().next_back());
        let after = lower.get(at + word.len()..).unwrap_or_default();
        before.is_none_or(|c| !c.is_alphanumeric()) && starts_with_digit(after)
    });
    by_sign || by_word
}

#[cfg(test)]
mod tests {
    use super::names_an_issue;

    #[test]
    fn issue_numbers_are_told_from_other_numbers_with_a_sign() {
        for (line, expected) in [
            (concat!("fixes #", "12"), true),
            (concat!("(#", "7)"), true),
            (concat!("see iss", "ue 4"), true),
            ("a tissue 4", false),
            ("{:#010x}", false),
            ("color: \"#123456\"", false),
            ("# 1. Heading", false),
            ("r#\"1\"#", false),
        ] {
            assert_eq!(names_an_issue(line), expected, "{line}");
        }
    }
}
