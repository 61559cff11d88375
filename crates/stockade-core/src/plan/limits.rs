//! How each limit is held on this host, and whether that is enough.

use super::PlannedIdentity;
use crate::{
    budget::Usd,
    limits::{CgroupFacts, CgroupHierarchy, LimitBy, LimitDemand, LimitId, LimitState, PlannedLimit},
    order::Order,
    status::{Boundary, Cause, Refusal, Status},
    survey::{Refused, Rung, Survey},
};

/// The first kernel whose `pid_max` is one of the PID namespace.
const PID_MAX_PER_NAMESPACE: (u32, u32) = (6, 14);
/// The least that `pid_max` takes (`RESERVED_PIDS` of the kernel, plus one).
const LEAST_PID_MAX: u32 = 301;
/// The first kernel that counts processes per user and user namespace. Before, it counts all of a user's on the host.
const NPROC_PER_NAMESPACE: (u32, u32) = (5, 14);

const MORE_CGROUPS: &str = "run Stockade where it may make control groups: as root with a writable /sys/fs/cgroup, or in a \
     delegated group (`systemd-run --user --scope -p Delegate=yes stockade run …`)";

/// Every limit of an order, and what holds it.
pub(super) fn of(
    order: &Order,
    survey: &Survey,
    identity: &PlannedIdentity,
    rung: Rung,
) -> Vec<PlannedLimit> {
    let limits = &order.limits;
    let enforced = |id, limit, by, mechanism: &str| PlannedLimit {
        id,
        limit,
        state: LimitState::Enforced,
        by,
        mechanism: mechanism.to_owned(),
        remedy: None,
    };
    let groups = usable_groups(survey, identity, rung);
    let mut all = vec![processes(limits.max_processes, survey, identity, rung, &groups)];
    all.extend(limits.max_memory_bytes.map(|limit| memory(limit, &groups)));
    all.extend([
        enforced(LimitId::OpenFiles, limits.max_open_files, LimitBy::Rlimit, "RLIMIT_NOFILE of each process"),
        enforced(LimitId::FileSize, limits.max_file_bytes, LimitBy::Rlimit, "RLIMIT_FSIZE of each process"),
        enforced(
            LimitId::Temp,
            limits.temp_bytes,
            LimitBy::Tmpfs,
            "sized file systems in memory: /tmp and /var/tmp each; /dev/shm 64 MiB, /run 16 MiB",
        ),
    ]);
    all.extend(limits.max_growth_bytes.map(growth));
    all.push(enforced(
        LimitId::Output,
        limits.output_bytes,
        LimitBy::Runner,
        &format!(
            "the runner keeps no more of each stream and reads {} a second at most",
            crate::limits::size_text(limits.output_bytes_per_s)
        ),
    ));
    let budgets = [
        (LimitId::Turns, limits.max_turns, "answers to calls of the main turn"),
        (LimitId::Tokens, limits.max_tokens, "the tokens that answers state"),
        (
            LimitId::Cost,
            limits.max_cost_usd.map(Usd::millionths),
            "the tokens that answers state, by their price",
        ),
    ];
    for (id, limit, counted) in budgets {
        let mechanism = format!("the gateway forwards no further call; it counts {counted}");
        all.extend(limit.map(|limit| enforced(id, limit, LimitBy::Gateway, &mechanism)));
    }
    all
}

/// Control groups that whoever is inside cannot lift.
fn usable_groups(survey: &Survey, identity: &PlannedIdentity, rung: Rung) -> CgroupFacts {
    if *identity == PlannedIdentity::Caller && rung.nests() {
        // A sandbox inside can mount the groups, and their files belong to the user that it runs as.
        let step = "the caller's groups are the agent's own on a rung that nests".to_owned();
        let refused = Refused { step, errno: 0, errno_name: String::new() };
        return CgroupFacts { hierarchies: Vec::new(), refused: Some(refused) };
    }
    survey.cgroups.clone()
}

fn processes(
    max: u32,
    survey: &Survey,
    identity: &PlannedIdentity,
    rung: Rung,
    groups: &CgroupFacts,
) -> PlannedLimit {
    let kernel = version(&survey.kernel);
    let found = if kernel >= NPROC_PER_NAMESPACE && is_another_uid_than_0(survey, identity) {
        Some((LimitBy::Nproc, "RLIMIT_NPROC, counted in the fence's own user namespace".to_owned()))
    } else if kernel >= PID_MAX_PER_NAMESPACE && max >= LEAST_PID_MAX && has_a_proc_of_its_own(rung) {
        Some((LimitBy::PidMax, "pid_max of the PID namespace".to_owned()))
    } else {
        groups
            .with("pids")
            .map(|h| (LimitBy::Cgroup, format!("pids.max of a control group (v{})", h.version)))
    };
    match found {
        Some((by, mechanism)) => PlannedLimit {
            id: LimitId::Processes,
            limit: u64::from(max),
            state: LimitState::Enforced,
            by,
            mechanism,
            remedy: None,
        },
        None => PlannedLimit {
            id: LimitId::Processes,
            limit: u64::from(max),
            state: LimitState::Watched,
            by: LimitBy::Sampling,
            mechanism: format!(
                "processes counted every 250 ms: {}, and {}",
                if kernel < NPROC_PER_NAMESPACE {
                    "this kernel counts a user's processes on the whole host"
                } else {
                    "the agent may run as kernel uid 0, which no limit per user binds"
                },
                no_group(groups)
            ),
            remedy: Some(MORE_CGROUPS.to_owned()),
        },
    }
}

fn memory(limit: u64, groups: &CgroupFacts) -> PlannedLimit {
    let id = LimitId::Memory;
    match groups.with("memory") {
        Some(h) => {
            let file = if h.version == 1 { "memory.limit_in_bytes" } else { "memory.max" };
            let mechanism = format!("{file} of a control group (v{})", h.version);
            PlannedLimit {
                id,
                limit,
                state: LimitState::Enforced,
                by: LimitBy::Cgroup,
                mechanism,
                remedy: None,
            }
        }
        None => PlannedLimit {
            id,
            limit,
            state: LimitState::Watched,
            by: LimitBy::Sampling,
            mechanism: format!("resident memory added up every 250 ms: {}", no_group(groups)),
            remedy: Some(MORE_CGROUPS.to_owned()),
        },
    }
}

fn growth(limit: u64) -> PlannedLimit {
    PlannedLimit {
        id: LimitId::Growth,
        limit,
        state: LimitState::Watched,
        by: LimitBy::Sampling,
        mechanism: "free space looked at every 250 ms, the folders walked when it falls and every 5 s: the kernel has no \
                    limit for a folder"
            .to_owned(),
        remedy: Some(
            "say `--max-growth none` and give the workspace and the state directory a file system of that size".to_owned(),
        ),
    }
}

fn no_group(facts: &CgroupFacts) -> String {
    match &facts.refused {
        Some(r) if r.errno_name.is_empty() => format!("no control group can be made ({})", r.step),
        Some(r) => format!("no control group can be made ({} {})", r.step, r.errno_name),
        None => "no control group can be made".to_owned(),
    }
}

/// Where that cannot be known, such as in a user namespace that may map anything, it counts as uid 0.
fn is_another_uid_than_0(survey: &Survey, identity: &PlannedIdentity) -> bool {
    match identity {
        PlannedIdentity::WorkspaceOwner { .. } | PlannedIdentity::PrivateUid => true,
        PlannedIdentity::Caller => survey.caller.uid != 0 && survey.caller.initial_user_namespace,
        PlannedIdentity::KernelRoot { .. } => false,
    }
}

const fn has_a_proc_of_its_own(rung: Rung) -> bool {
    match rung {
        Rung::Nsl | Rung::Ns | Rung::NsNest => true,
        Rung::NsHostproc | Rung::Bs => false,
    }
}

fn version(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|n| n.parse::<u32>().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// The groups to make: those that hold a limit. Where one is made anyway, a version 2 group without controllers comes
/// with it: it costs little, ends everything in it at one word, and says when it is empty.
pub(super) fn groups(limits: &[PlannedLimit], survey: &Survey) -> Vec<CgroupHierarchy> {
    let needed = |id: LimitId| limits.iter().any(|l| l.id == id && l.by == LimitBy::Cgroup);
    let (memory, pids) = (needed(LimitId::Memory), needed(LimitId::Processes));
    if !memory && !pids {
        return Vec::new();
    }
    let wanted = |h: &&CgroupHierarchy| {
        let has = |name: &str| h.controllers.iter().any(|c| c == name);
        h.version == 2 || (memory && has("memory")) || (pids && has("pids"))
    };
    survey.cgroups.hierarchies.iter().filter(wanted).cloned().collect()
}

/// Refuses what is only watched where the order demands more.
pub(super) fn require(order: &Order, limits: &[PlannedLimit]) -> Result<(), Refusal> {
    let accepted = order.accept_missing.contains(&crate::guarantee::Guarantee::Limits);
    if order.require_limits == LimitDemand::Reported || accepted {
        return Ok(());
    }
    let watched: Vec<&PlannedLimit> = limits.iter().filter(|l| l.state == LimitState::Watched).collect();
    let Some(first) = watched.first() else { return Ok(()) };
    let names: Vec<&str> = watched.iter().map(|l| l.id.id()).collect();
    let mut cause = Cause::new(
        "limit-not-enforced",
        Boundary::Fence,
        format!("limit {}", first.id.id()),
        format!("`--require-limits enforced`, and this host can only watch: {}", names.join(", ")),
    );
    let mut remedies: Vec<&str> = Vec::new();
    for l in &watched {
        cause = cause.with_evidence(format!("{}: {}", l.id.id(), l.mechanism));
        remedies.extend(l.remedy.as_deref().filter(|r| !remedies.contains(r)));
    }
    remedies.push("or leave out `--require-limits enforced`");
    Err(Refusal::new(Status::SandboxUnavailable, cause.with_remedy(remedies.join("; "))))
}

/// The guarantee `limits` in one line.
pub(super) fn sentence(limits: &[PlannedLimit]) -> String {
    let named =
        |state| limits.iter().filter(|l| l.state == state).map(|l| l.id.id()).collect::<Vec<_>>().join(", ");
    match (named(LimitState::Enforced), named(LimitState::Watched)) {
        (enforced, watched) if watched.is_empty() => format!("enforced: {enforced}"),
        (enforced, watched) => format!("enforced: {enforced}; watched: {watched}"),
    }
}
