//! Which rungs an order can stand on, and which of those that stand is taken.

use super::{PlannedGuarantee, guarantees, launch, limits, own_sandbox, refusals};
use crate::{
    guarantee::Guarantee,
    limits::PlannedLimit,
    mode::AccessMode,
    order::Order,
    plan::Mount,
    profile::Profile,
    status::{Boundary, Cause, Refusal, Status},
    survey::{Refused, Rung, RungTrial, Survey},
};

/// What an order stands on.
pub(super) struct Footing {
    pub(super) rung: Rung,
    /// Rungs that would have been taken before it and do not stand here.
    pub(super) rejected: Vec<RungTrial>,
    pub(super) guarantees: Vec<PlannedGuarantee>,
    pub(super) limits: Vec<PlannedLimit>,
}

/// The rungs to try for an order, in this order. Those that cannot carry it come last: they are reached only where no
/// other stands, to tell what would.
pub(super) fn wanted(order: &Order, profile: &Profile) -> Vec<Rung> {
    if let Some(rung) = order.rung {
        return vec![rung];
    }
    let mut rungs = Vec::new();
    if own_sandbox::is_kept(order, profile) {
        rungs.push(Rung::NsNest);
    }
    rungs.extend([Rung::Nsl, Rung::Ns]);
    rungs.extend(if order.accept_missing.contains(&Guarantee::ProcessVisibility) {
        [Rung::NsHostproc, Rung::Bs]
    } else {
        [Rung::Bs, Rung::NsHostproc]
    });
    rungs
}

/// Takes the first rung that stands and carries the order.
pub(super) fn choose(order: &Order, survey: &Survey, profile: &Profile) -> Result<Footing, Refusal> {
    let wanted = wanted(order, profile);
    let kept = own_sandbox::is_kept(order, profile);
    let missing = if kept { own_sandbox::missing(order, survey, profile) } else { Vec::new() };
    if !wanted.iter().any(|r| survey.stands(*r)) {
        return Err(refusals::no_rung(order, survey, &wanted, &missing));
    }
    if !missing.is_empty() {
        return Err(own_sandbox::refused(profile, &missing));
    }
    let mut first = None;
    for (at, rung) in wanted.iter().copied().enumerate() {
        if !survey.stands(rung) || (kept && !rung.nests()) {
            continue;
        }
        let before = wanted.get(..at).unwrap_or_default();
        match carried(order, survey, rung) {
            Ok((guarantees, limits)) => {
                let refused = |r: &Rung| survey.trial(*r).filter(|t| t.refused.is_some()).cloned();
                let rejected = before.iter().filter_map(refused).collect();
                return Ok(Footing { rung, rejected, guarantees, limits });
            }
            Err(cause) => {
                first.get_or_insert_with(|| {
                    let lines = refusals::refused_rungs(survey, before);
                    let cause = lines.into_iter().fold(*cause, Cause::with_evidence);
                    Refusal::new(Status::SandboxUnavailable, cause)
                });
            }
        }
    }
    Err(first.unwrap_or_else(|| refusals::no_rung(order, survey, &wanted, &missing)))
}

/// The guarantees of a rung, and how its limits are held.
type Carried = (Vec<PlannedGuarantee>, Vec<PlannedLimit>);

/// Whether a rung carries the order, and with which guarantees.
fn carried(order: &Order, survey: &Survey, rung: Rung) -> Result<Carried, Box<Cause>> {
    match rung {
        Rung::NsNest => nests(order, survey)?,
        Rung::Bs => fits_bubblewrap(order, survey)?,
        Rung::Nsl | Rung::Ns | Rung::NsHostproc => {}
    }
    let limits = limits::of(order, survey, &launch::identity(order, survey, rung), rung);
    limits::require(order, &limits).map_err(|refusal| refusal.cause)?;
    let guarantees = guarantees::of(order, rung, &limits)?;
    Ok((guarantees, limits))
}

/// Why the payload would have to be kernel uid 0, which a rung that nests never is: it could change the kernel's settings.
pub(super) fn owners_not_mapped(order: &Order, survey: &Survey) -> Option<Refused> {
    if !survey.caller.is_kernel_root() {
        return None;
    }
    if !survey.caller.is_root_host() {
        let step = "mount_setattr(IDMAP) without CAP_SYS_ADMIN".to_owned();
        return Some(Refused { step, errno: 1, errno_name: "EPERM".to_owned() });
    }
    order.workspace.idmap_refused.clone()
}

fn nests(order: &Order, survey: &Survey) -> Result<(), Box<Cause>> {
    let Some(refused) = owners_not_mapped(order, survey) else { return Ok(()) };
    let message =
        "a fence that nests never runs as kernel uid 0, and the workspace's owners cannot be mapped here";
    Err(Box::new(
        Cause::refused("rung-does-not-carry", Boundary::Fence, &refused, message)
            .with_evidence("rung ns-nest")
            .with_remedy(
                "start Stockade as a user who is not root, put the workspace on a file system that maps owners, such as \
                 ext4, or take another rung",
            ),
    ))
}

fn fits_bubblewrap(order: &Order, survey: &Survey) -> Result<(), Box<Cause>> {
    let refuse = |step: &str, message: String, remedy: &str| {
        Err(Box::new(
            Cause::new("rung-does-not-carry", Boundary::Fence, step, message)
                .with_evidence("rung bs")
                .with_remedy(remedy),
        ))
    };
    let mounts = launch::mounts(order);
    let nested = |m: &Mount| {
        mounts.iter().any(|o| o.writable && o.target != m.target && m.target.starts_with(&o.target))
    };
    if let Some(mount) = mounts.iter().find(|m| nested(m))
        && !survey.bubblewrap.resists_links()
    {
        let version = survey.bubblewrap.version.as_deref().unwrap_or("of an unreadable version");
        return refuse(
            "mount target under a writable tree",
            format!(
                "bubblewrap {version} may follow a link to `{}`, which lies under a writable tree (CVE-2026-87766)",
                mount.target.display()
            ),
            "install bubblewrap 0.12 or newer, or use `--mode read-only` or a plain folder",
        );
    }
    let owner = order.workspace.owner_uid;
    if survey.caller.is_kernel_root() && order.mode == AccessMode::IsolatedWrite && owner != 0 {
        return refuse(
            "workspace owner",
            format!("bubblewrap maps no owners: as root it cannot write a workspace of user {owner}"),
            "start Stockade as that user",
        );
    }
    Ok(())
}
