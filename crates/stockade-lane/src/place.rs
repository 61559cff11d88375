//! From a plan to a proven fence.

use std::path::{Path, PathBuf};

use rustix::io::Errno;
use stockade_core::{
    guarantee::Guarantee,
    limits::{LimitBy, LimitId, LimitState, PlannedLimit, cgroup_name, cgroup_name_for_git},
    mode::{AccessMode, NetworkPolicy},
    order::PinKind,
    plan::{LaunchPlan, Mount, MountSource, PlannedIdentity},
    status::{Boundary, Cause, Refusal, Status},
    survey::{Rung, Survey},
};
use stockade_fence::{
    Bind, BindAccess, BindOwner, Expectation, Fence, FenceError, FenceNetwork, FenceSpec, GroupSpec,
    Identity, OwnBinary, PlacedDecoys, Proof, ProofError, ProofRequest, StartedHelper, WorkspaceProof,
};

/// A fence that is built and proven.
#[derive(Debug)]
pub(crate) struct ProvenFence {
    pub(crate) fence: Fence,
    pub(crate) proof: Proof,
}

/// The host paths that a plan's mounts stand for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostPaths<'p> {
    pub(crate) home: &'p Path,
    pub(crate) decoys: &'p Path,
    pub(crate) git: Option<GitPaths<'p>>,
}

/// What was made for a run in a repository, and what is shown of the repository itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GitPaths<'p> {
    /// The made worktree, where there is one.
    pub(crate) tree: &'p Path,
    /// The private git folder.
    pub(crate) folder: &'p Path,
    /// The repository's objects.
    pub(crate) objects: &'p Path,
}

/// A fence that is built, with the decoys that its proof needs.
#[derive(Debug)]
pub(crate) struct BuiltFence {
    fence: Fence,
    decoys: PlacedDecoys,
}

/// Builds the fence of a plan; the decoys are placed meanwhile.
pub(crate) fn build(
    helper: StartedHelper,
    plan: &LaunchPlan,
    survey: &Survey,
    paths: HostPaths<'_>,
    own_binary: OwnBinary,
) -> Result<BuiltFence, Refusal> {
    let spec = spec(plan, survey, paths.home, paths.git, own_binary)?;
    let building = helper.build(&spec).map_err(|e| refused(plan, survey, &e))?;
    let decoys =
        building.place_decoys(&proof_request(plan, paths)).map_err(|e| unproven(plan, survey, &e))?;
    let fence = building.finish().map_err(|e| refused(plan, survey, &e))?;
    Ok(BuiltFence { fence, decoys })
}

/// Builds a fence in which git alone works on what was made for a run: no agent, no network, no proof. With the caller's
/// tree beside it, read-only, where a worktree is filled from it.
pub(crate) fn build_for_git(
    plan: &LaunchPlan,
    survey: &Survey,
    git: GitPaths<'_>,
    callers_tree: Option<&Path>,
) -> Result<Fence, Refusal> {
    let mut plan = plan.clone();
    plan.network = NetworkPolicy::None;
    plan.mounts.retain(|m| {
        matches!(
            m.source,
            MountSource::Workspace
                | MountSource::MadeWorktree
                | MountSource::GitEntry
                | MountSource::GitFolder
                | MountSource::GitObjects
        )
    });
    if let Some(target) = callers_tree {
        let target = target.to_owned();
        plan.mounts.push(Mount { source: MountSource::CallersTree, target, writable: false });
    }
    let mut spec = spec(&plan, survey, Path::new("/"), Some(git), OwnBinary::Absent)?;
    if let Some(group) = &mut spec.group {
        // The agent's own may still be there, with a process in it that does not end.
        group.name = cgroup_name_for_git(&plan.session);
    }
    Fence::build(&spec).map_err(|e| refused(&plan, survey, &e))
}

/// The fence of a plan.
pub(crate) fn spec(
    plan: &LaunchPlan,
    survey: &Survey,
    home: &Path,
    git: Option<GitPaths<'_>>,
    own_binary: OwnBinary,
) -> Result<FenceSpec, Refusal> {
    Ok(FenceSpec {
        rung: plan.rung,
        bubblewrap: survey.bubblewrap.path.clone().filter(|_| plan.rung == Rung::Bs),
        identity: identity(plan, survey)?,
        binds: binds(plan, home, git),
        network: match plan.network {
            NetworkPolicy::Model => FenceNetwork::Gateway,
            NetworkPolicy::Allow => FenceNetwork::GatewayWithEgress,
            NetworkPolicy::None => FenceNetwork::Empty,
            NetworkPolicy::Host => FenceNetwork::Host,
        },
        own_binary,
        temp_bytes: plan.limits.temp_bytes,
        max_processes: Some(plan.limits.max_processes),
        group: (!plan.cgroups.is_empty()).then(|| GroupSpec {
            name: cgroup_name(&plan.session),
            hierarchies: plan.cgroups.clone(),
            memory_bytes: held_by(plan, LimitId::Memory, LimitBy::Cgroup),
            processes: held_by(plan, LimitId::Processes, LimitBy::Cgroup),
        }),
    })
}

/// Starts the helper of a fence, before the plan is known: its start takes as long as the plan.
pub(crate) fn start_helper() -> Result<StartedHelper, Refusal> {
    StartedHelper::start().map_err(|e| {
        Refusal::new(
            Status::LauncherFailed,
            Cause::new(
                "helper-not-started",
                Boundary::Fence,
                e.step().to_owned(),
                format!("the fence's helper cannot be started: {e}"),
            )
            .with_errno(e.errno())
            .with_remedy("check the limits of processes and memory of the caller (`ulimit -a`)"),
        )
    })
}

/// A limit, where this holds it.
pub(crate) fn held_by(plan: &LaunchPlan, id: LimitId, by: LimitBy) -> Option<u64> {
    plan.held_limits.iter().find(|l| l.id == id && l.by == by).map(|l| l.limit)
}

/// The limits as they are held in this fence. What the kernel did not take after all is watched; where the order needs it
/// enforced, that is a refusal.
pub(crate) fn confirm_limits(plan: &LaunchPlan, built: &BuiltFence) -> Result<Vec<PlannedLimit>, Refusal> {
    let mut limits = plan.held_limits.clone();
    let taken = built.fence.facts().max_processes.is_some();
    for limit in limits.iter_mut().filter(|l| l.by == LimitBy::PidMax && !taken) {
        limit.state = LimitState::Watched;
        limit.by = LimitBy::Sampling;
        "processes counted every 250 ms: this kernel did not take a pid_max of the PID namespace"
            .clone_into(&mut limit.mechanism);
        if plan.guarantees.iter().any(|g| g.id == Guarantee::Limits && g.required) {
            let cause = Cause::new(
                "limit-not-enforced",
                Boundary::Fence,
                "write(pid_max)",
                format!("`{}` can only be watched here", limit.id.id()),
            )
            .with_remedy("leave out `--require-limits enforced`");
            return Err(Refusal::new(Status::SandboxUnavailable, cause));
        }
    }
    Ok(limits)
}

/// The folders and files of the host that the agent can write.
pub(crate) fn writable_sources(plan: &LaunchPlan, paths: HostPaths<'_>) -> Vec<PathBuf> {
    binds(plan, paths.home, paths.git)
        .into_iter()
        .filter(|b| b.access == BindAccess::ReadWrite)
        .map(|b| b.source)
        .collect()
}

/// Proves a fence by canaries from inside.
pub(crate) fn prove(built: BuiltFence, plan: &LaunchPlan, survey: &Survey) -> Result<ProvenFence, Refusal> {
    let BuiltFence { mut fence, decoys } = built;
    match fence.prove_with(decoys) {
        Ok(proof) => Ok(ProvenFence { fence, proof }),
        Err(e) => Err(unproven(plan, survey, &e)),
    }
}

fn proof_request(plan: &LaunchPlan, paths: HostPaths<'_>) -> ProofRequest {
    ProofRequest {
        decoys: paths.decoys.to_owned(),
        workspace: Some(WorkspaceProof {
            path: plan.cwd.clone(),
            access: match plan.mode {
                AccessMode::ReadOnly => BindAccess::ReadOnly,
                AccessMode::IsolatedWrite => BindAccess::ReadWrite,
            },
        }),
        protected: plan
            .mounts
            .iter()
            .filter(|m| matches!(m.source, MountSource::GitEntry | MountSource::GitObjects))
            .map(|m| m.target.clone())
            .collect(),
    }
}

/// A canary that got through is a hole; one that had no room to write says nothing about the fence. A positive control
/// that fails is the host's doing: where even the runner cannot reach a decoy, a denial inside would prove nothing.
fn unproven(plan: &LaunchPlan, survey: &Survey, e: &ProofError) -> Refusal {
    if let Some(errno) = full_disk(e) {
        let cause = Cause::new("storage-failed", Boundary::Storage, "prove", format!("a disk is full: {e}"))
            .with_errno(errno)
            .with_remedy("make room on the file systems of the state directory and the workspace");
        return Refusal::new(Status::StorageFailed, cause);
    }
    let cause = match e {
        ProofError::Control { name, errno } => {
            let boundary = if survey.outer.is_present() { Boundary::ParentSandbox } else { Boundary::Host };
            Cause::new("positive-control", boundary, format!("control of {name}"), e.to_string())
                .with_errno(*errno)
                .with_remedy(
                    "the canaries need a loopback network and a /proc of this host: bring `lo` up, or start Stockade \
                     outside the sandbox that took them away",
                )
        }
        _ => Cause::new("canary", Boundary::Fence, "prove", format!("the fence does not hold: {e}"))
            .with_remedy("this is a defect of the host or of Stockade: run `stockade doctor` and report it"),
    };
    Refusal::new(Status::SandboxUnavailable, cause.with_evidence(format!("rung {}", plan.rung.id())))
}

/// The error number of a canary that was allowed to write and found no room, or of a decoy that found none.
fn full_disk(e: &ProofError) -> Option<i32> {
    const WRITES: [&str; 3] = ["home-write", "temp-write", "workspace-write"];
    let errno = match e {
        ProofError::Canary(result) => {
            let writes = result.expected == Expectation::Works && WRITES.contains(&result.name.as_str());
            result.inside.filter(|_| writes)?
        }
        ProofError::Control { errno, .. } => *errno,
        _ => return None,
    };
    matches!(Errno::from_raw_os_error(errno), Errno::NOSPC | Errno::DQUOT).then_some(errno)
}

fn identity(plan: &LaunchPlan, survey: &Survey) -> Result<Identity, Refusal> {
    match plan.identity {
        PlannedIdentity::WorkspaceOwner { uid, gid } => {
            // A group of root's would give the agent root's group: it keeps the user's number instead.
            Ok(Identity::Kernel { uid, gid: if gid == 0 { uid } else { gid } })
        }
        PlannedIdentity::PrivateUid => {
            let id =
                stockade_fence::private_kernel_id(&plan.session).map_err(|e| refused(plan, survey, &e))?;
            Ok(Identity::Kernel { uid: id, gid: id })
        }
        PlannedIdentity::KernelRoot { .. } if survey.caller.is_root_host() => Ok(Identity::KernelRoot),
        // The root of a container may not mount in its own namespace: its place is built as any other caller's.
        PlannedIdentity::Caller | PlannedIdentity::KernelRoot { .. } => Ok(Identity::Caller),
    }
}

fn binds(plan: &LaunchPlan, home: &Path, git: Option<GitPaths<'_>>) -> Vec<Bind> {
    let of_git = |path: &Path, m: &Mount| (path.to_owned(), m.target.clone(), BindOwner::Payload);
    plan.mounts
        .iter()
        .filter_map(|m| {
            let (source, target, owner) = match &m.source {
                // What was not made is not there, and never something else in its place.
                MountSource::MadeWorktree => of_git(git?.tree, m),
                MountSource::GitFolder => of_git(git?.folder, m),
                MountSource::GitObjects => of_git(git?.objects, m),
                MountSource::Workspace | MountSource::CallersTree => {
                    (plan.cwd.clone(), m.target.clone(), BindOwner::Payload)
                }
                MountSource::GitEntry => (plan.cwd.join(".git"), m.target.clone(), BindOwner::Payload),
                MountSource::Home => (home.to_owned(), m.target.clone(), BindOwner::Payload),
                MountSource::Provider => provider(plan, &m.target),
                MountSource::Path { path } => (
                    path.clone(),
                    m.target.clone(),
                    if m.writable { BindOwner::Payload } else { BindOwner::Host },
                ),
            };
            let access = if m.writable { BindAccess::ReadWrite } else { BindAccess::ReadOnly };
            Some(Bind { source, target, access, owner })
        })
        .collect()
}

/// A pinned provider's folder is shown whole: some need the files beside their executable. Of an executable that the
/// caller named only the file is shown, because what lies beside it is unknown.
fn provider(plan: &LaunchPlan, target: &Path) -> (PathBuf, PathBuf, BindOwner) {
    let path = &plan.executable.path;
    if plan.executable.pin == PinKind::Unpinned {
        return (path.clone(), plan.executable.inside.clone(), BindOwner::Host);
    }
    let folder = path.parent().unwrap_or(path).to_owned();
    (folder, target.to_owned(), BindOwner::Host)
}

pub(crate) fn refused(plan: &LaunchPlan, survey: &Survey, e: &FenceError) -> Refusal {
    let boundary = if survey.outer.is_present() { Boundary::ParentSandbox } else { Boundary::Fence };
    let mut cause = Cause::new(
        "fence-not-built",
        boundary,
        e.step().to_owned(),
        format!("the fence cannot be built: {e}"),
    )
    .with_errno(e.errno())
    .with_evidence(format!("rung {}", plan.rung.id()))
    .with_remedy("run `stockade doctor`: it names what this host lacks");
    if let Some(path) = e.path() {
        cause = cause.with_evidence(path.display().to_string());
    }
    Refusal::new(Status::SandboxUnavailable, cause)
}

/// The canaries that prove a guarantee, for the receipt.
pub(crate) fn proofs(proof: &Proof, guarantee: Guarantee) -> Vec<String> {
    proof.canaries.iter().filter(|c| c.guarantee == guarantee).map(|c| c.name.clone()).collect()
}
