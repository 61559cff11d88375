//! What all connections of a gateway share.

use std::sync::{
    Arc, Mutex, MutexGuard, OnceLock, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use crate::{
    activity::Activity,
    dial::Dialer,
    facts::Facts,
    policy::{ModelPolicy, Prepared},
    pool::Pool,
    purse::Purse,
    read::Budget,
    storm::Storm,
    tasks::Tasks,
};

/// What all connections of a gateway share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) policy: ModelPolicy,
    pub(crate) prepared: Prepared,
    pub(crate) facts: Facts,
    pub(crate) activity: Arc<Activity>,
    pub(crate) tasks: Arc<Tasks>,
    pub(crate) dialer: Dialer,
    pub(crate) pool: Pool,
    pub(crate) budget: Budget,
    /// The code of the refusal that ended the run's calls.
    pub(crate) refused: OnceLock<&'static str>,
    pub(crate) storm: Mutex<Storm>,
    pub(crate) requests: AtomicU64,
    pub(crate) purse: Purse,
}

impl Shared {
    pub(crate) fn storm(&self) -> MutexGuard<'_, Storm> {
        self.storm.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the next request, from 1.
    pub(crate) fn next_request(&self) -> u64 {
        self.requests.fetch_add(1, Ordering::Relaxed) + 1
    }
}
