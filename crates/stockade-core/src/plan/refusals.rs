//! Refusals that come from the host: its platform, and rungs that do not stand.

use crate::{
    order::Order,
    plan::own_sandbox::Missing,
    status::{Boundary, Cause, Refusal, Status},
    survey::{Refused, Rung, Survey},
};

/// The oldest kernel the fence stands on: `mount_setattr` appeared in Linux 5.12.
const OLDEST_KERNEL: (u32, u32) = (5, 12);

/// What to do where the kernel gives no fresh /proc.
pub(super) const UNMASK_PROC: &str = "start the container with an unmasked /proc (Docker: `--security-opt systempaths=unconfined`): \
     the kernel gives no fresh /proc where parts of the outer one are covered";

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

/// Nothing that the order could stand on stands here.
pub(super) fn no_rung(order: &Order, survey: &Survey, wanted: &[Rung], missing: &[Missing]) -> Refusal {
    let nothing = Refused { step: "rungs".to_owned(), errno: 0, errno_name: String::new() };
    let refusal = |rung: Rung| survey.trial(rung).and_then(|t| t.refused.as_ref());
    // Of the direct rungs `ns` asks for least, so its refusal is the real obstacle.
    let plainest = wanted.iter().find(|r| **r == Rung::Ns).and_then(|r| refusal(*r));
    let refused = plainest.or_else(|| wanted.iter().rev().find_map(|r| refusal(*r))).unwrap_or(&nothing);
    let (boundary, whose) = if survey.outer.is_present() {
        (Boundary::ParentSandbox, "the sandbox that Stockade itself runs in")
    } else {
        (Boundary::Host, "this host")
    };
    let (code, end) = match order.rung {
        Some(rung) => {
            ("rung-refused", format!("rung `{}`, which was asked for, does not stand here", rung.id()))
        }
        None => ("no-rung", "no fence stands here".to_owned()),
    };
    let message = format!("{whose} refuses {} with {}: {end}", refused.step, errno_text(refused));
    let mut cause = Cause::refused(code, boundary, refused, message);
    for line in refused_rungs(survey, wanted) {
        cause = cause.with_evidence(line);
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
    let cause = cause
        .with_evidence(
            "Landlock and seccomp alone are not used: they give neither `network` nor `process-visibility`",
        )
        .with_remedy(rung_remedy(survey, refused));
    Refusal::new(Status::SandboxUnavailable, cause)
}

/// A line for each of these rungs that was tried and refused.
pub(super) fn refused_rungs(survey: &Survey, rungs: &[Rung]) -> Vec<String> {
    rungs
        .iter()
        .filter_map(|rung| {
            let r = survey.trial(*rung)?.refused.as_ref()?;
            Some(format!("rung {}: {} {}", rung.id(), r.step, errno_text(r)))
        })
        .collect()
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
        return UNMASK_PROC.to_owned();
    }
    if refused.step.contains("bwrap") {
        return "install bubblewrap 0.12 or newer where only root can change it, without the setuid bit, and first on \
                `PATH`"
            .to_owned();
    }
    if refused.step == "write(uid_map)" && survey.caller.uid == 0 {
        return "start Stockade as a user who is not root, or with the capability CAP_SETFCAP, which root needs to map itself \
                into a user namespace and which something around Stockade has taken away"
            .to_owned();
    }
    match refused.errno_name.as_str() {
        "ENOSPC" => "raise the limit of user namespaces: `sysctl user.max_user_namespaces=15000`".to_owned(),
        "EACCES" => "allow user namespaces for `stockade` in AppArmor, or `sysctl \
                     kernel.apparmor_restrict_unprivileged_userns=0`"
            .to_owned(),
        "EPROTO" => "start Stockade outside whatever answers in the kernel's place: it says that the call worked, which did \
                     nothing"
            .to_owned(),
        _ => "allow unprivileged user namespaces (`sysctl kernel.unprivileged_userns_clone=1`, \
              `sysctl user.max_user_namespaces=15000`), or run on another host"
            .to_owned(),
    }
}

pub(super) fn errno_text(r: &Refused) -> String {
    if r.errno_name.is_empty() && r.errno == 0 {
        "no".to_owned()
    } else if r.errno_name.is_empty() {
        format!("errno {}", r.errno)
    } else {
        r.errno_name.clone()
    }
}
