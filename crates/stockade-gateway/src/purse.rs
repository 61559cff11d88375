//! What a run may spend and has spent.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use stockade_core::{
    budget::{Budget, CallKind, Reached, Spent},
    event::Usage,
};

/// A budget and what is gone of it.
#[derive(Debug)]
pub(crate) struct Purse {
    budget: Budget,
    spent: Mutex<Spent>,
    told: AtomicBool,
}

impl Purse {
    pub(crate) fn new(budget: Budget) -> Self {
        Self { budget, spent: Mutex::default(), told: AtomicBool::new(false) }
    }

    fn spent(&self) -> MutexGuard<'_, Spent> {
        self.spent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a call on, or says which budget is used up.
    pub(crate) fn begin(&self, kind: CallKind) -> Result<(), Reached> {
        let mut spent = self.spent();
        if let Some(reached) = spent.reached(&self.budget, kind) {
            return Err(reached);
        }
        spent.begin(kind);
        Ok(())
    }

    /// Whether it has been told before that a budget is used up.
    pub(crate) fn was_told(&self) -> bool {
        self.told.swap(true, Ordering::Relaxed)
    }

    /// A call was not answered, or by an error.
    pub(crate) fn failed(&self, kind: CallKind) {
        self.spent().failed(kind);
    }

    /// A call was answered.
    pub(crate) fn answered(&self, request: u64, usage: Option<&Usage>) {
        self.spent().answered(&self.budget, request, usage);
    }
}

/// What a request of this class is for: the first class is the main turn.
pub(crate) fn kind_of(class: usize) -> CallKind {
    if class == 0 { CallKind::Turn } else { CallKind::Side }
}
