//! Telling what was seen, within bounds: a flood of requests must not become a flood of facts.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use stockade_core::{
    event::{EventKind, NetworkVerdict},
    text,
};
use tokio::sync::mpsc;

use crate::tasks::Stop;

/// How many network decisions of one code are told one by one.
pub(crate) const DECISION_LIMIT: u32 = 200;
/// The longest target of a decision, in bytes.
const TARGET_LIMIT_BYTES: usize = 300;
/// The longest detail of a decision, in bytes.
const DETAIL_LIMIT_BYTES: usize = 2_000;

/// The sending end of the fact channel.
#[derive(Debug)]
pub(crate) struct Facts {
    sender: mpsc::Sender<EventKind>,
    stop: Stop,
    told: Mutex<BTreeMap<&'static str, u32>>,
}

impl Facts {
    pub(crate) fn new(sender: mpsc::Sender<EventKind>, stop: Stop) -> Self {
        Self { sender, stop, told: Mutex::new(BTreeMap::new()) }
    }

    /// Tells a fact. Waits while the channel is full; once the gateway is ending, only what fits is told.
    pub(crate) async fn tell(&self, fact: EventKind) {
        let mut stop = self.stop.clone();
        let place = tokio::select! {
            biased;
            place = self.sender.reserve() => place.ok(),
            () = stop.asked() => self.sender.try_reserve().ok(),
        };
        if let Some(place) = place {
            place.send(fact);
        }
    }

    /// Tells a network decision; of each code the first [`DECISION_LIMIT`] and once that there are more.
    pub(crate) async fn decision(
        &self,
        code: &'static str,
        verdict: NetworkVerdict,
        target: &str,
        detail: &str,
    ) {
        let count = {
            let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            let count = told.entry(code).or_insert(0);
            *count = count.saturating_add(1);
            *count
        };
        if count <= DECISION_LIMIT {
            self.tell(EventKind::NetworkDecision {
                target: text::head(target, TARGET_LIMIT_BYTES),
                verdict,
                code: code.to_owned(),
                detail: text::head(detail, DETAIL_LIMIT_BYTES),
            })
            .await;
        } else if count == DECISION_LIMIT + 1 {
            self.tell(EventKind::Note {
                code: format!("more-{code}"),
                text: format!("only the first {DECISION_LIMIT} network decisions of this kind are recorded"),
            })
            .await;
        }
    }
}
