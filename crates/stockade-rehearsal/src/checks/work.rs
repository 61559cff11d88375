//! Checks of what the agent was made to do in its workspace.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    time::Duration,
};

use stockade_core::{
    changes::{ChangeKind, Changes},
    receipt::Receipt,
};
use stockade_journal::digest::sha256_hex;

use super::{Verdict, not_reached, quote};
use crate::{
    scratch::{EXISTING_FILE, NEW_FILE, SHELL_FILE, Texts},
    script::Act,
    snapshot::{Difference, Snapshot},
    wire::{ToolResult, Wire},
};

/// What a mode's work left: its record, what went over the wire, and the workspace before and after.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work<'w> {
    pub(crate) receipt: &'w Receipt,
    pub(crate) wire: &'w Wire,
    pub(crate) texts: &'w Texts,
    pub(crate) before: &'w Snapshot,
    pub(crate) after: &'w Snapshot,
}

impl Work<'_> {
    /// How long the tool calls of these acts took.
    pub(crate) fn elapsed(&self, acts: &[Act]) -> Duration {
        acts.iter().filter_map(|act| self.wire.result_of(act.step())).map(|result| result.elapsed).sum()
    }

    fn result(&self, act: Act) -> Result<ToolResult, String> {
        self.wire.result_of(act.step()).ok_or_else(|| not_reached(self.receipt))
    }

    fn nothing_changed(&self) -> Result<(), String> {
        match self.before.differences(self.after).first_key_value() {
            None => Ok(()),
            Some((path, difference)) => {
                Err(format!("in the workspace `{}` was {difference}", path.display()))
            }
        }
    }

    /// Differences of the workspace, folders left out: they change with what lies in them.
    fn file_differences(&self) -> BTreeMap<PathBuf, Difference> {
        let mut found = self.before.differences(self.after);
        found.retain(|path, _| !(self.before.is_folder(path) && self.after.is_folder(path)));
        found
    }

    fn holds(&self, path: &str, content: &str) -> Verdict {
        let expected = sha256_hex(content.as_bytes());
        match self.after.sha256(Path::new(path)) {
            None => Err(format!("there is no {path} on the host")),
            Some(found) if found != expected => Err(format!("{path} holds something else on the host")),
            Some(_) if self.after.owner(Path::new(path)) != self.before.owner(Path::new("")) => {
                Err(format!("{path} does not belong to the owner of the workspace"))
            }
            Some(_) => Ok(format!("{path} holds on the host what it was to hold")),
        }
    }
}

/// The content of the file that its own tool was told to read is in what the model was told.
pub(crate) fn reads_a_file(work: &Work<'_>) -> Verdict {
    let result = work.result(Act::ReadFile)?;
    if result.text.contains(&work.texts.token) {
        Ok(format!("the random content of {EXISTING_FILE} came back over the wire"))
    } else {
        Err(format!("the model was told: {}", quote(&result.text)))
    }
}

/// Neither the edit nor the new file happened, the model was told so, and the turn went on.
pub(crate) fn refuses_edits(work: &Work<'_>, refusal_words: &[&str]) -> Verdict {
    let mut told = Vec::new();
    for (act, path) in [(Act::EditFile, EXISTING_FILE), (Act::CreateFile, NEW_FILE)] {
        let result = work.result(act)?;
        let refusal = result.text.lines().find(|line| refusal_words.iter().any(|word| line.contains(word)));
        let Some(refusal) = refusal else {
            return Err(format!("{path}: the model was told no error but: {}", quote(&result.text)));
        };
        told.push(format!("{path}: {}", quote(refusal)));
    }
    work.nothing_changed()?;
    Ok(format!("nothing changed on the host, the turn went on; the model was told {}", told.join("; ")))
}

/// The shell's own exit status says that it could not write, and there is no file.
pub(crate) fn refuses_shell_write(work: &Work<'_>) -> Verdict {
    let result = work.result(Act::ShellWrite)?;
    let statuses = printed(&result.text, "status=");
    if !matches!(statuses.as_slice(), [status] if *status != 0) {
        return Err(format!("the shell did not report a failure: {}", quote(&result.text)));
    }
    work.nothing_changed()?;
    Ok(format!("no {SHELL_FILE} on the host, the turn went on; the shell said {}", quote(&result.text)))
}

/// The existing file holds on the host what it was to hold.
pub(crate) fn edits_a_file(work: &Work<'_>) -> Verdict {
    work.result(Act::EditFile)?;
    work.holds(EXISTING_FILE, &work.texts.existing(&work.texts.new))
}

/// The new file is on the host, holds what it was to hold, and belongs to the workspace's owner.
pub(crate) fn creates_a_file(work: &Work<'_>) -> Verdict {
    work.result(Act::CreateFile)?;
    work.holds(NEW_FILE, &format!("{}\n", work.texts.notes))
}

/// A number that only a shell could add up is in what the model was told, and the file it wrote is on the host.
pub(crate) fn runs_a_command(work: &Work<'_>) -> Verdict {
    let result = work.result(Act::ShellWrite)?;
    let sum = i64::from(work.texts.sum());
    if !printed(&result.text, "sum=").contains(&sum) {
        return Err(format!("the model was told: {}", quote(&result.text)));
    }
    let written = work.holds(SHELL_FILE, &format!("{}\n", work.texts.report))?;
    Ok(format!("its output came back over the wire ({}); {written}", quote(&result.text)))
}

/// The receipt lists exactly what changed, as a look of our own shows it.
pub(crate) fn changes_measured(work: &Work<'_>) -> Verdict {
    let seen: BTreeMap<PathBuf, ChangeKind> =
        work.file_differences().into_iter().map(|(path, difference)| (path, kind(difference))).collect();
    let Changes { files, complete, .. } = &work.receipt.changes;
    let listed: BTreeMap<PathBuf, ChangeKind> =
        files.iter().map(|file| (PathBuf::from(&file.path), file.kind)).collect();
    let names = |changes: &BTreeMap<PathBuf, ChangeKind>| {
        let names = changes
            .iter()
            .map(|(path, kind)| format!("{} {}", path.display(), format!("{kind:?}").to_lowercase()));
        names.collect::<Vec<_>>().join(", ")
    };
    if !complete {
        return Err("the receipt says that its changes are incomplete".to_owned());
    }
    if listed != seen || files.len() != listed.len() {
        return Err(format!("the receipt lists {}; on the host {}", names(&listed), names(&seen)));
    }
    let expected = [EXISTING_FILE, NEW_FILE, SHELL_FILE].map(PathBuf::from);
    if listed.keys().cloned().collect::<BTreeSet<_>>() != BTreeSet::from(expected) {
        return Err(format!("changed were {}", names(&listed)));
    }
    let wrong = files.iter().find(|file| file.sha256.as_deref() != work.after.sha256(Path::new(&file.path)));
    match wrong {
        Some(file) => Err(format!("the receipt's digest of {} is not that of the file", file.path)),
        None => Ok(format!("the receipt lists {}, with their digests", names(&listed))),
    }
}

fn kind(difference: Difference) -> ChangeKind {
    match difference {
        Difference::Added => ChangeKind::Added,
        Difference::Removed => ChangeKind::Deleted,
        Difference::Changed => ChangeKind::Modified,
    }
}

/// The numbers that lines of a text give after a word.
pub(crate) fn printed(text: &str, word: &str) -> Vec<i64> {
    text.lines().filter_map(|line| line.trim().strip_prefix(word)?.parse().ok()).collect()
}

#[cfg(test)]
mod tests;
