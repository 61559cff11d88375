//! One lane of a rehearsal, played from beginning to end.

use std::{
    fs,
    future::Future,
    path::Path,
    pin::pin,
    time::{Duration, Instant},
};

use stockade_core::{
    event::{Event, EventKind},
    mode::{AccessMode, NetworkPolicy},
    plan::LaunchPlan,
    receipt::Receipt,
};
use stockade_fence::OwnBinary;
use stockade_journal::run_dir::file;
use stockade_lane::{LaneRequest, Observer, PromptSource, StopRequest};
use stockade_model::LogLine;
use tokio::sync::mpsc;

use crate::{
    error::RehearsalError,
    host::{self, Marks},
    model_process::ModelProcess,
    scratch::Scratch,
    script::CANCEL_HOLD,
    wire::Wire,
};

/// What the agent is told; what it does is the scenario's.
const PROMPT: &[u8] = b"This is a rehearsal. Do what the model says.";
/// A rehearsal's lane takes a second; one that takes longer than this hangs.
const LANE_LIMIT: Duration = Duration::from_secs(60);
/// How often the model's log is looked at.
const LOG_PERIOD: Duration = Duration::from_millis(10);
/// The most events that are kept of a lane.
const MAX_EVENTS: usize = 1000;
/// How many stops may wait for the lane.
const STOP_QUEUE: usize = 4;

/// A lane that has been played.
#[derive(Debug)]
pub(crate) struct Played {
    pub(crate) receipt: Receipt,
    /// The plan, as the run recorded it; `None`: none was made.
    pub(crate) plan: Option<LaunchPlan>,
    /// Events that the checks look at.
    pub(crate) events: Vec<Event>,
    pub(crate) wire: Wire,
    /// The cancel, where it came to that.
    pub(crate) cancel: Option<Cancelled>,
    /// Whether the caller of the rehearsal stopped it.
    pub(crate) stopped: bool,
}

impl Played {
    /// The tools that the plan lets the conversation offer.
    pub(crate) fn planned_tools(&self) -> Vec<&[String]> {
        let classes = self.plan.iter().flat_map(|plan| &plan.wire.classes);
        // The first class is the conversation itself; where its tools depend on the model it is there again.
        let name = classes.clone().next().map(|class| class.name.as_str());
        classes
            .filter(|class| Some(class.name.as_str()) == name)
            .map(|class| class.tools.as_slice())
            .collect()
    }
}

/// A cancel in the middle of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cancelled {
    /// How many of the run's processes were seen on the host just before.
    pub(crate) alive: usize,
    /// Whether the process that a tool had left behind was among them.
    pub(crate) left_behind: bool,
    /// From the cancel until the lane had ended.
    pub(crate) elapsed: Duration,
}

/// The lane of a mode in a scratch folder.
pub(crate) fn lane(
    template: &LaneRequest,
    mode: AccessMode,
    scratch: &Scratch,
    model: &ModelProcess,
    name: String,
) -> LaneRequest {
    let limit = u64::try_from(LANE_LIMIT.as_millis()).unwrap_or(u64::MAX);
    let mut lane = template.clone();
    lane.mode = mode;
    lane.cwd = scratch.workspace();
    lane.in_place = false;
    lane.worktree = None;
    lane.include_dirty = false;
    lane.git_author = None;
    lane.prompt = PromptSource::Given(PROMPT.to_vec());
    lane.instructions = None;
    lane.output = None;
    lane.receipt = None;
    lane.endpoint = Some(model.url().to_owned());
    lane.key_env = None;
    lane.ca = None;
    lane.network = NetworkPolicy::Model;
    lane.allow = Vec::new();
    lane.limits.timeout_ms = Some(lane.limits.timeout_ms.map_or(limit, |given| given.min(limit)));
    lane.rehearsal = Some(name);
    lane.own_binary = OwnBinary::Absent;
    lane
}

/// Plays a lane to its own end.
pub(crate) async fn to_the_end(
    lane: &LaneRequest,
    model: &ModelProcess,
    stops: &mut mpsc::Receiver<StopRequest>,
) -> Result<Played, RehearsalError> {
    play(lane, model, stops, std::future::pending()).await
}

/// Plays a lane until its model holds, and cancels it then. `child` is in the command line of the process that a tool
/// left behind.
pub(crate) async fn until_cancelled(
    lane: &LaneRequest,
    model: &ModelProcess,
    stops: &mut mpsc::Receiver<StopRequest>,
    marks: &Marks,
    child: &str,
) -> Result<Played, RehearsalError> {
    play(lane, model, stops, held(model, marks, child)).await
}

/// What was seen on the host while the model held.
struct Cue {
    alive: usize,
    left_behind: bool,
}

/// Waits for the model to hold. The lane's own deadline bounds this.
async fn held(model: &ModelProcess, marks: &Marks, child: &str) -> Cue {
    let holds = |line: &LogLine| matches!(line, LogLine::Held(name) if name == CANCEL_HOLD);
    // A log that cannot be read now is looked at again, and read for good after the lane.
    while !model.log().is_ok_and(|log| log.iter().any(holds)) {
        tokio::time::sleep(LOG_PERIOD).await;
    }
    // A failed look finds nothing, which the check reports.
    let found = host::look(marks).map(|look| look.found).unwrap_or_default();
    Cue { alive: found.len(), left_behind: found.iter().any(|process| process.command == child) }
}

async fn play(
    lane: &LaneRequest,
    model: &ModelProcess,
    stops: &mut mpsc::Receiver<StopRequest>,
    cue: impl Future<Output = Cue>,
) -> Result<Played, RehearsalError> {
    let mut watcher = Watcher::default();
    let (forward, mut forwarded) = mpsc::channel(STOP_QUEUE);
    let mut cue = pin!(cue);
    let mut cued: Option<(Cue, Instant)> = None;
    let (mut stopped, mut open) = (false, true);
    let ended = {
        let mut run = Box::pin(stockade_lane::run(lane, &mut watcher, &mut forwarded));
        loop {
            tokio::select! {
                biased;
                ended = &mut run => break ended,
                stop = stops.recv(), if open => match stop {
                    Some(stop) => {
                        stopped = true;
                        // A full queue holds earlier stops, which do the same.
                        let _ = forward.try_send(stop);
                    }
                    None => open = false,
                },
                seen = &mut cue, if cued.is_none() => {
                    cued = Some((seen, Instant::now()));
                    // The lane has just been running, so its end is open, and the queue is not full of one stop.
                    let _ = forward.try_send(StopRequest::Cancel("the rehearsal"));
                }
            }
        }
    };
    let cancel = cued.map(|(cue, at)| Cancelled {
        alive: cue.alive,
        left_behind: cue.left_behind,
        elapsed: at.elapsed(),
    });
    let outcome = ended.map_err(|refusal| RehearsalError::Order { refusal })?;
    let plan = recorded_plan(Path::new(&outcome.receipt.run_directory));
    let wire = Wire::new(model.log()?);
    Ok(Played { receipt: outcome.receipt, plan, events: watcher.events, wire, cancel, stopped })
}

fn recorded_plan(run_directory: &Path) -> Option<LaunchPlan> {
    let text = fs::read(run_directory.join(file::PLAN)).ok()?;
    serde_json::from_slice(&text).ok()
}

/// Keeps the events that the checks look at.
#[derive(Debug, Default)]
struct Watcher {
    events: Vec<Event>,
}

impl Observer for Watcher {
    fn event(&mut self, event: &Event) {
        let wanted = matches!(
            event.event,
            EventKind::FenceProven { .. }
                | EventKind::AgentStarted { .. }
                | EventKind::PermissionAsked { .. }
                | EventKind::PermissionDecided { .. }
                | EventKind::TurnEnded { .. }
        );
        if wanted && self.events.len() < MAX_EVENTS {
            self.events.push(event.clone());
        }
    }

    fn heartbeat(&mut self, _elapsed_s: u64, _silent_s: u64, _what: &str) {}
}
