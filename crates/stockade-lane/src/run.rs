//! One lane from request to receipt.

use std::{
    panic::AssertUnwindSafe,
    path::{Path, PathBuf},
    task::Poll,
    time::Duration,
};

use secrecy::SecretString;
use stockade_core::{
    changes::Changes,
    event::{EventKind, Source},
    judge::Judge,
    limits::{LimitBy, LimitId},
    order::Pin,
    plan::{LaunchPlan, MountSource, plan, rungs_to_try},
    receipt::Receipt,
    status::{Boundary, Cause, Refusal, Status},
    survey::Survey,
};
use stockade_fence::{
    Role, SpawnLimits, SpawnRequest, StartedHelper, TreeEnd, stdio,
    survey::{Extent, Measuring},
};
use stockade_gateway::{Credential, Egress, Gateway, ModelPolicy, Upstream};
use stockade_journal::{
    Residue, RunDir, State, Stream, walk,
    workspace_lock::{WorkspaceLock, Writer},
};
use stockade_providers::SessionLog;
use tokio::sync::mpsc;

use crate::{
    admit::{self, Admitted},
    clock::{RunClock, wall_time},
    conclude::{self, Facts, Paths},
    fault,
    git::Stage,
    growth::GrowthWatch,
    home::PrivateHome,
    limits::LimitWatch,
    listener::HostListener,
    pin, place, preflight, question,
    recorder::{Observer, Recorder},
    request::{LaneRequest, StopRequest},
    reserved::Reserved,
    sandbox_probe, settings, storage,
    streams::{self, Streams},
    watch::{self, Running, Watched},
};

/// How many facts of the gateway may wait for the dispatcher.
const FACT_QUEUE: usize = 256;
/// How long the tree may take to be gone after the fence was told to close.
const CLOSE_TIME: Duration = Duration::from_secs(10);
/// The same where something that was killed has not ended in five seconds.
const STUCK_CLOSE_TIME: Duration = Duration::from_secs(1);

/// How a lane ended.
#[derive(Clone, Debug)]
pub struct LaneOutcome {
    /// The receipt, as written.
    pub receipt: Receipt,
    /// The answer, whole or partial.
    pub answer: Option<String>,
    /// The file or folder that a refusal is about.
    pub path: Option<PathBuf>,
}

/// Runs one lane. `Err` is a usage error: nothing was created.
pub async fn run(
    request: &LaneRequest,
    observer: &mut dyn Observer,
    stops: &mut mpsc::Receiver<StopRequest>,
) -> Result<LaneOutcome, Refusal> {
    let clock = RunClock::start();
    let started_at = wall_time();
    let id = uuid::Uuid::now_v7().to_string();
    let listener = HostListener::for_policy(request.network)?;
    // What takes the host longest goes on beside the admission: the trial of the best rung, and the start of the helper.
    let measuring = admit::survey(request, Extent::FirstThatStands);
    let helper = place::start_helper();
    let mut admitted = admit::admit(request, &id, listener.order.clone(), &measuring)?;
    // A file that does not exist is a usage error, and those are known before anything is created.
    let named =
        request.executable.as_deref().map(|e| pin::verify(&request.state_root, &request.provider, Some(e)));
    if let Some(Err(refusal)) = &named
        && refusal.status.is_none()
    {
        return Err(refusal.clone());
    }
    let state = State::create(&request.state_root).map_err(|e| storage::refusal(&e))?;
    let launcher = stockade_journal::launcher_record().map_err(|e| storage::refusal(&e))?;
    let mut run = state.create_run(&id, &launcher).map_err(|e| storage::refusal(&e))?;
    let paths = Paths::new(&id, run.path(), started_at, launcher);
    let reserved = match Reserved::take(request, &admitted, &paths, &run) {
        Ok(reserved) => reserved,
        Err(refusal) => {
            // Nothing is left of an order that was never accepted. A failure to remove it leaves a folder for `gc`.
            drop(run.discard());
            return Err(refusal);
        }
    };
    fault::point("reserved");
    let mut recorder = Recorder::new(clock, &mut run, observer);
    recorder.record(
        Source::Stockade,
        EventKind::RunStarted { run: id, version: env!("CARGO_PKG_VERSION").to_owned() },
    );
    let mut facts = Facts::default();
    let own = reserved.paths();
    let verdict = caught(carry_out(
        request,
        &mut admitted,
        Ready { named, listener, measuring, helper },
        &state,
        &mut recorder,
        stops,
        clock,
        &mut facts,
    ))
    .await;
    // The caller's own files may lie in a read-only workspace: they are no change of the agent's.
    let workspace = &admitted.order.workspace.path;
    facts.changes.files.retain(|f| !own.contains(&workspace.join(&f.path)));
    Ok(conclude::conclude(request, &admitted, &paths, reserved, recorder, &facts, verdict, clock))
}

/// The one place where a panic is caught: a defect of Stockade ends the run as `launcher-failed`, with its receipt.
/// Dropping the stages on the way has ended the fence.
async fn caught(stages: impl Future<Output = Result<(), Refusal>>) -> Result<(), Refusal> {
    let mut stages = Box::pin(stages);
    std::future::poll_fn(|context| {
        let polled = std::panic::catch_unwind(AssertUnwindSafe(|| stages.as_mut().poll(context)));
        polled.unwrap_or_else(|panic| {
            let text = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("no message");
            Poll::Ready(Err(Refusal::new(
                Status::LauncherFailed,
                Cause::new("panic", Boundary::Fence, "panic", format!("a defect of Stockade: {text}"))
                    .with_remedy("report it with the run directory"),
            )))
        })
    })
    .await
}

/// What was begun before the order was accepted.
struct Ready {
    /// The executable that the caller named, looked at.
    named: Option<Result<Pin, Refusal>>,
    listener: HostListener,
    measuring: Measuring,
    helper: Result<StartedHelper, Refusal>,
}

/// Everything between the reservation and the ending. What is learnt on the way is kept in `facts`, whatever happens.
#[expect(
    clippy::too_many_arguments,
    reason = "the stages of a run in one place; each argument is one of its parties"
)]
async fn carry_out(
    request: &LaneRequest,
    admitted: &mut Admitted,
    ready: Ready,
    state: &State,
    recorder: &mut Recorder<'_>,
    stops: &mut mpsc::Receiver<StopRequest>,
    clock: RunClock,
    facts: &mut Facts,
) -> Result<(), Refusal> {
    let Ready { named, listener, measuring, helper } = ready;
    let pin = named.unwrap_or_else(|| pin::verify(state.root(), &request.provider, None))?;
    facts.pin = Some(pin.clone());
    pin::require_listed(&pin, request.only_listed_pins.as_deref())?;
    fault::point("verified");
    let survey = measuring.finish(&rungs_to_try(&admitted.order, &admitted.profile.profile));
    facts.survey = Some(survey.clone());
    fault::point("surveyed");
    let plan = plan(&admitted.order, &pin, &survey, &admitted.profile)?;
    let text = serde_json::to_vec_pretty(&plan).unwrap_or_default();
    let sha256 = recorder.run().write_plan(&text).map_err(|e| storage::refusal(&e))?;
    recorder.record(Source::Stockade, EventKind::PlanMade { rung: plan.rung, sha256 });
    facts.plan = Some(plan.clone());
    fault::point("planned");
    let _writer = only_writer(state, &plan)?;
    let begun = (helper?, listener);
    let stage = match &admitted.served {
        Some(served) => {
            Box::pin(Stage::make(state, served, &plan, &survey, stops, &mut admitted.notes)).await?
        }
        None => None,
    };
    let git = stage.as_ref().map(Stage::paths);
    let made = plan.mounts.iter().any(|m| m.source == MountSource::MadeWorktree);
    let written = git.filter(|_| made).map_or(plan.cwd.as_path(), |git| git.tree).to_owned();
    let residue = Residue::look_for(&written, &plan.provider_sandbox.residue);
    let ended = match settings::check(&written, &admitted.profile.profile) {
        Ok(()) => {
            with_home(request, admitted, &plan, &survey, git, begun, state, recorder, stops, clock, facts)
                .await
        }
        Err(refusal) => Err(refusal),
    };
    swept(recorder, &residue, &written);
    match stage {
        Some(stage) if facts.process_started => {
            if let Some(exported) = Box::pin(stage.finish(&plan, &survey, stops)).await {
                for (code, text) in &exported.notes {
                    note(recorder, code, text.clone());
                }
                facts.changes.clone_from(&exported.changes);
                facts.exported = Some(exported);
            }
        }
        Some(stage) => stage.abandon(),
        None => {}
    }
    if facts.exported.is_none() {
        match after(admitted) {
            Ok(changes) => facts.changes = changes,
            Err(e) => note(recorder, "workspace-not-walked", e.to_string()),
        }
    }
    ended
}

/// Removes what a sandbox of the provider's left among the files that the agent wrote.
fn swept(recorder: &mut Recorder<'_>, residue: &Residue, written: &Path) {
    match residue.remove(written) {
        Ok(removed) if removed.is_empty() => {}
        Ok(removed) => {
            let names: Vec<_> = removed.iter().map(|path| format!("`{}`", path.display())).collect();
            let text = format!(
                "removed what the provider's own sandbox left in the workspace: {}",
                names.join(", ")
            );
            note(recorder, "sandbox-residue", text);
        }
        Err(e) => {
            let text = format!("what the provider's own sandbox left in the workspace was not removed: {e}");
            note(recorder, "sandbox-residue-left", text);
        }
    }
}

/// Takes the lock of a folder whose own files are written.
fn only_writer(state: &State, plan: &LaunchPlan) -> Result<Option<WorkspaceLock>, Refusal> {
    let own = plan.mounts.iter().any(|m| m.source == MountSource::Workspace && m.writable);
    if !own {
        return Ok(None);
    }
    match WorkspaceLock::take(state, &plan.cwd, &plan.session).map_err(|e| storage::refusal(&e))? {
        Writer::Us(lock) => Ok(Some(lock)),
        Writer::Other(run) => Err(Refusal::new(
            Status::WorkspaceRefused,
            Cause::new(
                "workspace-in-use",
                Boundary::Workspace,
                "flock",
                format!("the run {run} writes in `{}`", plan.cwd.display()),
            )
            .with_evidence(format!("run {run}"))
            .with_remedy("wait for its end, stop it, or work in another folder"),
        )),
    }
}

/// Everything between the private home and its end.
#[expect(
    clippy::too_many_arguments,
    reason = "the stages of a run in one place; each argument is one of its parties"
)]
async fn with_home(
    request: &LaneRequest,
    admitted: &Admitted,
    plan: &LaunchPlan,
    survey: &Survey,
    git: Option<place::GitPaths<'_>>,
    (helper, listener): (StartedHelper, HostListener),
    state: &State,
    recorder: &mut Recorder<'_>,
    stops: &mut mpsc::Receiver<StopRequest>,
    clock: RunClock,
    facts: &mut Facts,
) -> Result<(), Refusal> {
    let home = PrivateHome::stage(state, plan, &admitted.prompt, admitted.authorities.as_deref())?;
    recorder.record(
        Source::Stockade,
        EventKind::PromptQueued {
            bytes: admitted.order.prompt.bytes,
            sha256: admitted.order.prompt.sha256.clone(),
        },
    );
    fault::point("staged");
    // On the heap: it is by far the largest stage.
    let ended = Box::pin(in_fence(
        request, admitted, plan, survey, &home, git, helper, listener, recorder, stops, clock, facts,
    ))
    .await;
    if let Some(log) = facts.watched.as_ref().and_then(|w| w.session_log.as_ref())
        && let Err(e) =
            recorder.run().keep_session_events(home.path(), log, stockade_providers::LOG_LIMIT_BYTES)
        && e.kind() != stockade_journal::ErrorKind::NotFound
    {
        note(recorder, "session-log", format!("the session's log was not kept: {e}"));
    }
    if let Err(e) = home.remove() {
        note(recorder, "home-left", format!("the private home was not removed: {e}; `stockade gc` will"));
    }
    ended
}

fn note(recorder: &mut Recorder<'_>, code: &str, text: String) {
    recorder.record(Source::Stockade, EventKind::Note { code: code.to_owned(), text });
}

fn after(admitted: &Admitted) -> Result<Changes, stockade_journal::JournalError> {
    let Some(before) = &admitted.before else { return Ok(Changes::default()) };
    let after = walk::Snapshot::take(&admitted.order.workspace.path, &walk::Bounds::default())?;
    Ok(walk::Snapshot::changes(before, &after))
}

#[expect(
    clippy::too_many_arguments,
    reason = "the stages of a run in one place; each argument is one of its parties"
)]
async fn in_fence(
    request: &LaneRequest,
    admitted: &Admitted,
    plan: &LaunchPlan,
    survey: &Survey,
    home: &PrivateHome,
    git: Option<place::GitPaths<'_>>,
    helper: StartedHelper,
    listener: HostListener,
    recorder: &mut Recorder<'_>,
    stops: &mut mpsc::Receiver<StopRequest>,
    clock: RunClock,
    facts: &mut Facts,
) -> Result<(), Refusal> {
    // In the run directory itself: a folder of their own would be made and removed for one file, which ext4 takes most of
    // a millisecond for.
    let decoys = recorder.run().path().to_owned();
    let host = place::HostPaths { home: home.path(), decoys: &decoys, git };
    // Meanwhile it looks how large the folders are.
    let growth = growth_watch(plan, host)?;
    let built = place::build(helper, plan, survey, host, request.own_binary)?;
    let limits = place::confirm_limits(plan, &built)?;
    fault::point("fence-built");
    let proven = place::prove(built, plan, survey)?;
    let mut fence = proven.fence;
    let build = fence.facts().elapsed;
    recorder.record(
        Source::Kernel,
        EventKind::FenceProven {
            rung: plan.rung,
            canaries: u32::try_from(proven.proof.canaries.len()).unwrap_or(u32::MAX),
            guarantees: plan.guarantees.iter().filter(|g| g.held).map(|g| g.id).collect(),
            elapsed_us: u64::try_from((build + proven.proof.elapsed).as_micros()).unwrap_or(u64::MAX),
        },
    );
    facts.fence = Some(conclude::FenceFacts { build, proof: proven.proof });
    fault::point("fence-proven");
    sandbox_probe::ask(&mut fence, plan, clock, stops).await?;
    preflight::ask(&mut fence, plan, clock, recorder, stops, &mut facts.preflight).await?;
    let (fact_tx, mut fact_rx) = mpsc::channel(FACT_QUEUE);
    let gateway = gateway(request, admitted, plan, listener, &mut fence, fact_tx)?;
    recorder.judge_by(Judge::new(plan));
    let result = agent(
        request,
        admitted,
        plan,
        home,
        (LimitWatch::new(limits), growth),
        &mut fence,
        &gateway,
        recorder,
        &mut fact_rx,
        stops,
        clock,
        facts,
    )
    .await;
    facts.egress = gateway.shutdown().await;
    while let Ok(fact) = fact_rx.try_recv() {
        recorder.record(Source::Gateway, fact);
    }
    let stuck = result.as_ref().is_ok_and(|w| w.stuck);
    let end = fence.close(if stuck { STUCK_CLOSE_TIME } else { CLOSE_TIME });
    tree_ended(recorder, &end);
    facts.tree_end = Some(end);
    facts.watched = Some(result?);
    Ok(())
}

fn tree_ended(recorder: &mut Recorder<'_>, end: &TreeEnd) {
    recorder.record(
        Source::Kernel,
        EventKind::TreeEnded {
            gone: end.gone,
            killed: end.killed.unwrap_or(0),
            elapsed_us: u64::try_from(end.elapsed.as_micros()).unwrap_or(u64::MAX),
        },
    );
    if !end.gone {
        let named: Vec<String> =
            end.stuck.iter().map(|p| format!("{} ({}, {})", p.pid, p.name, p.state)).collect();
        let text = format!(
            "unkillable: {} process(es) were killed and did not end in time; the kernel ends them when it can: {}",
            named.len(),
            named.join(", ")
        );
        note(recorder, "unkillable", text);
    }
    for path in end.group.iter().flat_map(|g| &g.left) {
        note(recorder, "group-left", format!("`{}` was not removed; `stockade gc` will", path.display()));
    }
}

/// Starts to watch the folders that can be written, where their growth is limited.
fn growth_watch(plan: &LaunchPlan, host: place::HostPaths<'_>) -> Result<Option<GrowthWatch>, Refusal> {
    let Some(limit) = plan.limits.max_growth_bytes else { return Ok(None) };
    let roots = place::writable_sources(plan, host);
    GrowthWatch::start(roots, limit).map(Some).map_err(|e| {
        Refusal::new(
            Status::LauncherFailed,
            Cause::new("growth-watch", Boundary::Limit, "thread", format!("growth cannot be watched: {e}"))
                .with_remedy("say `--max-growth none`"),
        )
    })
}

fn gateway(
    request: &LaneRequest,
    admitted: &Admitted,
    plan: &LaunchPlan,
    host: HostListener,
    fence: &mut stockade_fence::Fence,
    facts: mpsc::Sender<EventKind>,
) -> Result<Gateway, Refusal> {
    let broken = |e: &dyn std::fmt::Display| {
        Refusal::new(
            Status::LauncherFailed,
            Cause::new(
                "gateway",
                Boundary::Network,
                "gateway",
                format!("the gateway cannot be started: {e}"),
            )
            .with_remedy("check `--endpoint` and `--ca`"),
        )
    };
    let inside = fence.take_listeners();
    // On the host's network others can reach the listener too, so that it asks for the run's own key.
    let (listener, placeholder) = match (inside.model, host.socket) {
        (Some(listener), _) => (listener, None),
        (None, Some(socket)) => (socket, Some(host.order.placeholder_key)),
        (None, None) => return Err(broken(&"there is no listener")),
    };
    let key = plan.endpoint.key_env.as_ref().and_then(|name| request.environment.get(name));
    let policy = ModelPolicy {
        upstream: Upstream::parse(&plan.endpoint.url).map_err(|e| broken(&e))?,
        base_path: "/v1".to_owned(),
        credential: key.map(|k| Credential {
            header: plan.endpoint.credential,
            secret: SecretString::from(k.trim().to_owned()),
        }),
        extra_ca_pem: admitted.ca_pem.clone(),
        model_paths: plan.wire.model_paths.clone(),
        models: vec![plan.model.requested_as.clone()],
        classes: plan.wire.classes.iter().map(|c| (c.name.clone(), c.tools.clone())).collect(),
        side_requests: plan.wire.side_requests.clone(),
        failures_before_stop: plan.wire.failures_before_stop,
        stop_header: plan.wire.stop_header.clone(),
        stop_status: plan.wire.stop_status,
        budget: plan.budget(),
        placeholder_key: placeholder,
    };
    let egress = inside.egress.map(|listener| Egress { listener, allowed: plan.allow.clone() });
    Gateway::start(policy, listener, inside.names, egress, facts).map_err(|e| broken(&e))
}

#[expect(
    clippy::too_many_arguments,
    reason = "the stages of a run in one place; each argument is one of its parties"
)]
async fn agent(
    request: &LaneRequest,
    admitted: &Admitted,
    plan: &LaunchPlan,
    home: &PrivateHome,
    (limits, mut growth): (LimitWatch, Option<GrowthWatch>),
    fence: &mut stockade_fence::Fence,
    gateway: &Gateway,
    recorder: &mut Recorder<'_>,
    facts: &mut mpsc::Receiver<EventKind>,
    stops: &mut mpsc::Receiver<StopRequest>,
    clock: RunClock,
    learnt: &mut Facts,
) -> Result<Watched, Refusal> {
    let broke = |step: &str, e: &dyn std::fmt::Display| {
        Refusal::new(
            Status::LauncherFailed,
            Cause::new("launch", Boundary::Fence, step, format!("the agent cannot be started: {e}")),
        )
    };
    let (theirs, ends) = stdio::sockets().map_err(|e| broke("stdio", &e))?;
    let limit = plan.limits.output_bytes;
    let run = recorder.run();
    let transcript =
        |run: &mut RunDir, stream| run.transcript(stream, limit).map_err(|e| storage::refusal(&e));
    let (out, err) = (transcript(run, Stream::Stdout)?, transcript(run, Stream::Stderr)?);
    let dialect = admitted.profile.profile.output.dialect;
    let (streams, stdin) = Streams::open(ends, dialect, out, err, plan.limits.output_bytes_per_s)
        .map_err(|e| broke("stdio", &e))?;
    let mut env = plan.env.clone();
    for name in &plan.passed_env {
        if let Some(value) = request.environment.get(name) {
            env.insert(name.clone(), value.clone());
        }
    }
    if let Ok(StopRequest::Cancel(why) | StopRequest::Kill(why)) = stops.try_recv() {
        return Err(question::stopped(why));
    }
    if plan.limits.timeout_ms.is_some_and(|ms| clock.elapsed_ms() >= ms) {
        return Err(preflight::deadline_passed(plan));
    }
    if let Some(growth) = &mut growth {
        for path in growth.ready().await {
            let text =
                format!("`{}` is too large, or partly unreadable: its growth is not watched", path.display());
            note(recorder, "growth-unknown", text);
        }
    }
    recorder.record(Source::Stockade, EventKind::GenerationStarted { generation: 1 });
    let spawn = SpawnRequest {
        role: Role::Agent,
        argv: plan.argv.clone(),
        env: env.into_iter().collect(),
        cwd: plan.cwd.clone(),
        limits: SpawnLimits {
            open_files: plan.limits.max_open_files,
            file_bytes: Some(plan.limits.max_file_bytes),
            processes: place::held_by(plan, LimitId::Processes, LimitBy::Nproc),
        },
    };
    let role = fence.spawn(&spawn, theirs).map_err(|e| {
        Refusal::new(
            Status::ExecutableRefused,
            Cause::new(
                "agent-not-started",
                Boundary::Executable,
                e.step().to_owned(),
                format!("the agent cannot be started: {e}"),
            )
            .with_errno(e.errno())
            .with_evidence(plan.argv.first().cloned().unwrap_or_default())
            .with_remedy("run `stockade provision --verify`, or check the file named by `--executable`"),
        )
    })?;
    learnt.process_started = true;
    recorder.record(Source::Kernel, EventKind::AgentStarted { argv: plan.argv.clone() });
    fault::point("agent-started");
    let feeding = if plan.prompt.file.is_none() {
        Some(tokio::spawn(streams::feed(stdin, admitted.prompt.clone())))
    } else {
        // Nothing is said on standard input: the agent sees its end at once.
        drop(stdin);
        None
    };
    let log = plan.session_log.as_ref().map(|log| SessionLog::open(dialect, home.path(), Path::new(log)));
    let session_log = match log {
        Some(Ok(log)) => Some(log),
        Some(Err(e)) => {
            note(recorder, "session-log", e.to_string());
            None
        }
        None => None,
    };
    let running = Running { role, streams, session_log, activity: gateway.activity(), limits, growth };
    let watched = watch::watch(plan, fence, running, recorder, facts, stops, clock).await;
    if let Some(task) = feeding {
        task.abort();
    }
    watched.map_err(|e| {
        Refusal::new(
            Status::LauncherFailed,
            Cause::new("watch", Boundary::Fence, "watch", e.to_string())
                .with_remedy("this is a defect of Stockade: report it with the run directory"),
        )
    })
}

/// The plan of an order, made without starting anything or leaving anything behind.
pub fn preview(request: &LaneRequest) -> Result<LaunchPlan, Refusal> {
    let id = uuid::Uuid::now_v7().to_string();
    let listener = HostListener::for_policy(request.network)?;
    let measuring = admit::survey(request, Extent::FirstThatStands);
    let admitted = admit::admit(request, &id, listener.order, &measuring)?;
    let pin = pin::verify(&request.state_root, &request.provider, request.executable.as_deref())?;
    let survey = measuring.finish(&rungs_to_try(&admitted.order, &admitted.profile.profile));
    plan(&admitted.order, &pin, &survey, &admitted.profile)
}
