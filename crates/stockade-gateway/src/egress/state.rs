//! What all connections of the egress listener share.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use stockade_core::{
    event::{NetworkVerdict, network_code},
    network::Destination,
};

use super::policy::{Allowed, TurnedAway};
use crate::{resolve::Lookups, shared::Shared};

/// What went through the egress listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EgressTotals {
    /// Connections and plain requests that were let through, by destination. As many entries as the list has at most.
    pub passed: BTreeMap<String, u64>,
    /// What was turned away, by code.
    pub turned_away: BTreeMap<String, u64>,
    /// Bytes from the agent that were passed on.
    pub bytes_sent: u64,
    /// Bytes for the agent that were passed on.
    pub bytes_received: u64,
}

/// What all connections of the egress listener share.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) shared: Arc<Shared>,
    pub(super) allowed: Allowed,
    pub(super) lookups: Lookups,
    counted: Mutex<Counted>,
    sent: AtomicU64,
    received: AtomicU64,
}

#[derive(Debug, Default)]
struct Counted {
    passed: BTreeMap<String, u64>,
    turned_away: BTreeMap<String, u64>,
}

/// In which direction bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// From the agent.
    Out,
    /// To the agent.
    In,
}

impl State {
    pub(crate) fn new(shared: Arc<Shared>, listed: Vec<Destination>) -> Self {
        Self {
            shared,
            allowed: Allowed::new(listed),
            lookups: Lookups::new(),
            counted: Mutex::default(),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
        }
    }

    /// Tells and counts something that was let through.
    pub(super) async fn pass(&self, to: &Destination, detail: &str) {
        let target = to.to_string();
        self.count(|counted| &mut counted.passed, &target);
        self.shared.facts.decision(network_code::EGRESS, NetworkVerdict::Allowed, &target, detail).await;
    }

    /// Tells and counts something that was turned away. `target` is what was asked for, as far as it could be read.
    pub(super) async fn turn_away(&self, target: &str, why: &TurnedAway) {
        self.count(|counted| &mut counted.turned_away, why.code);
        let detail = match &why.detail {
            Some(more) => format!("{}: {more}", why.message),
            None => why.message.clone(),
        };
        self.shared.facts.decision(why.code, NetworkVerdict::Refused, target, &detail).await;
    }

    fn count(&self, which: impl FnOnce(&mut Counted) -> &mut BTreeMap<String, u64>, key: &str) {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let count = which(&mut counted).entry(key.to_owned()).or_default();
        *count = count.saturating_add(1);
    }

    /// Counts bytes that were passed on.
    pub(super) fn carried(&self, direction: Direction, bytes: usize) {
        let activity = &self.shared.activity;
        match direction {
            Direction::Out => {
                self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
                activity.heard_agent(bytes);
            }
            Direction::In => {
                self.received.fetch_add(bytes as u64, Ordering::Relaxed);
                activity.heard_endpoint(bytes);
            }
        }
    }

    pub(crate) fn totals(&self) -> EgressTotals {
        let counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        EgressTotals {
            passed: counted.passed.clone(),
            turned_away: counted.turned_away.clone(),
            bytes_sent: self.sent.load(Ordering::Relaxed),
            bytes_received: self.received.load(Ordering::Relaxed),
        }
    }
}
