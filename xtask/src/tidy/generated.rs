//! Generated files and generated parts of files are up to date.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use stockade_core::{guarantee::Guarantee, mode::AccessMode, status::Status};

use super::Findings;
use crate::{binary, repository, shell};

/// What to do about generated text that is out of date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Generated {
    /// Tell of it.
    Compare,
    /// Write it anew.
    Rewrite,
}

/// What writes a part.
type Part = fn() -> String;

/// Whole files, and the word by which the binary prints each.
const FILES: [(&str, &str); 3] = [
    ("docs/reference/cli.md", "cli-reference"),
    ("docs/reference/receipt.schema.json", "receipt-schema"),
    ("docs/probes.md", "probes"),
];

/// Parts of files between `<!-- generated: NAME -->` and `<!-- end of NAME -->`.
const PARTS: [(&str, &str, Part); 3] = [
    ("README.md", "exit codes", exit_codes),
    ("docs/endings.md", "statuses", statuses),
    ("docs/guarantees.md", "guarantees", guarantees),
];

pub(super) fn check(mode: Generated, findings: &mut Findings) -> Result<()> {
    let binary = binary::build()?;
    for (file, word) in FILES {
        let fresh = shell::output(shell::command(&binary).args(["generate", word]))?;
        let found = std::fs::read_to_string(repository::root().join(file)).unwrap_or_default();
        settle(mode, file, &found, &fresh, findings)?;
    }
    for (file, name, part) in PARTS {
        let found = repository::read(file)?;
        match replaced(&found, name, &part()) {
            Some(fresh) => settle(mode, file, &found, &fresh, findings)?,
            None => findings.add(format!("{file}: has no generated part `{name}`")),
        }
    }
    Ok(())
}

fn settle(mode: Generated, file: &str, found: &str, fresh: &str, findings: &mut Findings) -> Result<()> {
    if found == fresh {
        return Ok(());
    }
    match mode {
        Generated::Compare => findings.add(format!("{file}: out of date; run `cargo xtask tidy --fix`")),
        Generated::Rewrite => {
            let path = repository::root().join(file);
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
            }
            std::fs::write(&path, fresh).with_context(|| format!("writing {file}"))?;
            println!("rewrote {file}");
        }
    }
    Ok(())
}

/// The text with its generated part put in anew; `None`: it has no such part.
fn replaced(text: &str, name: &str, part: &str) -> Option<String> {
    let (start, end) = (format!("<!-- generated: {name} -->\n"), format!("<!-- end of {name} -->"));
    let (before, rest) = text.split_once(&start)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{start}{part}{end}{after}"))
}

fn exit_codes() -> String {
    let mut codes: Vec<u8> = Status::ALL.iter().map(|s| s.exit_code()).collect();
    codes.push(stockade_core::status::exit_code::USAGE);
    codes.sort_unstable();
    codes.dedup();
    let mut out = "| exit | status |\n| --- | --- |\n".to_owned();
    for code in codes {
        let mut names: Vec<String> =
            Status::ALL.iter().filter(|s| s.exit_code() == code).map(|s| format!("`{}`", s.id())).collect();
        if names.is_empty() {
            names.push("usage error; nothing was created".to_owned());
        }
        let _ = writeln!(out, "| {code} | {} |", names.join(", "));
    }
    out
}

fn statuses() -> String {
    let mut out = "| status | exit | meaning |\n| --- | --- | --- |\n".to_owned();
    for status in Status::ALL {
        let _ = writeln!(out, "| `{}` | {} | {} |", status.id(), status.exit_code(), status.meaning());
    }
    out
}

fn guarantees() -> String {
    let mut out = "| id | meaning |".to_owned();
    for mode in AccessMode::ALL {
        let _ = write!(out, " {} |", mode.id());
    }
    out += "\n| --- | --- | --- | --- |\n";
    for guarantee in Guarantee::ALL {
        let _ = write!(out, "| `{}` | {} |", guarantee.id(), guarantee.meaning());
        for mode in AccessMode::ALL {
            let word = match guarantee {
                Guarantee::Limits => "reported",
                Guarantee::NoNesting => "required, unless the rung nests",
                Guarantee::WorkspaceReadonly if mode == AccessMode::IsolatedWrite => "–",
                _ if guarantee.required_in(mode) => "required",
                _ => "–",
            };
            let _ = write!(out, " {word} |");
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_named_part_is_replaced() {
        let text = "a\n<!-- generated: x -->\nold\n<!-- end of x -->\nb\n";
        let fresh = replaced(text, "x", "new\n").unwrap();
        assert_eq!(fresh, "a\n<!-- generated: x -->\nnew\n<!-- end of x -->\nb\n");
        assert_eq!(replaced(&fresh, "x", "new\n"), Some(fresh.clone()));
        assert_eq!(replaced(text, "y", ""), None);
    }

    #[test]
    fn every_status_is_in_both_tables() {
        for status in Status::ALL {
            let name = format!("`{}`", status.id());
            assert!(exit_codes().contains(&name) && statuses().contains(&name), "{name}");
        }
    }
}
