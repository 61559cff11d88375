//! A made worktree that is filled by threads of this process, beside whatever else has to be done before the agent starts.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

use stockade_fence::INNER_ID;
use stockade_git::{Checkout, GitError, Host, Owner, Repository};
use tokio::sync::{mpsc, oneshot};

use super::script::ScriptError;
use crate::request::StopRequest;

/// Where a worktree is filled from, and where it is.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) host: Host,
    pub(super) repository: Repository,
    pub(super) commit: String,
    pub(super) tree: PathBuf,
    pub(super) index: PathBuf,
}

/// Fills until it is done or dropped. Once it is gone nobody writes in the worktree any more.
#[derive(Debug)]
pub(super) struct Filling {
    begun: oneshot::Receiver<bool>,
    done: oneshot::Receiver<Result<(), GitError>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Filling {
    /// Begins to look at the commit.
    pub(super) fn start(order: Order) -> std::io::Result<Self> {
        let (tell_begun, begun) = oneshot::channel();
        let (tell_done, done) = oneshot::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("checkout".to_owned()).spawn(move || {
            // What cannot be looked at is left to git, which then says why.
            let checkout = Checkout::of(&order.host, &order.repository, &order.commit).ok().flatten();
            let unheard = tell_begun.send(checkout.is_some()).is_err();
            if let Some(checkout) = checkout.filter(|_| !unheard) {
                let owner = Owner { uid: INNER_ID, gid: INNER_ID };
                // Nobody waits where the run was stopped.
                let _unheard = tell_done.send(checkout.write(&order.tree, &order.index, owner, &stopped));
            }
        })?;
        Ok(Self { begun, done, stop, thread: Some(thread) })
    }

    /// Whether the worktree is being filled; otherwise git has to do it.
    pub(super) async fn is_under_way(&mut self) -> bool {
        (&mut self.begun).await.unwrap_or(false)
    }

    /// Waits for its end. `false`: not all could be written.
    pub(super) async fn end(mut self, stops: &mut mpsc::Receiver<StopRequest>) -> Result<bool, ScriptError> {
        let written = tokio::select! {
            biased;
            Some(StopRequest::Cancel(why) | StopRequest::Kill(why)) = stops.recv() => {
                return Err(ScriptError::Stopped(why));
            }
            written = &mut self.done => written,
        };
        Ok(written.is_ok_and(|written| written.is_ok()))
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It looks for the mark before each file. Whatever it had to say was said.
            drop(thread.join());
        }
    }
}
