//! The end of a run: from what was learnt to the receipt, and the receipt to where it belongs.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use stockade_core::{
    changes::Changes,
    guarantee::Guarantee,
    judge::{Ending, ModelEvidence},
    mode::NetworkPolicy,
    order::Pin,
    plan::LaunchPlan,
    receipt::{
        CredentialRecord, EgressRecord, EnvironmentRecord, ErrorText, FenceRecord, GuaranteeRecord,
        LauncherRecord, NetworkRecord, Preflight, PreflightStatus, Receipt, RuntimeRecord, SCHEMA_VERSION,
        StockadeRecord, StuckProcess, TreeRecord,
    },
    status::{Boundary, Cause, FailurePhase, Refusal, Status},
    survey::Survey,
};
use stockade_fence::{Proof, Stuck, TreeEnd};
use stockade_gateway::{EgressTotals, Upstream};
use stockade_journal::{Placed, Reservation, digest::sha256_hex};

use crate::{
    admit::Admitted,
    clock::{RunClock, wall_time},
    fault,
    git::Exported,
    limits, place,
    recorder::Recorder,
    request::{LaneRequest, PromptSource},
    reserved::Reserved,
    run::LaneOutcome,
    storage,
    watch::Watched,
};

/// Evidence in a receipt is bounded to this many bytes.
const EVIDENCE_LIMIT_BYTES: usize = 4_000;

/// Where a run's records are.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    id: String,
    run_directory: PathBuf,
    started_at: String,
    launcher: LauncherRecord,
}

impl Paths {
    pub(crate) fn new(id: &str, run_directory: &Path, started_at: String, launcher: LauncherRecord) -> Self {
        Self { id: id.to_owned(), run_directory: run_directory.to_owned(), started_at, launcher }
    }
}

/// What is known of a fence that was proven.
#[derive(Debug)]
pub(crate) struct FenceFacts {
    pub(crate) build: Duration,
    pub(crate) proof: Proof,
}

/// What was learnt on the way, however far the run came.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub(crate) pin: Option<Pin>,
    pub(crate) survey: Option<Survey>,
    pub(crate) plan: Option<LaunchPlan>,
    pub(crate) fence: Option<FenceFacts>,
    /// What the agent was asked before its turn; `None`: nothing.
    pub(crate) preflight: Option<Preflight>,
    pub(crate) watched: Option<Watched>,
    pub(crate) tree_end: Option<TreeEnd>,
    /// What went through the egress listener; `None`: there was none, or the run did not come so far.
    pub(crate) egress: Option<EgressTotals>,
    pub(crate) changes: Changes,
    pub(crate) exported: Option<Exported>,
    pub(crate) process_started: bool,
}

/// A receipt as bytes: pretty JSON and a newline.
pub(crate) fn receipt_bytes(receipt: &Receipt) -> Vec<u8> {
    // A receipt holds only strings, numbers and lists of them: it always serialises.
    let mut bytes = serde_json::to_vec_pretty(receipt).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

/// The receipt that stands while the run goes on: valid, and true if nothing more is ever written.
pub(crate) fn interrupted(request: &LaneRequest, admitted: &Admitted, paths: &Paths) -> Receipt {
    let order = &admitted.order;
    let profile = &admitted.profile;
    let model = order.model.clone().unwrap_or_else(|| profile.profile.models.default.clone());
    let path_text = |p: &Option<PathBuf>| p.as_ref().map(|p| absolute(p).display().to_string());
    let cause =
        Cause::new("interrupted", Boundary::Storage, "receipt", "Stockade ended before it wrote an ending")
            .with_remedy(
                "`stockade receipt show` tells whether it still runs; `stockade gc` removes what is left",
            );
    let passed: Vec<String> =
        request.pass_env.iter().filter(|n| request.environment.contains_key(*n)).cloned().collect();
    let removed = request.environment.keys().filter(|n| !passed.contains(n)).cloned().collect();
    Receipt {
        schema_version: SCHEMA_VERSION,
        status: Status::Interrupted,
        parent: None,
        provider: order.provider.clone(),
        model,
        effort: order.effort.clone(),
        mode: order.mode,
        cwd: order.workspace.path.display().to_string(),
        prompt_path: match &request.prompt {
            PromptSource::File(p) => absolute(p).display().to_string(),
            PromptSource::Given(_) => "-".to_owned(),
        },
        output_path: path_text(&request.output),
        receipt_path: path_text(&request.receipt),
        execution_id: paths.id.clone(),
        run_directory: paths.run_directory.display().to_string(),
        started_at: paths.started_at.clone(),
        completed_at: None,
        elapsed_ms: None,
        executable: None,
        preflight: Preflight::default(),
        argv: Vec::new(),
        exit_code: None,
        signal: None,
        reported_model: None,
        model_verified: false,
        model_evidence: None,
        session_id: None,
        usage: None,
        cost_usd: None,
        cost_source: None,
        error: Some(error_text(&cause)),
        failure_phase: Some(FailurePhase::Invocation),
        process_started: false,
        timeout_ms: order.limits.timeout_ms,
        cause: Some(cause),
        survey: None,
        guarantees: Vec::new(),
        fence: None,
        profile: Some(stockade_core::plan::ProfileFacts {
            name: profile.profile.name.clone(),
            version: profile.profile.version,
            digest: profile.digest.clone(),
        }),
        runtime: None,
        credential: CredentialRecord {
            kind: if order.endpoint.key_present { "key-env" } else { "none" }.to_owned(),
            account_mark: order.endpoint.key_env.clone(),
        },
        environment: EnvironmentRecord { passed, removed },
        provider_sandbox: order.provider_sandbox,
        permissions: Vec::new(),
        denials: Vec::new(),
        denial_count: 0,
        tool_calls: 0,
        model_requests: 0,
        requests: Vec::new(),
        model_identity: None,
        changes: Changes::default(),
        git: None,
        partial: false,
        digests: BTreeMap::from([("prompt".to_owned(), order.prompt.sha256.clone())]),
        rehearsal: request.rehearsal.clone(),
        limits: order.limits.clone(),
        held_limits: Vec::new(),
        tree: TreeRecord::default(),
        network_decisions: BTreeMap::new(),
        notes: admitted.notes.clone(),
        launcher: paths.launcher.clone(),
        stockade: StockadeRecord {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: request.commit.clone(),
            target: format!("{}-unknown-linux-gnu", std::env::consts::ARCH),
        },
    }
}

/// Ends a run: judges it, writes its records, and gives back what the caller shows.
#[expect(clippy::too_many_arguments, reason = "an ending draws on every party of the run")]
pub(crate) fn conclude(
    request: &LaneRequest,
    admitted: &Admitted,
    paths: &Paths,
    reserved: Reserved,
    recorder: Recorder<'_>,
    facts: &Facts,
    verdict: Result<(), Refusal>,
    clock: RunClock,
) -> LaneOutcome {
    let (judge, run, storage_error) = recorder.into_parts();
    let mut receipt = interrupted(request, admitted, paths);
    let mut answer = None;
    let mut spent = None;
    let path = verdict.as_ref().err().and_then(|refusal| refusal.path.clone());
    match (verdict, judge) {
        (Err(refusal), _) => refused(&mut receipt, &refusal, facts),
        (Ok(()), Some(judge)) => {
            let exit = facts.watched.as_ref().and_then(|w| w.exit);
            let ending = judge.finish(exit, &facts.changes);
            answer.clone_from(&ending.answer);
            spent = Some(ending.spent.clone());
            judged(&mut receipt, ending, facts);
        }
        (Ok(()), None) => {}
    }
    measured(&mut receipt, facts);
    if let Some(spent) = &spent {
        limits::add_spent(&mut receipt, spent);
    }
    if let Some(exported) = &facts.exported {
        taken_out(&mut receipt, exported);
    }
    if let Some(e) = storage_error {
        receipt.notes.push(format!("the event log is incomplete: {e}"));
    }
    receipt.completed_at = Some(wall_time());
    receipt.elapsed_ms = Some(clock.elapsed_ms());
    match run.digests() {
        Ok(digests) => receipt.digests.extend(digests),
        Err(e) => receipt.notes.push(format!("the records could not be digested: {e}")),
    }
    if let Some(text) = &answer {
        receipt.digests.insert("answer".to_owned(), sha256_hex(text.as_bytes()));
    }
    deliver(&mut receipt, answer.as_deref(), reserved, run);
    LaneOutcome { receipt, answer, path }
}

/// What came of the work in a repository. Work that did not get there is no success, whatever the agent says.
fn taken_out(receipt: &mut Receipt, exported: &Exported) {
    receipt.git = Some(exported.record.clone());
    let Some(why) = &exported.failed else { return };
    let message = format!("the work could not be taken out of the worktree: {why}");
    if receipt.status != Status::Complete {
        receipt.notes.push(message);
        return;
    }
    let place = exported.record.worktree.clone().unwrap_or_default();
    let cause = Cause::new("work-not-taken-out", Boundary::Workspace, "git(export)", message)
        .with_evidence(place)
        .with_remedy("the files are in the worktree named; `stockade gc` keeps it");
    receipt.status = Status::StorageFailed;
    receipt.failure_phase = Some(FailurePhase::Postprocess);
    receipt.error = Some(error_text(&cause));
    receipt.cause = Some(cause);
}

fn refused(receipt: &mut Receipt, refusal: &Refusal, facts: &Facts) {
    let status = refusal.status.unwrap_or(Status::LauncherFailed);
    receipt.status = status;
    receipt.error = Some(error_text(&refusal.cause));
    receipt.cause = Some((*refusal.cause).clone());
    let started = facts.process_started;
    receipt.failure_phase = Some(if started { FailurePhase::Invocation } else { FailurePhase::Preflight });
    let told = facts.preflight.clone().unwrap_or_default();
    let decided = !matches!(told.status, PreflightStatus::NotRun | PreflightStatus::Passed);
    receipt.preflight = if decided {
        told
    } else {
        let message = receipt.error.as_ref().map(|e| e.message.clone()).unwrap_or_default();
        Preflight {
            status: match status {
                _ if started => PreflightStatus::Passed,
                Status::TimedOut => PreflightStatus::TimedOut,
                Status::Cancelled => PreflightStatus::Cancelled,
                _ => PreflightStatus::Failed,
            },
            evidence: lines([told.evidence, message]),
            ..told
        }
    };
}

fn lines(texts: [String; 2]) -> String {
    texts.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n")
}

fn judged(receipt: &mut Receipt, ending: Ending, facts: &Facts) {
    receipt.status = ending.status;
    receipt.error = ending.cause.as_ref().map(error_text);
    receipt.cause = ending.cause;
    if receipt.status == Status::ProviderUnreachable
        && let Some(why) = shut_in(facts)
        && let Some(cause) = receipt.cause.take()
    {
        let mut cause = cause.with_evidence(why);
        cause.boundary = Boundary::ParentSandbox;
        receipt.cause = Some(cause);
    }
    receipt.failure_phase = ending.phase;
    let told = facts.preflight.clone().unwrap_or_default();
    let own = "executable verified, host surveyed, fence proven by canaries".to_owned();
    receipt.preflight =
        Preflight { status: PreflightStatus::Passed, evidence: lines([own, told.evidence]), ..told };
    receipt.partial = ending.partial;
    receipt.session_id = ending.session;
    receipt.usage = ending.usage;
    receipt.cost_usd = ending.cost_usd;
    receipt.cost_source = ending.cost_source;
    receipt.permissions = ending.permissions;
    receipt.denials = ending.denials;
    receipt.denial_count = ending.denial_count;
    receipt.tool_calls = ending.tool_calls;
    receipt.model_requests = ending.model_requests;
    receipt.requests = ending.requests;
    receipt.network_decisions = ending.network_refusals;
    receipt.notes.extend(ending.notes);
    let identity = ending.model;
    receipt.reported_model = identity.served.last().cloned();
    receipt.model_verified = identity.evidence == ModelEvidence::Wire
        && receipt.status != Status::ModelMismatch
        && !identity.served.is_empty();
    receipt.model_evidence = match identity.evidence {
        ModelEvidence::Wire => Some("wire".to_owned()),
        ModelEvidence::AgentReport => Some("agent-report".to_owned()),
        ModelEvidence::PinnedArgv => Some("pinned-argv".to_owned()),
        ModelEvidence::None => None,
    };
    receipt.model_identity = Some(identity);
}

/// What hides the way to the endpoint may be somebody else's fence, which the caller has to know to look at: a filter, a
/// Landlock domain, or a network without any way out.
fn shut_in(facts: &Facts) -> Option<&'static str> {
    if facts.survey.as_ref().is_some_and(|s| s.outer.is_present()) {
        return Some("Stockade itself runs inside another sandbox");
    }
    let endpoint = facts.plan.as_ref().and_then(|p| Upstream::parse(&p.endpoint.url).ok())?;
    // One line is the header; a network namespace that was left empty has no other, and no IPv6 route but loopback's.
    let routes = std::fs::read_to_string("/proc/self/net/route").ok()?.lines().count();
    let v6 = std::fs::read_to_string("/proc/self/net/ipv6_route").unwrap_or_default();
    let shut = routes <= 1 && v6.lines().all(|l| l.ends_with(" lo"));
    (shut && !endpoint.is_loopback()).then_some("this process's network has no route out")
}

fn measured(receipt: &mut Receipt, facts: &Facts) {
    receipt.survey.clone_from(&facts.survey);
    receipt.process_started = facts.process_started;
    receipt.changes = facts.changes.clone();
    if let Some(pin) = &facts.pin {
        receipt.executable = Some(pin.path.display().to_string());
        receipt.runtime = Some(RuntimeRecord {
            name: pin.provider.clone(),
            version: pin.version.clone(),
            sha256: pin.sha256.clone(),
            pin: pin.kind,
        });
    }
    if let Some(plan) = &facts.plan {
        receipt.notes.extend(plan.notes.iter().cloned());
        if facts.process_started {
            receipt.argv.clone_from(&plan.argv);
            receipt.environment.passed.extend(plan.env.keys().cloned());
            receipt.environment.passed.sort();
            receipt.environment.passed.dedup();
        }
        receipt.guarantees = guarantees(plan, facts.fence.as_ref());
        receipt.held_limits = limits::records(&plan.held_limits, |_| (None, false));
        if let (Some(fence), Some(survey)) = (&facts.fence, &facts.survey) {
            receipt.fence = Some(fence_record(plan, fence, survey, facts.egress.as_ref()));
        }
    }
    if let Some(watched) = &facts.watched {
        receipt.exit_code = watched.exit.and_then(|e| e.code.or_else(|| e.signal.map(|s| 128 + s)));
        receipt.signal.clone_from(&watched.signal_sent);
        receipt.tree.peak_processes = watched.peak_processes;
        receipt.tree.peak_memory = watched.peak_memory;
        receipt.tree.killed = watched.swept;
        receipt.held_limits.clone_from(&watched.limits);
    }
    if let Some(end) = &facts.tree_end {
        receipt.tree.gone = end.gone;
        receipt.tree.killed += u64::from(end.killed.unwrap_or(0));
        receipt.tree.group_empty = end.group.as_ref().and_then(|g| g.empty);
        receipt.tree.unkillable = end.stuck.iter().map(stuck).collect();
    }
}

fn stuck(process: &Stuck) -> StuckProcess {
    StuckProcess { pid: process.pid, name: process.name.clone(), state: process.state.to_string() }
}

fn guarantees(plan: &LaunchPlan, fence: Option<&FenceFacts>) -> Vec<GuaranteeRecord> {
    plan.guarantees
        .iter()
        .map(|g| GuaranteeRecord {
            id: g.id,
            required: g.required,
            held: g.held,
            mechanism: g.mechanism.clone(),
            proof: fence.map(|f| place::proofs(&f.proof, g.id)).unwrap_or_default(),
        })
        .collect()
}

/// What the plan let out and what went.
fn network_record(plan: &LaunchPlan, totals: Option<&EgressTotals>) -> NetworkRecord {
    let egress = (plan.network == NetworkPolicy::Allow).then(|| {
        let totals = totals.cloned().unwrap_or_default();
        EgressRecord {
            listed: plan.allow.clone(),
            model: plan.wire.tunnel.clone(),
            passed: totals.passed,
            turned_away: totals.turned_away,
            bytes_sent: totals.bytes_sent,
            bytes_received: totals.bytes_received,
            sees_inside_tls: false,
        }
    });
    NetworkRecord { policy: plan.network, egress }
}

fn fence_record(
    plan: &LaunchPlan,
    fence: &FenceFacts,
    survey: &Survey,
    egress: Option<&EgressTotals>,
) -> FenceRecord {
    let extra = |writable: bool| {
        plan.mounts
            .iter()
            .filter(|m| m.writable == writable)
            .filter_map(|m| match &m.source {
                stockade_core::plan::MountSource::Path { path } => Some(path.display().to_string()),
                _ => None,
            })
            .collect()
    };
    let micros = |d: Duration| u64::try_from(d.as_micros()).unwrap_or(u64::MAX);
    // A root host drops them; without that right they stay, and whatever they open stays open.
    let groups = if survey.caller.is_root_host() { Vec::new() } else { survey.caller.groups.clone() };
    FenceRecord {
        rung: plan.rung,
        nesting: plan.guarantees.iter().all(|g| g.id != Guarantee::NoNesting || !g.held),
        reads: extra(false),
        writes: extra(true),
        network: network_record(plan, egress),
        identity: plan.identity.clone(),
        kernel_uid: fence.proof.kernel_uid,
        groups,
        build_us: micros(fence.build),
        prove_us: micros(fence.proof.elapsed),
    }
}

fn error_text(cause: &Cause) -> ErrorText {
    let mut evidence = cause.evidence.join("\n");
    if evidence.is_empty() {
        evidence.clone_from(&cause.step);
    }
    ErrorText {
        message: cause.message.clone(),
        evidence: stockade_core::text::head(&evidence, EVIDENCE_LIMIT_BYTES),
    }
}

/// Writes the answer and the receipt. The run directory's receipt is on disk before the caller's is touched, so that
/// nothing that can happen in between loses it.
fn deliver(
    receipt: &mut Receipt,
    answer: Option<&str>,
    reserved: Reserved,
    run: &mut stockade_journal::RunDir,
) {
    let placed = place_answer(answer, reserved.output, run).unwrap_or_else(|e| {
        storage_failed(receipt, &e);
        None
    });
    let mut recorded = run.write_receipt(&receipt_bytes(receipt));
    // After the receipt, which has taken the answer to the disk with it where the file system has a journal: under load
    // every wait of its own costs many milliseconds.
    if let Some(Err(e)) = placed.map(|p| p.sync()) {
        storage_failed(receipt, &e);
        recorded = run.write_receipt(&receipt_bytes(receipt));
    }
    if let Err(e) = &recorded {
        storage_failed(receipt, e);
    }
    fault::point("receipt-rename");
    let Some(mut reservation) = reserved.receipt else { return };
    let bytes = receipt_bytes(receipt);
    let told = match recorded {
        Ok(()) => reservation.place(&bytes).map(drop),
        Err(_) => reservation.commit(&bytes),
    };
    if let Err(e) = told {
        storage_failed(receipt, &e);
        // The last word belongs to the run directory; if that fails too, the caller still gets it on a stream.
        drop(run.write_receipt(&receipt_bytes(receipt)));
    }
}

/// Puts the answer into the run directory and at the caller's path, or takes the reservation away where there is none.
fn place_answer(
    answer: Option<&str>,
    output: Option<Reservation>,
    run: &mut stockade_journal::RunDir,
) -> Result<Option<Placed>, stockade_journal::JournalError> {
    let kept = answer.map_or(Ok(()), |text| run.write_answer(text.as_bytes()).map(drop));
    let told = match (output, answer) {
        (Some(mut output), Some(text)) => output.place(text.as_bytes()).map(Some),
        (Some(output), None) => output.release().map(|_| None),
        (None, _) => Ok(None),
    };
    // What cannot be kept is the first to be told, and the caller gets the answer all the same.
    kept.and(told)
}

fn storage_failed(receipt: &mut Receipt, e: &stockade_journal::JournalError) {
    let refusal = storage::refusal(e);
    if receipt.status == Status::Complete {
        receipt.status = Status::StorageFailed;
        receipt.failure_phase = Some(FailurePhase::Postprocess);
        receipt.error = Some(error_text(&refusal.cause));
        receipt.cause = Some(*refusal.cause);
    } else {
        receipt.notes.push(format!("a record could not be written: {e}"));
    }
}

/// A path made absolute without resolving links: what the caller wrote, from here.
pub(crate) fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
