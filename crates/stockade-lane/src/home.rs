//! The private home of a run: made before the fence is built, removed when the run has ended.

use std::{
    fs::{self, DirBuilder, OpenOptions},
    io::Write,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use stockade_core::{
    plan::LaunchPlan,
    status::{Boundary, Cause, Refusal, Status},
};
use stockade_journal::State;

use crate::storage;

/// A private home on the host. Dropping it leaves it for `stockade gc`; [`PrivateHome::remove`] removes it.
#[derive(Debug)]
pub(crate) struct PrivateHome {
    path: PathBuf,
}

impl PrivateHome {
    /// Makes the folder and puts the plan's files, the prompt and the authorities into it.
    pub(crate) fn stage(
        state: &State,
        plan: &LaunchPlan,
        prompt: &[u8],
        authorities: Option<&[u8]>,
    ) -> Result<Self, Refusal> {
        let path = state.create_home(&plan.session).map_err(|e| storage::refusal(&e))?;
        let home = Self { path };
        match home.fill(plan, prompt, authorities) {
            Ok(()) => Ok(home),
            Err(refusal) => {
                // What cannot be removed either is left for `stockade gc`; the failure that came first is the one to tell.
                let _left = home.remove();
                Err(refusal)
            }
        }
    }

    fn fill(&self, plan: &LaunchPlan, prompt: &[u8], authorities: Option<&[u8]>) -> Result<(), Refusal> {
        for (relative, content) in &plan.home_files {
            self.put(relative, content.as_bytes())?;
        }
        if let (Some(file), Some(pem)) = (&plan.authorities, authorities) {
            self.put(file, pem)?;
        }
        match &plan.prompt.file {
            Some(file) => self.put(file, prompt),
            None => Ok(()),
        }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes it with everything the agent left in it.
    pub(crate) fn remove(self) -> Result<(), stockade_journal::JournalError> {
        stockade_journal::remove_tree(&self.path)
    }

    fn put(&self, relative: &str, content: &[u8]) -> Result<(), Refusal> {
        let target = self.path.join(relative);
        if let Some(parent) = target.parent() {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(parent)
                .map_err(|e| failed("mkdir(home)", parent, &e))?;
        }
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&target)
            .map_err(|e| failed("open(home)", &target, &e))?;
        file.write_all(content).map_err(|e| failed("write(home)", &target, &e))?;
        // A partly written prompt would be a different order: what the kernel accepted has to be all of it.
        let written = fs::symlink_metadata(&target).map_err(|e| failed("stat(home)", &target, &e))?.len();
        if written == content.len() as u64 {
            Ok(())
        } else {
            Err(failed("write(home)", &target, &std::io::Error::from_raw_os_error(28)))
        }
    }
}

fn failed(step: &str, path: &Path, e: &std::io::Error) -> Refusal {
    Refusal::new(
        Status::StorageFailed,
        Cause::new(
            "home-not-made",
            Boundary::Storage,
            step,
            format!("`{}` cannot be made: {}", path.display(), crate::admit::reason(e)),
        )
        .with_errno(e.raw_os_error().unwrap_or(0))
        .with_remedy("make room in the state directory, or name another with `XDG_STATE_HOME`"),
    )
    .with_path(path)
}
