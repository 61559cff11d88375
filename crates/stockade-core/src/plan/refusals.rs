//! Refusals that come from the host: platform, rungs, and the provider's own sandbox.

use crate::{
    mode::ProviderSandbox,
    order::Order,
    profile::{Profile, SandboxNeed},
    status::{Boundary, Cause, Refusal, Status},
    survey::{Refused, Rung, Survey},
};

/// The oldest kernel the fence stands on: `mount_setattr` appeared in Linux 5.12.
const OLDEST_KERNEL: (u32, u32) = (5, 12);

const REPLACE_REMEDY: &str = "run with `--provider-sandbox replace`: Stockade's own fence then stands in its place, proven before the \
     agent starts, and the receipt says so";

/// Refuses platforms the fence is not made for.
pub(super) fn platform(survey: &Survey) -> Result<(), Refusal> {
    let refuse = |step: &str, message: String| {
        Err(Refusal::new(
            Status::PlatformUnsupported,
            Cause::new("platform", Boundary::Host, step, message).with_remedy(
                "run Stockade on Linux x86_64, kernel 5.12 or newer: a virtual machine or a cloud runner will do",
            ),
        ))
    };
    if survey.machine != "x86_64" {
        return refuse("uname(machine)", format!("this machine is `{}`, not x86_64", survey.machine));
    }
    let mut numbers = survey.kernel.split(|c: char| !c.is_ascii_digit()).map_while(|n| n.parse::<u32>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) if (major, minor) >= OLDEST_KERNEL => Ok(()),
        _ => refuse("uname(release)", format!("the kernel `{}` is older than 5.12", survey.kernel)),
    }
}

/// Finds the first rung that stands and settles the provider's own sandbox.
pub(super) fn fence(order: &Order, survey: &Survey, profile: &Profile) -> Result<Rung, Refusal> {
    let keep = order.provider_sandbox == ProviderSandbox::Keep && profile.sandbox.name.is_some();
    let missing = if keep { missing_needs(survey, profile) } else { Vec::new() };
    let Some(rung) = Rung::ALL.into_iter().find(|r| survey.stands(*r)) else {
        return Err(Refusal::new(Status::SandboxUnavailable, no_rung(survey, &missing)));
    };
    if keep {
        return Err(Refusal::new(Status::SandboxUnavailable, keep_refused(profile, &missing)));
    }
    Ok(rung)
}

/// A part that the provider's sandbox needs and this host lacks.
struct Missing {
    refused: Refused,
    text: String,
    remedy: String,
}

/// Every missing part at once, so that nobody fixes one only to meet the next.
fn missing_needs(survey: &Survey, profile: &Profile) -> Vec<Missing> {
    // Every sandbox that is kept runs inside the fence, whether its profile says so or not.
    let mut needs = profile.sandbox.needs.clone();
    if !needs.contains(&SandboxNeed::Nesting) {
        needs.push(SandboxNeed::Nesting);
    }
    needs
        .iter()
        .filter_map(|need| match need {
            SandboxNeed::Landlock => survey.landlock.refused.as_ref().map(|r| Missing {
                refused: r.clone(),
                text: format!("Landlock: {} answered {}", r.step, errno_text(r)),
                remedy: "use a kernel with Landlock enabled (`lsm=landlock,…` on its command line)"
                    .to_owned(),
            }),
            SandboxNeed::Bubblewrap => match &survey.bubblewrap.path {
                None => Some(Missing {
                    refused: Refused {
                        step: "find bwrap on PATH".to_owned(),
                        errno: 2,
                        errno_name: "ENOENT".to_owned(),
                    },
                    text: "bubblewrap: no `bwrap` on PATH".to_owned(),
                    remedy: "install bubblewrap".to_owned(),
                }),
                Some(path) if survey.bubblewrap.setuid => Some(Missing {
                    refused: Refused { step: "stat(bwrap)".to_owned(), errno: 0, errno_name: String::new() },
                    text: format!("bubblewrap: `{}` is setuid, which a fence never honours", path.display()),
                    remedy: "install a bubblewrap without the setuid bit".to_owned(),
                }),
                Some(_) => None,
            },
            SandboxNeed::Nesting => Some(Missing {
                // What the fence's own filter answers, as the canary for `no-nesting` sees on every run.
                refused: Refused {
                    step: "unshare(NEWUSER) inside the fence".to_owned(),
                    errno: 1,
                    errno_name: "EPERM".to_owned(),
                },
                text:
                    "nesting: this version of Stockade has no rung that lets a sandbox run inside its fence"
                        .to_owned(),
                remedy: String::new(),
            }),
        })
        .collect()
}

fn keep_refused(profile: &Profile, missing: &[Missing]) -> Cause {
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
        format!("{REPLACE_REMEDY}. To keep it one day, this host also needs: {}", fixes.join("; "))
    };
    cause.with_remedy(remedy)
}

fn no_rung(survey: &Survey, missing: &[Missing]) -> Cause {
    let nothing = Refused { step: "rungs".to_owned(), errno: 0, errno_name: String::new() };
    // The last rung asks for least, so its refusal is the real obstacle.
    let refused = survey.rungs.iter().rev().find_map(|t| t.refused.as_ref()).unwrap_or(&nothing);
    let (boundary, whose) = if survey.outer.is_present() {
        (Boundary::ParentSandbox, "the sandbox that Stockade itself runs in")
    } else {
        (Boundary::Host, "this host")
    };
    let mut cause = Cause::refused(
        "no-rung",
        boundary,
        refused,
        format!("{whose} refuses {} with {}: no fence stands here", refused.step, errno_text(refused)),
    );
    for trial in &survey.rungs {
        if let Some(r) = &trial.refused {
            cause = cause.with_evidence(format!("rung {}: {} {}", trial.rung.id(), r.step, errno_text(r)));
        }
    }
    if !survey.outer.intercepted_calls.is_empty() {
        cause = cause.with_evidence(format!(
            "calls answered by a foreign seccomp filter: {}",
            survey.outer.intercepted_calls.join(", ")
        ));
    }
    if survey.outer.landlock_layers > 0 {
        cause = cause
            .with_evidence(format!("already inside {} Landlock domain(s)", survey.outer.landlock_layers));
    }
    if let Some(r) = &survey.landlock.refused {
        cause = cause.with_evidence(format!("landlock: {} {}", r.step, errno_text(r)));
    }
    for m in missing {
        cause = cause.with_evidence(format!("for the provider's own sandbox, {}", m.text));
    }
    cause
        .with_evidence(
            "Landlock and seccomp alone are not used: they give neither `network` nor `process-visibility`",
        )
        .with_remedy(rung_remedy(survey, refused))
}

fn rung_remedy(survey: &Survey, refused: &Refused) -> String {
    if survey.outer.landlock_layers > 0 {
        return "start Stockade outside the other sandbox: inside a Landlock domain nothing can be mounted"
            .to_owned();
    }
    if !survey.outer.intercepted_calls.is_empty() {
        return "start the container with a seccomp profile that allows user namespaces and mounts \
                (Docker: `--security-opt seccomp=unconfined --security-opt systempaths=unconfined`), or start Stockade outside it"
            .to_owned();
    }
    if refused.step.contains("(proc)") {
        return "start the container with an unmasked /proc (Docker: `--security-opt systempaths=unconfined`): \
                the kernel gives no fresh /proc where parts of the outer one are covered"
            .to_owned();
    }
    match refused.errno_name.as_str() {
        "ENOSPC" => "raise the limit of user namespaces: `sysctl user.max_user_namespaces=15000`".to_owned(),
        "EACCES" => "allow user namespaces for `stockade` in AppArmor, or `sysctl \
                     kernel.apparmor_restrict_unprivileged_userns=0`"
            .to_owned(),
        _ => "allow unprivileged user namespaces (`sysctl kernel.unprivileged_userns_clone=1`, \
              `sysctl user.max_user_namespaces=15000`), or run on another host"
            .to_owned(),
    }
}

fn errno_text(r: &Refused) -> String {
    if r.errno_name.is_empty() && r.errno == 0 {
        "no".to_owned()
    } else if r.errno_name.is_empty() {
        format!("errno {}", r.errno)
    } else {
        r.errno_name.clone()
    }
}
