//! What changed between two snapshots.

use std::{cmp::Ordering, ffi::OsStr, os::unix::ffi::OsStrExt as _};

use stockade_core::changes::{ChangeKind, Changes, FileChange};

use super::{Snapshot, entry::Entry};
use crate::{copy::open_below, digest};

pub(super) fn between(before: &Snapshot, after: &Snapshot) -> Changes {
    let mut list = List { after, files: Vec::new(), complete: before.complete && after.complete, hashed: 0 };
    let mut old = before.entries.iter().peekable();
    let mut new = after.entries.iter().peekable();
    loop {
        let order = match (old.peek(), new.peek()) {
            (None, None) => break,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(o), Some(n)) => o.order(n),
        };
        let o = if order == Ordering::Greater { None } else { old.next() };
        let n = if order == Ordering::Less { None } else { new.next() };
        match (o, n) {
            (Some(o), Some(n)) => {
                if let Some(kind) = difference(o, n) {
                    list.add(n, kind);
                }
            }
            // Where a folder was not recorded whole, what is missing in it says nothing.
            (Some(o), None) if parent_listed(after, &o.path) => list.add(o, ChangeKind::Deleted),
            (None, Some(n)) if parent_listed(before, &n.path) => list.add(n, ChangeKind::Added),
            _ => {}
        }
    }
    Changes { commits: Vec::new(), files: list.files, complete: list.complete }
}

/// Whether everything in the folder around a path was recorded: an absent path was really absent. True as well where
/// the folder itself was not there but the one around it was recorded whole.
fn parent_listed(snapshot: &Snapshot, path: &[u8]) -> bool {
    let mut rest = path;
    loop {
        rest = match rest.iter().rposition(|b| *b == b'/') {
            Some(slash) => rest.get(..slash).unwrap_or_default(),
            None => &[],
        };
        if let Ok(i) = snapshot.entries.binary_search_by(|e| (*e.path).cmp(rest)) {
            return snapshot.entries.get(i).is_some_and(|e| e.listed || !e.is_folder());
        }
        if rest.is_empty() {
            return false;
        }
    }
}

/// How two records of the same path differ. A file counts as modified unless only its mode or owner can explain the
/// new change time: contents can be rewritten and the modification time put back, the change time cannot.
fn difference(old: &Entry, new: &Entry) -> Option<ChangeKind> {
    if old.kind != new.kind {
        return Some(ChangeKind::Modified);
    }
    let metadata = (old.mode, old.uid, old.gid) != (new.mode, new.uid, new.gid) || old.target != new.target;
    if new.is_file() {
        if (old.size, old.mtime, old.ino) != (new.size, new.mtime, new.ino) {
            return Some(ChangeKind::Modified);
        }
        if old.ctime != new.ctime && !metadata {
            return Some(ChangeKind::Modified);
        }
    }
    metadata.then_some(ChangeKind::Metadata)
}

struct List<'s> {
    after: &'s Snapshot,
    files: Vec<FileChange>,
    complete: bool,
    hashed: u64,
}

impl List<'_> {
    fn add(&mut self, entry: &Entry, kind: ChangeKind) {
        if self.files.len() >= self.after.bounds.changes {
            self.complete = false;
            return;
        }
        let present_file = entry.is_file() && kind != ChangeKind::Deleted;
        let path = if entry.path.is_empty() { b".".as_slice() } else { &entry.path };
        let change = FileChange {
            path: String::from_utf8_lossy(path).into_owned(),
            kind,
            sha256: if present_file { self.hash(entry) } else { None },
            bytes: present_file.then_some(entry.size),
        };
        self.files.push(change);
    }

    /// The digest of a file as it is now. `None` also where it is no longer the file that was recorded or cannot be
    /// read, which makes the list incomplete; a file over the limit does not.
    fn hash(&mut self, entry: &Entry) -> Option<String> {
        let bounds = &self.after.bounds;
        if entry.size > bounds.hashed_file_bytes {
            return None;
        }
        let left = bounds.hashed_bytes.saturating_sub(self.hashed);
        let digest = open_below(&self.after.folder, OsStr::from_bytes(&entry.path))
            .and_then(|file| {
                let same = rustix::fs::fstat(&file)?.st_ino == entry.ino;
                if same { digest::of_file(file, left.min(bounds.hashed_file_bytes)) } else { Ok(None) }
            })
            .ok()
            .flatten();
        if let Some((hex, bytes)) = digest {
            self.hashed = self.hashed.saturating_add(bytes);
            return Some(hex);
        }
        self.hashed = self.hashed.saturating_add(entry.size.min(left));
        self.complete = false;
        None
    }
}
