//! The provider's own sandbox: whether it can be kept here, and every part it lacks.

use std::path::Path;

use super::{refusals::errno_text, rungs};
use crate::{
    mode::{AccessMode, ProviderSandbox},
    order::{Order, base_environment},
    profile::{Profile, SandboxNeed},
    status::{Boundary, Cause, Refusal, Status},
    survey::{BubblewrapFacts, Refused, Rung, Survey},
};

const REPLACE_REMEDY: &str = "run with `--provider-sandbox replace`: Stockade's own fence then stands in its place, proven before the \
     agent starts, and the receipt says so";

/// Whether a sandbox of the provider's runs inside the fence.
pub(super) fn is_kept(order: &Order, profile: &Profile) -> bool {
    order.provider_sandbox == ProviderSandbox::Keep && profile.sandbox.name.is_some()
}

/// A part that the provider's sandbox needs and this host lacks.
pub(super) struct Missing {
    pub(super) refused: Refused,
    pub(super) text: String,
    pub(super) remedy: String,
}

/// Every missing part at once, so that nobody fixes one only to meet the next.
pub(super) fn missing(order: &Order, survey: &Survey, profile: &Profile) -> Vec<Missing> {
    // Every sandbox that is kept runs inside the fence, whether its profile says so or not.
    let mut needs = profile.sandbox.needs.clone();
    if !needs.contains(&SandboxNeed::Nesting) {
        needs.push(SandboxNeed::Nesting);
    }
    needs
        .iter()
        .filter_map(|need| match need {
            SandboxNeed::Landlock => landlock(survey),
            SandboxNeed::Bubblewrap => bubblewrap(&survey.bubblewrap),
            SandboxNeed::Socat => socat(survey.socat.as_deref()),
            SandboxNeed::Nesting => nesting(order, survey),
        })
        .chain(leaves_nothing(order, profile))
        .collect()
}

/// A sandbox that writes into the workspace is not one for a workspace that nothing is to change in.
fn leaves_nothing(order: &Order, profile: &Profile) -> Option<Missing> {
    let first = profile.sandbox.residue.first().filter(|_| order.mode == AccessMode::ReadOnly)?;
    let refused = Refused { step: "mode read-only".to_owned(), errno: 0, errno_name: String::new() };
    Some(Missing {
        refused,
        text: format!("a way to work read-only: it leaves files in the workspace, such as `{first}`"),
        remedy: "run with `--mode isolated-write`".to_owned(),
    })
}

fn socat(found: Option<&Path>) -> Option<Missing> {
    let absent = |step: &str| Refused { step: step.to_owned(), errno: 2, errno_name: "ENOENT".to_owned() };
    let Some(path) = found else {
        return Some(Missing {
            refused: absent("find socat on PATH"),
            text: "socat: no `socat` on PATH".to_owned(),
            remedy: "install socat".to_owned(),
        });
    };
    (!is_on_inner_path(path)).then(|| Missing {
        refused: absent("find socat inside the fence"),
        text: format!("socat: `{}`, the first on PATH, is in no folder of the system", path.display()),
        remedy: "put the folder of a system-wide socat first on `PATH`".to_owned(),
    })
}

fn landlock(survey: &Survey) -> Option<Missing> {
    survey.landlock.refused.as_ref().map(|r| Missing {
        refused: r.clone(),
        text: format!("Landlock: {} answered {}", r.step, errno_text(r)),
        remedy: "use a kernel with Landlock enabled (`lsm=landlock,…` on its command line)".to_owned(),
    })
}

fn bubblewrap(found: &BubblewrapFacts) -> Option<Missing> {
    let absent = |step: &str| Refused { step: step.to_owned(), errno: 2, errno_name: "ENOENT".to_owned() };
    let Some(path) = &found.path else {
        return Some(Missing {
            refused: absent("find bwrap on PATH"),
            text: "bubblewrap: no `bwrap` on PATH".to_owned(),
            remedy: "install bubblewrap".to_owned(),
        });
    };
    if found.setuid {
        return Some(Missing {
            refused: Refused { step: "stat(bwrap)".to_owned(), errno: 0, errno_name: String::new() },
            text: format!("bubblewrap: `{}` is setuid, which a fence never honours", path.display()),
            remedy: "install a bubblewrap without the setuid bit".to_owned(),
        });
    }
    // Inside, only the system's folders exist: another `bwrap` than the one found here would be a substitute.
    (!is_on_inner_path(path)).then(|| Missing {
        refused: absent("find bwrap inside the fence"),
        text: format!("bubblewrap: `{}`, the first on PATH, is in no folder of the system", path.display()),
        remedy: "put the folder of a system-wide bubblewrap first on `PATH`".to_owned(),
    })
}

fn is_on_inner_path(program: &Path) -> bool {
    let inner = base_environment();
    let folders = inner.get("PATH").map(String::as_str).unwrap_or_default();
    folders.split(':').any(|folder| program.parent() == Some(Path::new(folder)))
}

fn nesting(order: &Order, survey: &Survey) -> Option<Missing> {
    let missing = |refused: Refused, text: String, remedy: &str| {
        Some(Missing { refused, text, remedy: remedy.to_owned() })
    };
    if let Some(rung) = order.rung.filter(|r| !r.nests()) {
        let step = Refused { step: format!("rung {}", rung.id()), errno: 0, errno_name: String::new() };
        let text = format!("nesting: rung `{}` was asked for, and no sandbox can run inside it", rung.id());
        return missing(step, text, "leave out `--rung`");
    }
    let tried = survey.trial(Rung::NsNest).map(|t| t.refused.as_ref());
    // A step that the kernel refuses tells more than what would have to follow it.
    if let Some(Some(r)) = tried.filter(|r| r.is_some_and(|r| r.errno != 0)) {
        return missing(r.clone(), format!("nesting: {} answered {}", r.step, errno_text(r)), "");
    }
    if let Some(r) = rungs::owners_not_mapped(order, survey) {
        let text =
            format!("nesting: as root it needs mapped owners, and {} answered {}", r.step, errno_text(&r));
        let remedy = "start Stockade as a user who is not root, or put the workspace on a file system that maps owners, \
                      such as ext4";
        return missing(r, text, remedy);
    }
    match tried {
        Some(None) => None,
        Some(Some(r)) => missing(r.clone(), format!("nesting: it fails that {}", r.step), ""),
        None => missing(
            Refused { step: "rung ns-nest".to_owned(), errno: 0, errno_name: String::new() },
            "nesting: rung `ns-nest` was not tried".to_owned(),
            "",
        ),
    }
}

/// A fence stands here, and the provider's sandbox cannot be kept in it.
pub(super) fn refused(profile: &Profile, missing: &[Missing]) -> Refusal {
    let name = profile.sandbox.name.as_deref().unwrap_or("the provider's own sandbox");
    let parts = missing.iter().map(|m| m.text.split(':').next().unwrap_or_default()).collect::<Vec<_>>();
    let message = format!("{name} cannot be kept here: it lacks {}", parts.join(", "));
    let nowhere = Refused { step: "provider-sandbox".to_owned(), errno: 0, errno_name: String::new() };
    let first = missing.first().map_or(&nowhere, |m| &m.refused);
    let mut cause = Cause::refused("provider-sandbox-unavailable", Boundary::ProviderSandbox, first, message);
    for m in missing {
        cause = cause.with_evidence(m.text.clone());
    }
    let fixes = missing.iter().map(|m| m.remedy.as_str()).filter(|r| !r.is_empty()).collect::<Vec<_>>();
    let remedy = if fixes.is_empty() {
        REPLACE_REMEDY.to_owned()
    } else {
        format!("{REPLACE_REMEDY}. To keep it: {}", fixes.join("; "))
    };
    Refusal::new(Status::SandboxUnavailable, cause.with_remedy(remedy))
}
