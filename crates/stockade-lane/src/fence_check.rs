//! Is the wall sound? Every escape probe, taken in a fence such as a lane on this host gets, and once outside it.
//!
//! The host side of the probes (a home with credentials, a repository, services, a victim) is made for each part and gone
//! afterwards. The fence comes from the plan of an order whose workspace is that repository's, so that what is checked is
//! what a lane stands on. Only its limits are smaller, so that the probes that use things up are soon done.

mod report;
mod take;

use std::{
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};

use stockade_core::{
    guarantee::Guarantee,
    mode::AccessMode,
    order::Listener,
    plan::{LaunchPlan, plan, rungs_to_try},
    status::{Boundary, Cause, Refusal, Status},
    survey::Survey,
};
use stockade_fence::{
    Identity, OwnBinary, SpawnLimits,
    probes::{
        Attempt, FencedRequest, KernelUser, PROBES,
        host::{Damage, Host, WorkspaceIs},
    },
    survey::Extent,
};

use crate::{
    admit, doctor,
    git::Stage,
    place,
    probe_host::probe_host,
    repository::Served,
    request::{LaneRequest, WorktreeChoice},
    scratch,
};

use report::Inside;
pub use report::{Checked, CheckedGuarantee, CheckedProbe, FenceCheck, FoundOutside};
use take::{Taken, take};

/// The largest file of a probe, in bytes: less than one tries to write.
const FILE_BYTES: u64 = 16 << 20;
/// The temporary folder's size, in bytes: less than a probe tries to write.
const TEMP_BYTES: u64 = 32 << 20;
/// Fewer processes than a probe tries to start. The kernel takes no limit below 301.
const MAX_PROCESSES: u32 = 512;

/// A check as the caller asks for it.
#[derive(Clone, Debug)]
pub struct FenceCheckRequest {
    /// The order whose fence is checked. Mode, workspace, prompt and endpoint are put in here.
    pub lane: LaneRequest,
    /// The modes to check.
    pub modes: Vec<AccessMode>,
    /// The program that takes the probes: this one.
    pub program: PathBuf,
    /// The folder in which everything is made. Everybody has to be able to pass through it.
    pub parent: PathBuf,
}

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The probes are taken outside, to see that they find something.
    Outside,
    /// The probes are taken in a fence.
    Inside(AccessMode),
}

/// How far a part has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The part.
    pub part: Part,
    /// Probes taken.
    pub taken: usize,
    /// All probes.
    pub probes: usize,
}

/// Somebody who is told the progress, and may stop the check.
pub(crate) struct Watch<'w> {
    pub(crate) progress: &'w mut dyn FnMut(Progress),
    pub(crate) stop: &'w AtomicBool,
}

impl Watch<'_> {
    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Checks the fence of each mode. `Err`: no such fence stands on this host, or the probes could not be taken. Whatever
/// happens, nothing that was made is left; `stop` is looked at every tenth of a second.
pub fn check_fence(
    request: &FenceCheckRequest,
    progress: &mut dyn FnMut(Progress),
    stop: &AtomicBool,
) -> Result<Checked, Refusal> {
    let start = Instant::now();
    let mut watch = Watch { progress, stop };
    let id = uuid::Uuid::now_v7().simple().to_string();
    let mut parts = Vec::new();
    for mode in &request.modes {
        // Refused before anything but a folder is made.
        let folder = scratch::make(request.parent.join(format!("stockade-fence-check-{id}-ask")))?;
        let Planned { plan, .. } = planned(request, *mode, folder.path().to_owned(), &id)?;
        parts.push((*mode, WorkspaceIs::taken_by(plan.rung, *mode)));
    }
    let host = host(request, &format!("{id}-outside"), WorkspaceIs::WithListener)?;
    let outside = Attempt::outside(&host, &request.program).map_err(|e| not_taken(&e))?;
    let Some(outside) = take(outside, Part::Outside, &mut watch)? else { return Ok(Checked::Stopped) };
    drop(host);
    let mut modes = Vec::new();
    for (mode, workspace) in parts {
        match inside(request, mode, workspace, &id, &mut watch)? {
            Some(inside) => modes.push(inside),
            None => return Ok(Checked::Stopped),
        }
    }
    let elapsed = start.elapsed();
    Ok(Checked::Done(Box::new(report::report(&modes, &outside.observed, elapsed))))
}

/// The fence of one mode; `None`: stopped.
fn inside(
    request: &FenceCheckRequest,
    mode: AccessMode,
    workspace: WorkspaceIs,
    id: &str,
    watch: &mut Watch<'_>,
) -> Result<Option<Inside>, Refusal> {
    let host = host(request, &format!("{id}-{}", mode.id()), workspace)?;
    let home = scratch::make(request.parent.join(format!("stockade-fence-check-{id}-home")))?;
    let Planned { plan, survey, served } = planned(request, mode, host.facts().workspace.clone(), id)?;
    scratch::note_groups(&home, &plan)?;
    let folder = scratch::make(request.parent.join(format!("stockade-fence-check-{id}-git")))?;
    let stage = match (&served, &plan.git) {
        (Some(served), Some(workspace)) => Some(Stage::begin(folder.path(), served, workspace)?),
        _ => None,
    };
    let git = stage.as_ref().map(Stage::paths);
    let mut spec = place::spec(&plan, &survey, home.path(), git, OwnBinary::Bound)?;
    spec.temp_bytes = TEMP_BYTES;
    spec.max_processes = Some(MAX_PROCESSES);
    let limits = SpawnLimits {
        file_bytes: Some(FILE_BYTES),
        processes: Some(MAX_PROCESSES.into()),
        ..SpawnLimits::default()
    };
    let fenced = FencedRequest { spec, limits };
    let attempt =
        Attempt::inside(&host, &request.program, &fenced).map_err(|e| place::refused(&plan, &survey, &e))?;
    let Some(taken) = take(attempt, Part::Inside(mode), watch)? else { return Ok(None) };
    let Taken { observed, processes, gone } = taken;
    let user = match fenced.spec.identity {
        Identity::Caller | Identity::KernelRoot => KernelUser::Callers,
        Identity::Kernel { .. } => KernelUser::Another,
    };
    let mut damage = host.check(mode).map_err(|e| not_taken(&e))?;
    if !gone {
        damage.push(Damage::Unended);
    }
    Ok(Some(Inside { plan: *plan, observed, user, processes, damage }))
}

/// A plan and what it was made from.
struct Planned {
    plan: Box<LaunchPlan>,
    survey: Survey,
    served: Option<Served>,
}

/// The plan of a lane in this workspace. No agent is started: the program it mounts stands in for one.
fn planned(
    request: &FenceCheckRequest,
    mode: AccessMode,
    workspace: PathBuf,
    id: &str,
) -> Result<Planned, Refusal> {
    let mut lane = request.lane.clone();
    lane.mode = mode;
    // The worktree itself, so that there is something to change in it.
    let is_worktree = workspace.join(".git").exists() && mode == AccessMode::IsolatedWrite;
    lane.worktree = is_worktree.then_some(WorktreeChoice::Named);
    lane.git_author = Some("Stockade <stockade@localhost>".to_owned());
    lane.cwd = workspace;
    // An endpoint is not part of the question, and one on loopback needs no key.
    lane.endpoint = Some("http://127.0.0.1:9/v1".to_owned());
    lane.key_env = None;
    if lane.rung.is_some() {
        // What such a fence does not hold is to be told, not to be a reason for none.
        lane.accept_missing = Guarantee::ALL.to_vec();
    }
    let measuring = admit::survey(&lane, Extent::EveryRung);
    let admitted = admit::admit(&lane, id, Listener::default(), &measuring)?;
    let survey = measuring.finish(&rungs_to_try(&admitted.order, &admitted.profile.profile));
    let stand_in = doctor::stand_in(&lane.provider);
    let plan = plan(&admitted.order, &stand_in, &survey, &admitted.profile)?;
    Ok(Planned { plan: Box::new(plan), survey, served: admitted.served })
}

fn host(request: &FenceCheckRequest, name: &str, workspace: WorkspaceIs) -> Result<Host, Refusal> {
    let folder = request.parent.join(format!("stockade-fence-check-{name}"));
    probe_host(&request.lane.environment, folder, workspace)
}

fn not_taken(e: &stockade_fence::FenceError) -> Refusal {
    let cause = Cause::new(
        "probes-not-taken",
        Boundary::Fence,
        e.step().to_owned(),
        format!("the probes could not be taken: {e}"),
    );
    Refusal::new(Status::LauncherFailed, cause.with_errno(e.errno()))
}

/// How many probes there are.
fn all() -> usize {
    PROBES.len()
}
