//! The progress file: one small snapshot of how a lane stands, replaced as a whole while the path is still ours.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use stockade_core::event::{Event, EventKind};
use stockade_journal::Reservation;
use stockade_lane::{Observer, PREFLIGHT_ASKED_AGAIN, PREFLIGHT_WAITS, wall_time};

use super::start_time;

/// What such a file calls itself.
pub(super) const KIND: &str = "pstack-runner-progress";
/// How often bytes alone are worth a snapshot.
const ACTIVITY_PERIOD: Duration = Duration::from_secs(5);

/// How a lane stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Snapshot {
    pub(super) kind: String,
    pub(super) schema_version: u32,
    pub(super) seq: u64,
    pub(super) updated_at: String,
    pub(super) phase: String,
    pub(super) attempt_id: String,
    pub(super) provider: String,
    pub(super) runner: Runner,
    /// Always null: the agent runs in a pid namespace that ends with the runner, so that its pid is nobody's business.
    pub(super) child: Option<Child>,
    /// Since when the second try of a preflight is waited for; null: it is not. No model is asked twice.
    pub(super) retry_wait: Option<String>,
    pub(super) activity: Option<Activity>,
    pub(super) terminal: Option<Terminal>,
    pub(super) receipt_ref: Option<FileRef>,
}

/// The process that writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Runner {
    pub(super) pid: u32,
    pub(super) started_at: String,
    pub(super) start_token: Option<String>,
}

/// A process that the tool starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Child {
    pub(super) pid: u32,
}

/// Bytes the agent wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Activity {
    pub(super) stdout_bytes: u64,
    pub(super) stderr_bytes: u64,
    pub(super) last_activity_at: Option<String>,
}

/// The end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Terminal {
    pub(super) at: String,
    pub(super) receipt_written: bool,
}

/// Which file the reserved receipt is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileRef {
    pub(super) dev: u64,
    pub(super) ino: u64,
}

/// Writes the snapshots of one lane. Where the file is no longer the reserved one it goes silent.
#[derive(Debug)]
pub(super) struct Progress {
    reservation: Option<Reservation>,
    snapshot: Snapshot,
    /// The run directories of the state, and the one of this run.
    runs: PathBuf,
    run: Option<PathBuf>,
    written: Option<Instant>,
}

impl Progress {
    /// `runs` is where run directories are; `receipt` is the reserved receipt's device and inode.
    pub(super) fn new(
        provider: &str,
        started_at: &str,
        reservation: Option<Reservation>,
        receipt: (u64, u64),
        runs: PathBuf,
    ) -> Self {
        let pid = std::process::id();
        let snapshot = Snapshot {
            kind: KIND.to_owned(),
            schema_version: 1,
            seq: 0,
            updated_at: String::new(),
            phase: "setup".to_owned(),
            attempt_id: uuid::Uuid::new_v4().to_string(),
            provider: provider.to_owned(),
            runner: Runner { pid, started_at: started_at.to_owned(), start_token: start_time::of(pid) },
            child: None,
            retry_wait: None,
            activity: None,
            terminal: None,
            receipt_ref: Some(FileRef { dev: receipt.0, ino: receipt.1 }),
        };
        Self { reservation, snapshot, runs, run: None, written: None }
    }

    /// Tells a phase, where it is a new one.
    pub(super) fn phase(&mut self, phase: &str) {
        if self.written.is_some() && self.snapshot.phase == phase {
            return;
        }
        phase.clone_into(&mut self.snapshot.phase);
        self.write();
    }

    /// Tells the end.
    pub(super) fn end(&mut self, receipt_written: bool) {
        self.snapshot.retry_wait = None;
        self.snapshot.terminal = Some(Terminal { at: wall_time(), receipt_written });
        self.phase("terminal");
    }

    /// Gives the file back, for an order that turned out to be wrong.
    pub(super) fn into_reservation(self) -> Option<Reservation> {
        self.reservation
    }

    fn write(&mut self) {
        let Some(reservation) = &mut self.reservation else { return };
        self.written = Some(Instant::now());
        self.snapshot.seq += 1;
        self.snapshot.updated_at = wall_time();
        let mut bytes = serde_json::to_vec(&self.snapshot).unwrap_or_default();
        bytes.push(b'\n');
        if reservation.place(&bytes).is_err() {
            // Somebody else's file, or no room: a lane does not fail for want of a reader.
            self.reservation = None;
        }
    }

    fn moved(&mut self) {
        if self.written.is_some_and(|at| at.elapsed() < ACTIVITY_PERIOD) {
            return;
        }
        let Some(run) = &self.run else { return };
        let size = |name: &str| std::fs::metadata(run.join(name)).map_or(0, |m| m.len());
        self.snapshot.activity = Some(Activity {
            stdout_bytes: size("stdout"),
            stderr_bytes: size("stderr"),
            last_activity_at: Some(wall_time()),
        });
        self.write();
    }
}

impl Observer for Progress {
    fn event(&mut self, event: &Event) {
        match &event.event {
            EventKind::RunStarted { run, .. } => self.run = Some(self.runs.join(Path::new(run))),
            EventKind::Note { code, .. } if code == PREFLIGHT_WAITS => {
                self.snapshot.retry_wait = Some(wall_time());
                self.phase("preflight-retry-wait");
            }
            EventKind::Note { code, .. } if code == PREFLIGHT_ASKED_AGAIN => {
                self.snapshot.retry_wait = None;
                self.phase("preflight");
            }
            EventKind::AgentStarted { .. } => {
                self.snapshot.activity = Some(Activity::default());
                self.phase("workload-running");
            }
            EventKind::AgentExited { .. } => self.phase("workload-draining"),
            EventKind::TreeEnded { .. } => self.phase("postprocess"),
            _ => self.moved(),
        }
    }

    fn heartbeat(&mut self, _elapsed_s: u64, _silent_s: u64, _what: &str) {}
}
