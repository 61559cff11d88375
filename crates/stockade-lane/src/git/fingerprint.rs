//! What the files of a worktree look like, once nobody works on them any more: a later look tells whether somebody did.

use std::{
    path::{Path, PathBuf},
    thread::JoinHandle,
};

use stockade_journal::{
    JournalError,
    walk::{Bounds, Snapshot},
};

/// A look that goes on beside what is done with the objects.
#[derive(Debug)]
pub(super) struct Fingerprint {
    tree: PathBuf,
    thread: Option<JoinHandle<Result<String, JournalError>>>,
}

impl Fingerprint {
    /// Begins to look.
    pub(super) fn begin(tree: &Path) -> Self {
        let tree = tree.to_owned();
        let looked_at = tree.clone();
        // Without a thread it is looked at in the end.
        let thread =
            std::thread::Builder::new().name("fingerprint".to_owned()).spawn(move || take(&looked_at)).ok();
        Self { tree, thread }
    }

    /// What was seen.
    pub(super) fn end(self) -> Result<String, JournalError> {
        match self.thread.and_then(|thread| thread.join().ok()) {
            Some(taken) => taken,
            None => take(&self.tree),
        }
    }
}

fn take(tree: &Path) -> Result<String, JournalError> {
    Snapshot::take(tree, &Bounds::default()).map(|snapshot| snapshot.fingerprint())
}
