//! The stage `probes`: the escape probes, taken by a tool of the real agent.
//!
//! The lane works on a worktree of the repository that the probes reach for, or on a plain folder where its rung takes no
//! other, and this program is shown in its fence. What
//! the tool printed is read from the model's next request.

use std::time::Duration;

use stockade_core::{
    mode::AccessMode,
    plan::{LaunchPlan, PlannedIdentity},
    survey::Rung,
};
use stockade_fence::{
    OwnBinary,
    probes::{
        FixtureFacts, KernelUser, ProcessLimit, Setting,
        host::{Damage, Host, WorkspaceIs},
    },
};
use stockade_lane::{StopRequest, WorktreeChoice, probe_host};
use tokio::sync::mpsc;

use crate::{
    checks::{
        Verdict,
        probes::{Probes, like_the_table},
    },
    commands,
    error::RehearsalError,
    model_process::{ModelProcess, Serving},
    play::{self, Played},
    request::RehearsalRequest,
    scratch::Scratch,
    script::{PROBES_STEP, PROBES_VARIABLE, Script},
};

/// What came of the stage.
#[derive(Debug)]
pub(crate) struct Probed {
    /// The lane; `None`: what the probes reach for could not be made.
    pub(crate) played: Option<Played>,
    /// Whether all is as the table says.
    pub(crate) verdict: Verdict,
    /// How long the tool call took.
    pub(crate) elapsed: Duration,
}

impl Probed {
    /// Whether the caller of the rehearsal stopped it.
    pub(crate) fn stopped(&self) -> bool {
        self.played.as_ref().is_some_and(|played| played.stopped)
    }

    fn unmade(why: String) -> Self {
        Self { played: None, verdict: Err(why), elapsed: Duration::ZERO }
    }
}

/// Has the probes taken, on a lane of the rung that the work of the mode was done on. Nothing that was made for them is left.
pub(crate) async fn play(
    request: &RehearsalRequest,
    mode: AccessMode,
    script: &Script,
    scratch: &Scratch,
    rung: Rung,
    stops: &mut mpsc::Receiver<StopRequest>,
) -> Result<Probed, RehearsalError> {
    let workspace = WorkspaceIs::taken_by(rung, mode);
    let host = match probe_host(&request.lane.environment, scratch.probed(), workspace) {
        Ok(host) => host,
        Err(refusal) => return Ok(Probed::unmade(refusal.to_string())),
    };
    let mut variables = scratch.variables();
    match commands::take_probes(&host.facts_inside()) {
        Ok(command) => drop(variables.insert(PROBES_VARIABLE.to_owned(), command)),
        Err(e) => return Ok(Probed::unmade(format!("a path cannot be told to the probes: {e}"))),
    }
    let folder = scratch.model();
    let serving = Serving {
        program: &request.stockade,
        scenario: script.probes,
        variables: &variables,
        folder: &folder,
        name: "probes",
    };
    let model = ModelProcess::start(&serving).await?;
    let mut lane = play::lane(&request.lane, mode, scratch, &model, format!("{}-probes", mode.id()));
    lane.cwd.clone_from(&host.facts().workspace);
    // The worktree itself, so that nothing is kept of a made one.
    let is_written = mode == AccessMode::IsolatedWrite && workspace == WorkspaceIs::Clean;
    lane.worktree = is_written.then_some(WorktreeChoice::Named);
    lane.git_author = Some("Stockade <stockade@localhost>".to_owned());
    lane.own_binary = OwnBinary::Bound;
    let played = play::to_the_end(&lane, &model, stops).await?;
    let elapsed = played.wire.result_of(PROBES_STEP).map(|result| result.elapsed).unwrap_or_default();
    let verdict = judge(&host, mode, &played);
    Ok(Probed { played: Some(played), verdict, elapsed })
}

fn judge(host: &Host, mode: AccessMode, played: &Played) -> Verdict {
    let mut damage = host.check(mode).map_err(|e| format!("the host cannot be looked at: {e}"))?;
    damage.retain(|damage| !is_brought(host.facts(), mode, damage));
    like_the_table(&Probes {
        receipt: &played.receipt,
        wire: &played.wire,
        setting: played.plan.as_ref().map(setting),
        own_processes: played.plan.as_ref().is_some_and(|plan| plan.provider_sandbox.has_own_processes),
        damage: &damage,
    })
}

/// What the run itself does to the repository once the agent has ended: it brings the work into it.
fn is_brought(facts: &FixtureFacts, mode: AccessMode, damage: &Damage) -> bool {
    let (Damage::Added(path) | Damage::Changed(path)) = damage else { return false };
    let git = facts.root.join("repo/.git");
    let within = |folder: &str| path.starts_with(git.join(folder));
    mode == AccessMode::IsolatedWrite
        && (within("objects") || within("refs/stockade") || *path == git.join("refs") || *path == git)
}

/// Where the probes were taken.
fn setting(plan: &LaunchPlan) -> Setting {
    Setting {
        mode: plan.mode,
        rung: plan.rung,
        user: match plan.identity {
            PlannedIdentity::WorkspaceOwner { .. } | PlannedIdentity::PrivateUid => KernelUser::Another,
            PlannedIdentity::Caller | PlannedIdentity::KernelRoot { .. } => KernelUser::Callers,
        },
        // No probe that meets it is taken by a tool.
        processes: ProcessLimit::Watched,
    }
}
