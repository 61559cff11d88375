//! The dispatcher: one loop owns all state of a running agent and handles one thing at a time.
//!
//! The order of the branches is the order of ranks: a cancel or a deadline that is there when a result is there too
//! comes first. Facts of the gateway come before the agent's words about them.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use stockade_core::{
    event::{EventKind, Source, ToolStatus},
    judge::{AgentExit, note_code},
    limits::{LimitId, LimitRecord},
    plan::LaunchPlan,
};
use stockade_fence::{Exited, Fence, FenceError, Notice, RoleId, Target};
use stockade_gateway::Activity;
use stockade_providers::{Progress, SessionLog};
use tokio::{
    io::Interest,
    net::UnixStream,
    sync::mpsc,
    time::{interval_at, sleep_until},
};

use crate::{
    clock::RunClock,
    fault,
    growth::{self, Growth, GrowthWatch},
    idle::{IdleWatch, TreeLook},
    limits::{Breach, LimitWatch},
    recorder::Recorder,
    request::StopRequest,
    stopping::{Step, Stopping},
    streams::{Read, Streams},
};

/// How often the process tree is looked at, at least: what is only watched is noticed this soon.
const LOOK_PERIOD: Duration = Duration::from_millis(250);
/// Looking takes at most one part in so many of the time.
const LOOK_SHARE: u32 = 4;
/// How often the session's own log is looked at.
const SESSION_LOG_PERIOD: Duration = Duration::from_millis(20);
/// Heartbeats come this often while the agent says nothing.
const HEARTBEAT_PERIOD: Duration = Duration::from_secs(10);
/// How often an observer may draw anew.
const TICK_PERIOD: Duration = Duration::from_secs(1);
/// How long output may still come after the agent's process and everything it left are gone.
const DRAIN_TIME: Duration = Duration::from_millis(250);
/// How long an agent may be waited for after KILL before it counts as stuck in the kernel.
const KILL_TIME: Duration = Duration::from_secs(5);

/// What a running agent consists of.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) role: RoleId,
    pub(crate) streams: Streams,
    pub(crate) session_log: Option<SessionLog>,
    pub(crate) activity: Arc<Activity>,
    pub(crate) limits: LimitWatch,
    pub(crate) growth: Option<GrowthWatch>,
}

/// How the agent ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watched {
    /// Its exit; `None`: it could not be ended in time.
    pub(crate) exit: Option<AgentExit>,
    /// The last signal that Stockade sent it.
    pub(crate) signal_sent: Option<String>,
    /// Most processes seen at once.
    pub(crate) peak_processes: Option<u64>,
    /// Most memory of the whole tree, in bytes.
    pub(crate) peak_memory: Option<u64>,
    /// Processes swept when the agent ended.
    pub(crate) swept: u64,
    /// Every limit, and what was measured of it.
    pub(crate) limits: Vec<LimitRecord>,
    /// Whether a process that was killed did not end in time.
    pub(crate) stuck: bool,
    /// The session's own log, relative to the home; `None`: there was none.
    pub(crate) session_log: Option<PathBuf>,
}

/// Why watching failed: the fence itself broke.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WatchError {
    /// The control socket.
    #[error("failed to watch the fence: {0}")]
    Fence(#[from] FenceError),
    /// The reactor.
    #[error("failed to watch the agent: {0}")]
    Io(#[from] std::io::Error),
}

struct Dispatcher<'d, 'r> {
    plan: &'d LaunchPlan,
    fence: &'d mut Fence,
    recorder: &'d mut Recorder<'r>,
    running: Running,
    idle: IdleWatch,
    stopping: Option<Stopping>,
    killed_at: Option<Instant>,
    linger_until: Option<Instant>,
    open_tools: HashSet<String>,
    wire_seen: u64,
    /// When the agent last printed anything.
    last_output: Instant,
    next_beat: Instant,
    watched: Watched,
    exited: bool,
}

/// Watches an agent until it has ended.
pub(crate) async fn watch(
    plan: &LaunchPlan,
    fence: &mut Fence,
    running: Running,
    recorder: &mut Recorder<'_>,
    facts: &mut mpsc::Receiver<EventKind>,
    stops: &mut mpsc::Receiver<StopRequest>,
    clock: RunClock,
) -> Result<Watched, WatchError> {
    let control = control(fence)?;
    let now = Instant::now();
    let deadline = clock.deadline(plan.limits.timeout_ms);
    let mut d = Dispatcher {
        plan,
        fence,
        recorder,
        running,
        idle: IdleWatch::new(
            plan.limits.idle_timeout_ms.map(Duration::from_millis),
            plan.idle_cpu_percent,
            now,
        ),
        stopping: None,
        killed_at: None,
        linger_until: None,
        open_tools: HashSet::new(),
        wire_seen: 0,
        last_output: now,
        next_beat: now + HEARTBEAT_PERIOD,
        watched: Watched::default(),
        exited: false,
    };
    let mut deadline_open = deadline;
    let look_period = d.idle.period().min(LOOK_PERIOD);
    let mut next_look = now + look_period;
    let mut logs = interval_at((now + SESSION_LOG_PERIOD).into(), SESSION_LOG_PERIOD);
    let mut ticks = interval_at((now + TICK_PERIOD).into(), TICK_PERIOD);
    let mut stops_open = true;
    let mut facts_open = true;
    // What came along with the answer to the start is in no socket any more: no readiness will announce it.
    d.notices()?;
    while !d.exited {
        let next_stop = d.stopping.as_ref().and_then(Stopping::next_at);
        let gone_at = d.killed_at.map(|at| at + KILL_TIME);
        tokio::select! {
            biased;
            stop = stops.recv(), if stops_open => match stop {
                Some(stop) => d.stop_requested(stop),
                None => stops_open = false,
            },
            () = until(deadline_open) => {
                deadline_open = None;
                d.deadline(clock);
            }
            fact = facts.recv(), if facts_open => match fact {
                Some(fact) => d.fact(fact),
                None => facts_open = false,
            },
            ready = control.readable() => {
                ready?;
                d.notices()?;
                // Forgets the readiness; what arrives from now on sets it again, what came before is looked at once more.
                drop(control.try_io(Interest::READABLE, || {
                    Err::<(), _>(std::io::Error::from(std::io::ErrorKind::WouldBlock))
                }));
                d.notices()?;
            }
            () = until(next_stop) => d.stop_step()?,
            () = until(gone_at) => {
                d.watched.stuck = true;
                break;
            }
            () = until(d.linger_until) => d.lingered(),
            () = until(Some(next_look)) => {
                let start = Instant::now();
                d.look()?;
                // Whoever answers has other work too: a look that takes long comes less often.
                next_look = Instant::now() + look_period.max(start.elapsed() * LOOK_SHARE);
            }
            () = until(Some(d.next_beat)) => d.beat(),
            _ = ticks.tick() => d.tick(),
            growth = growth::next(&mut d.running.growth) => d.grown(growth),
            read = d.running.streams.next() => d.read(read?),
            _ = logs.tick(), if d.running.session_log.is_some() => d.session_log(),
        }
        d.recorder.settle();
        d.after();
    }
    d.drain(facts).await;
    let Dispatcher { recorder, running, mut watched, stopping, .. } = d;
    if let Some(log) = &running.session_log {
        watched.session_log = log.found().map(Path::to_owned);
    }
    watched.limits = running.limits.records();
    watched.peak_processes = running.limits.peak(LimitId::Processes);
    watched.peak_memory = running.limits.peak(LimitId::Memory);
    watched.signal_sent = stopping.as_ref().and_then(Stopping::last_sent).map(str::to_owned);
    running.streams.finish(recorder);
    Ok(watched)
}

/// The control socket for the reactor, which only tells when there is something to read; the fence reads.
fn control(fence: &Fence) -> std::io::Result<UnixStream> {
    let socket = std::os::unix::net::UnixStream::from(fence.control().try_clone_to_owned()?);
    socket.set_nonblocking(true)?;
    UnixStream::from_std(socket)
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

impl Dispatcher<'_, '_> {
    fn note(&mut self, code: &str, text: impl Into<String>) {
        self.recorder.record(Source::Stockade, EventKind::Note { code: code.to_owned(), text: text.into() });
    }

    fn stop_requested(&mut self, stop: StopRequest) {
        let (why, how) = match stop {
            StopRequest::Cancel(why) => (why, None),
            StopRequest::Kill(why) => (why, Some(Stopping::at_once(Instant::now()))),
        };
        self.note(note_code::CANCEL_REQUESTED, format!("stopped by {why}"));
        if let Some(at_once) = how {
            self.begin_stop(at_once);
        }
    }

    fn deadline(&mut self, clock: RunClock) {
        if self.recorder.is_decided() {
            return;
        }
        let limit = self.plan.limits.timeout_ms.unwrap_or_default();
        self.recorder.record(
            Source::Stockade,
            EventKind::LimitReached {
                limit: "wall".to_owned(),
                value: format!("{limit} ms"),
                measured: format!("{} ms since the start", clock.elapsed_ms()),
            },
        );
    }

    fn fact(&mut self, kind: EventKind) {
        let of_the_model = matches!(kind, EventKind::ModelRequest { .. } | EventKind::ModelResponse { .. });
        self.idle.saw(if of_the_model { "model traffic" } else { "the network" }, Instant::now());
        let is_request = matches!(kind, EventKind::ModelRequest { .. });
        self.recorder.record(Source::Gateway, kind);
        if is_request {
            fault::point("first-request");
        }
    }

    fn notices(&mut self) -> Result<(), WatchError> {
        while let Some(notice) = self.fence.next_notice()? {
            match notice {
                Notice::Exited(exited) if exited.role == self.running.role => self.agent_exited(&exited),
                Notice::Exited(_) => {}
                Notice::Closed => {
                    // PID 1 is gone without an order, and the kernel has killed everything else in the fence.
                    self.exited = true;
                    self.watched.exit.get_or_insert(AgentExit {
                        code: None,
                        signal: Some(rustix::process::Signal::KILL.as_raw()),
                    });
                    self.memory_controller();
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn agent_exited(&mut self, exited: &Exited) {
        self.exited = true;
        self.watched.exit = Some(AgentExit { code: exited.code, signal: exited.signal });
        self.watched.swept = u64::from(exited.left_behind);
        self.watched.stuck = exited.survivors > 0;
        // It was there itself, together with what it left.
        self.running.limits.saw(LimitId::Processes, u64::from(exited.left_behind) + 1);
        self.running.limits.saw(LimitId::Memory, exited.max_rss_kib.saturating_mul(1024));
        self.memory_controller();
    }

    /// A limit was passed: the whole tree ends at once.
    fn breach(&mut self, breach: Option<Breach>) {
        let Some(Breach { id, value, measured }) = breach else { return };
        self.recorder
            .record(Source::Kernel, EventKind::LimitReached { limit: id.id().to_owned(), value, measured });
        if !self.exited {
            self.begin_stop(Stopping::at_once(Instant::now()));
        }
    }

    fn memory_controller(&mut self) {
        let reading = self.fence.group_memory();
        let breach = reading.and_then(|r| self.running.limits.memory_controller(r));
        self.breach(breach);
    }

    fn grown(&mut self, growth: Growth) {
        let limits = &mut self.running.limits;
        limits.saw(LimitId::Growth, growth.bytes);
        if limits.is_over(LimitId::Growth, growth.bytes) {
            let walked = growth.walked.as_millis();
            let measured =
                format!("{} bytes more on disk than at the start, walked in {walked} ms", growth.bytes);
            let breach = limits.pass(LimitId::Growth, measured);
            self.breach(breach);
        }
    }

    /// Takes what a look at the tree showed into the limits.
    fn usage(&mut self, processes: u64, resident: u64) -> Result<(), WatchError> {
        let limits = &mut self.running.limits;
        limits.saw(LimitId::Processes, processes);
        if limits.is_over(LimitId::Processes, processes) {
            let breach =
                limits.pass(LimitId::Processes, format!("{processes} processes in a look at the tree"));
            self.breach(breach);
            return Ok(());
        }
        if self.fence.group_memory().is_some() {
            self.memory_controller();
            return Ok(());
        }
        limits.saw(LimitId::Memory, resident);
        if !limits.is_over(LimitId::Memory, resident) {
            return Ok(());
        }
        // Shared pages were counted more than once, so that now it is measured exactly. Twice, because a process that is
        // just being made shares all of its maker's.
        let exact = self.fence.memory()?.min(self.fence.memory()?);
        self.notices()?;
        let limits = &mut self.running.limits;
        if limits.is_over(LimitId::Memory, exact) {
            let breach = limits.pass(
                LimitId::Memory,
                format!("{exact} bytes in {processes} processes (proportional, sampled)"),
            );
            self.breach(breach);
        }
        Ok(())
    }

    fn begin_stop(&mut self, stopping: Stopping) {
        self.note(note_code::STOPPED, "the agent is being stopped");
        self.stopping = Some(stopping);
    }

    fn stop_step(&mut self) -> Result<(), WatchError> {
        let Some(step) = self.stopping.as_mut().and_then(|s| s.due(Instant::now())) else { return Ok(()) };
        let result = match step {
            Step::Polite(signal) => self.fence.signal(Target::Role(self.running.role), signal.as_raw()),
            Step::KillAll => {
                self.killed_at = Some(Instant::now());
                self.fence.signal(Target::All, rustix::process::Signal::KILL.as_raw())
            }
        };
        self.notices()?;
        if let Err(e) = result {
            // The process may have ended in the same moment; the exit notice or the close tells.
            self.note("signal-refused", e.to_string());
        }
        Ok(())
    }

    fn lingered(&mut self) {
        self.linger_until = None;
        self.note(
            note_code::DID_NOT_EXIT,
            format!(
                "the agent did not exit within {} ms of its result and was stopped",
                self.plan.stop.linger_ms
            ),
        );
        let stopping = Stopping::polite(&self.plan.stop, Instant::now());
        self.begin_stop(stopping);
    }

    fn look(&mut self) -> Result<(), WatchError> {
        let (wire, now) = (
            self.running.activity.bytes_from_agent() + self.running.activity.bytes_from_endpoint(),
            Instant::now(),
        );
        if wire != self.wire_seen {
            self.wire_seen = wire;
            self.idle.saw("model traffic", now);
        }
        let stat = self.fence.stat()?;
        // The answer may have brought an exit notice along, which no readiness announces again.
        self.notices()?;
        if self.exited {
            return Ok(());
        }
        let resident = stat.processes.iter().map(|p| p.rss_kib.saturating_mul(1024)).sum();
        self.usage(u64::from(stat.total), resident)?;
        let cpu = stat.processes.iter().map(|p| p.cpu).sum::<Duration>() + stat.ended_cpu;
        let children = stat.processes.iter().filter(|p| p.role.is_none() && p.state != 'Z').count();
        // A stream may tell of a call only when it has ended; the session's log tells of its start.
        let logged = self.running.session_log.as_ref().map_or(0, SessionLog::tools_running);
        let open = self.open_tools.len().max(usize::try_from(logged).unwrap_or(0));
        let idle = self.idle.look(TreeLook { cpu, children }, open, now);
        if idle && !self.recorder.is_decided() {
            let quiet = self.idle.quiet_for(now);
            let limit = self.plan.limits.idle_timeout_ms.unwrap_or_default();
            self.recorder.record(
                Source::Kernel,
                EventKind::LimitReached {
                    limit: "idle".to_owned(),
                    value: format!("{limit} ms"),
                    measured: format!("last was {} {} ms ago", self.idle.last_what(), quiet.as_millis()),
                },
            );
        }
        Ok(())
    }

    fn tick(&mut self) {
        let silent = Instant::now().saturating_duration_since(self.last_output);
        self.recorder.tick(silent.as_secs(), self.idle.last_what());
    }

    /// Says that the agent is silent, for how long, and what moved meanwhile.
    fn beat(&mut self) {
        let now = Instant::now();
        let silent = now.saturating_duration_since(self.last_output);
        self.recorder.heartbeat(silent.as_secs(), self.idle.last_what());
        self.next_beat = now + HEARTBEAT_PERIOD;
    }

    fn read(&mut self, read: Read) {
        if !matches!(read, Read::Stdout(0) | Read::Stderr(0)) {
            let now = Instant::now();
            self.idle.saw("output", now);
            self.last_output = now;
            self.next_beat = now + HEARTBEAT_PERIOD;
        }
        let kinds = self.running.streams.take(read, self.recorder);
        self.agent_said(&kinds);
        let (stream, seen) = self.running.streams.most_written();
        self.running.limits.saw(LimitId::Output, seen);
        let breach = self.running.limits.output(stream, seen);
        self.breach(breach);
    }

    fn session_log(&mut self) {
        let Some(log) = &mut self.running.session_log else { return };
        let mut kinds = Vec::new();
        match log.poll(&mut kinds) {
            Ok(Progress::Absent | Progress::Still | Progress::Closed) => return,
            Ok(Progress::Grown(_)) => self.idle.saw("session log", Instant::now()),
            Err(e) => {
                self.watched.session_log = log.found().map(Path::to_owned);
                self.note("session-log", e.to_string());
                self.running.session_log = None;
                return;
            }
        }
        for kind in &kinds {
            self.recorder.record(Source::Agent, kind.clone());
        }
        self.agent_said(&kinds);
    }

    fn agent_said(&mut self, kinds: &[EventKind]) {
        for kind in kinds {
            match kind {
                EventKind::ToolCall { id, .. } => {
                    if self.open_tools.len() < 1000 {
                        self.open_tools.insert(id.clone());
                    }
                    fault::point("tool-running");
                }
                EventKind::ToolUpdate { id, status, .. } if *status != ToolStatus::Running => {
                    self.open_tools.remove(id);
                }
                EventKind::TurnEnded { .. } => fault::point("turn-ended"),
                _ => {}
            }
        }
    }

    /// What follows from what was just handled.
    fn after(&mut self) {
        if !self.recorder.is_decided() || self.exited {
            return;
        }
        if self.recorder.has_result() {
            if self.linger_until.is_none() && self.stopping.is_none() {
                self.linger_until = Some(Instant::now() + Duration::from_millis(self.plan.stop.linger_ms));
            }
        } else if self.stopping.is_none() {
            let stopping = Stopping::polite(&self.plan.stop, Instant::now());
            self.begin_stop(stopping);
        }
    }

    /// Everything that could write is gone: what is still in the pipes is all there will be.
    async fn drain(&mut self, facts: &mut mpsc::Receiver<EventKind>) {
        while let Ok(fact) = facts.try_recv() {
            self.fact(fact);
        }
        self.running.streams.hurry();
        let until = Instant::now() + DRAIN_TIME;
        while !self.running.streams.are_closed() {
            match tokio::time::timeout_at(until.into(), self.running.streams.next()).await {
                Ok(Ok(read)) => self.read(read),
                Ok(Err(_)) | Err(_) => break,
            }
        }
        self.session_log();
        if let Some(words) = self.running.streams.last_words() {
            self.recorder.record(Source::Agent, words);
        }
        self.recorder.settle();
        if let Some(exit) = self.watched.exit {
            let left_behind = u32::try_from(self.watched.swept).unwrap_or(u32::MAX);
            self.recorder.record(
                Source::Kernel,
                EventKind::AgentExited { code: exit.code, signal: exit.signal, left_behind },
            );
        }
    }
}
