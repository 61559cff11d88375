//! The tasks of one gateway: none outlives it.

use std::{
    future::Future,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::watch, task::JoinSet, time::timeout};

/// How long tasks may take to end by themselves once they are told to.
const GRACE: Duration = Duration::from_millis(250);

/// A signal that the gateway is to end.
#[derive(Clone, Debug)]
pub(crate) struct Stop(watch::Receiver<bool>);

impl Stop {
    /// Returns once the gateway is to end.
    pub(crate) async fn asked(&mut self) {
        // An error means that the sender is gone, which is the end too.
        let _ended = self.0.wait_for(|stop| *stop).await.is_ok();
    }
}

/// The set of running tasks and the signal that ends them.
#[derive(Debug)]
pub(crate) struct Tasks {
    set: Mutex<JoinSet<()>>,
    signal: watch::Sender<bool>,
}

impl Tasks {
    pub(crate) fn new() -> Self {
        Self { set: Mutex::new(JoinSet::new()), signal: watch::channel(false).0 }
    }

    pub(crate) fn stop(&self) -> Stop {
        Stop(self.signal.subscribe())
    }

    /// Runs a task until it ends or the gateway does. Has to be called inside a runtime.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut set = self.lock();
        while set.try_join_next().is_some() {}
        if !*self.signal.borrow() {
            set.spawn(task);
        }
    }

    /// Tells every task to end, waits a moment and ends those that did not.
    pub(crate) async fn end(&self) {
        self.signal.send_replace(true);
        let mut set = std::mem::take(&mut *self.lock());
        let ended = timeout(GRACE, async { while set.join_next().await.is_some() {} }).await;
        if ended.is_err() {
            set.shutdown().await;
        }
    }

    /// Ends every task without waiting.
    pub(crate) fn abort(&self) {
        self.signal.send_replace(true);
        self.lock().abort_all();
    }

    fn lock(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
