//! What changed between two commits, by their objects alone.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};
use stockade_core::changes::{ChangeKind, Changes, FileChange};

use super::Host;
use crate::{batch::Objects, error::GitError};

/// Changes that are listed, as the walker lists of a folder.
const MOST_CHANGES: usize = 10_000;
/// Bytes of a file whose content is digested, and of all together.
const DIGESTED_FILE_BYTES: u64 = 64 * 1024 * 1024;
const DIGESTED_BYTES: u64 = 1024 * 1024 * 1024;
/// The mode of a submodule: it has no content here.
const GITLINK: &str = "160000";

/// One line of `git diff-tree --raw`.
#[derive(Debug, PartialEq, Eq)]
struct Raw {
    path: String,
    kind: ChangeKind,
    /// The object afterwards, where the path holds a file or a link.
    object: Option<String>,
    is_file: bool,
    /// Whether it names a commit of another repository.
    is_nested: bool,
}

pub(super) fn between(host: &Host, from: &str, to: &str) -> Result<(Changes, Vec<String>), GitError> {
    let arguments = ["diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", from, to, "--"];
    let answer = host.answer("diff-tree", &arguments, &[])?;
    let mut raw = parse(&answer);
    let complete = raw.len() <= MOST_CHANGES;
    raw.truncate(MOST_CHANGES);
    let nested = raw.iter().filter(|r| r.is_nested).map(|r| r.path.clone()).collect();
    let (sizes, digests) = contents(host, &raw)?;
    let files = raw
        .into_iter()
        .map(|r| {
            let object = r.object.filter(|_| r.is_file);
            FileChange {
                path: r.path,
                kind: r.kind,
                sha256: object.as_ref().and_then(|o| digests.get(o)).cloned(),
                bytes: object.as_ref().and_then(|o| sizes.get(o)).copied(),
            }
        })
        .collect();
    Ok((Changes { commits: Vec::new(), files, complete }, nested))
}

fn parse(answer: &[u8]) -> Vec<Raw> {
    let mut parts = answer.split(|b| *b == 0);
    let mut found = Vec::new();
    while let (Some(head), Some(path)) = (parts.next(), parts.next()) {
        let head = String::from_utf8_lossy(head);
        let mut words = head.trim_start_matches(':').split(' ');
        let (Some(old_mode), Some(mode), Some(old), Some(new), Some(status)) =
            (words.next(), words.next(), words.next(), words.next(), words.next())
        else {
            continue;
        };
        let kind = match status.chars().next() {
            Some('A') => ChangeKind::Added,
            Some('D') => ChangeKind::Deleted,
            _ if old == new && old_mode != mode => ChangeKind::Metadata,
            _ => ChangeKind::Modified,
        };
        let present = kind != ChangeKind::Deleted && mode != GITLINK;
        found.push(Raw {
            path: String::from_utf8_lossy(path).into_owned(),
            kind,
            object: present.then(|| new.to_owned()),
            is_file: mode.starts_with("100"),
            is_nested: mode == GITLINK,
        });
    }
    found
}

type Sizes = BTreeMap<String, u64>;

/// Digests of contents by object, without the contents.
#[derive(Debug, Default)]
struct Digests {
    of: BTreeMap<String, String>,
    current: Option<(String, Sha256)>,
}

impl Objects for Digests {
    fn begin(&mut self, object: &str, _: &str, _: u64) -> Result<(), String> {
        self.current = Some((object.to_owned(), Sha256::new()));
        Ok(())
    }

    fn content(&mut self, part: &[u8]) -> Result<(), String> {
        if let Some((_, hasher)) = &mut self.current {
            hasher.update(part);
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), String> {
        if let Some((object, hasher)) = self.current.take() {
            let hex = |text: String, byte: &u8| text + &format!("{byte:02x}");
            self.of.insert(object, hasher.finalize().iter().fold(String::with_capacity(64), hex));
        }
        Ok(())
    }
}

/// Sizes of all contents, and digests of those within the bounds.
fn contents(host: &Host, raw: &[Raw]) -> Result<(Sizes, BTreeMap<String, String>), GitError> {
    let wanted: std::collections::BTreeSet<String> =
        raw.iter().filter(|r| r.is_file).filter_map(|r| r.object.clone()).collect();
    if wanted.is_empty() {
        return Ok((Sizes::new(), BTreeMap::new()));
    }
    let format = "--batch-check=%(objectname) %(objectsize)";
    let answer = host.answer("cat-file", &["cat-file", format], super::lines(&wanted).as_bytes())?;
    let sizes: Sizes = String::from_utf8_lossy(&answer)
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(object, size)| Some((object.to_owned(), size.parse().ok()?)))
        .collect();
    let mut room = DIGESTED_BYTES;
    let mut asked = Vec::new();
    for (object, size) in sizes.iter().filter(|(_, size)| **size <= DIGESTED_FILE_BYTES) {
        let Some(left) = room.checked_sub(*size) else { break };
        room = left;
        asked.push(object.as_str());
    }
    let digests = host.read(asked.into_iter(), Digests::default())?;
    Ok((sizes, digests.of))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_its_kind() {
        let (a, b, none) = ("1".repeat(40), "2".repeat(40), "0".repeat(40));
        let mut answer = Vec::new();
        for (line, path) in [
            (format!(":000000 100644 {none} {a} A"), "added"),
            (format!(":100644 000000 {a} {none} D"), "gone"),
            (format!(":100644 100644 {a} {b} M"), "changed"),
            (format!(":100644 100755 {a} {a} M"), "mode"),
            (format!(":100644 120000 {a} {b} T"), "link"),
            (format!(":000000 160000 {none} {b} A"), "repo"),
        ] {
            answer.extend_from_slice(format!("{line}\0{path}\0").as_bytes());
        }
        let kinds: Vec<_> =
            parse(&answer).into_iter().map(|r| (r.path, r.kind, r.object.is_some(), r.is_file)).collect();
        assert_eq!(
            kinds,
            [
                ("added".to_owned(), ChangeKind::Added, true, true),
                ("gone".to_owned(), ChangeKind::Deleted, false, false),
                ("changed".to_owned(), ChangeKind::Modified, true, true),
                ("mode".to_owned(), ChangeKind::Metadata, true, true),
                ("link".to_owned(), ChangeKind::Modified, true, false),
                ("repo".to_owned(), ChangeKind::Added, false, false),
            ]
        );
    }
}
