//! Turns facts into events: numbers them, gives them their times, and hands each to the judge, the run directory and
//! whoever watches.

use stockade_core::{
    event::{EVENT_VERSION, Event, EventKind, Source},
    judge::Judge,
};
use stockade_journal::RunDir;

use crate::clock::{RunClock, wall_time};

/// Whoever watches a run as it goes.
pub trait Observer {
    /// An event happened.
    fn event(&mut self, event: &Event);

    /// The agent has said nothing for `silent_s` seconds; `what` moved last all the same.
    fn heartbeat(&mut self, elapsed_s: u64, silent_s: u64, what: &str);

    /// The agent runs: comes each second, for what is drawn anew, with what a heartbeat says.
    fn tick(&mut self, _elapsed_s: u64, _silent_s: u64, _what: &str) {}
}

/// An observer that watches nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unwatched;

impl Observer for Unwatched {
    fn event(&mut self, _event: &Event) {}

    fn heartbeat(&mut self, _elapsed_s: u64, _silent_s: u64, _what: &str) {}
}

/// The recorder of one run.
pub(crate) struct Recorder<'r> {
    clock: RunClock,
    seq: u64,
    run: &'r mut RunDir,
    observer: &'r mut dyn Observer,
    judge: Option<Judge>,
    /// The first event that could not be written.
    storage: Option<stockade_journal::JournalError>,
}

impl<'r> Recorder<'r> {
    pub(crate) fn new(clock: RunClock, run: &'r mut RunDir, observer: &'r mut dyn Observer) -> Self {
        Self { clock, seq: 0, run, observer, judge: None, storage: None }
    }

    /// From now on events are judged.
    pub(crate) fn judge_by(&mut self, judge: Judge) {
        self.judge = Some(judge);
    }

    /// Records a fact.
    pub(crate) fn record(&mut self, source: Source, kind: EventKind) {
        let event = Event {
            v: EVENT_VERSION,
            seq: self.seq,
            time: wall_time(),
            elapsed_ms: self.clock.elapsed_ms(),
            source,
            event: kind,
        };
        self.seq += 1;
        if let Some(judge) = &mut self.judge {
            judge.observe(&event);
        }
        if let Err(e) = self.run.append_event(&event) {
            self.storage_failed(e);
        }
        self.observer.event(&event);
    }

    /// Keeps the first failure to write a record. The run goes on: an answer that was paid for is worth more than its
    /// log, and the receipt says what is missing.
    pub(crate) fn storage_failed(&mut self, e: stockade_journal::JournalError) {
        self.storage.get_or_insert(e);
    }

    /// Ends a batch of facts.
    pub(crate) fn settle(&mut self) {
        if let Some(judge) = &mut self.judge {
            judge.settle();
        }
    }

    pub(crate) fn is_decided(&self) -> bool {
        self.judge.as_ref().is_some_and(Judge::is_decided)
    }

    pub(crate) fn has_result(&self) -> bool {
        self.judge.as_ref().is_some_and(Judge::has_result)
    }

    pub(crate) fn tick(&mut self, silent_s: u64, what: &str) {
        self.observer.tick(self.clock.elapsed().as_secs(), silent_s, what);
    }

    pub(crate) fn heartbeat(&mut self, silent_s: u64, what: &str) {
        self.observer.heartbeat(self.clock.elapsed().as_secs(), silent_s, what);
    }

    /// The run directory.
    pub(crate) fn run(&mut self) -> &mut RunDir {
        self.run
    }

    /// Takes the judge, the run directory, and the first storage error.
    pub(crate) fn into_parts(
        self,
    ) -> (Option<Judge>, &'r mut RunDir, Option<stockade_journal::JournalError>) {
        (self.judge, self.run, self.storage)
    }
}
