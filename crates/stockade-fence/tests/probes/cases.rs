//! The cases as one user: the control outside, and each mode on each rung.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use stockade_core::mode::AccessMode;
use stockade_core::survey::Rung;
use stockade_fence::FenceError;
use stockade_fence::probes::host::{Damage, Host, HostRequest, WorkspaceIs};
use stockade_fence::probes::{
    Attempt, Heard, KernelUser, Observation, Observed, PROBES, Probe, ProcessLimit, Said, Setting,
};

use super::fenced;

pub(crate) const ARGUMENT: &str = "stockade-test-cases";

enum Case {
    Outside,
    Inside(AccessMode, Rung, Payload),
}

/// As whom the payload runs, seen from the kernel.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Payload {
    /// As the caller, or on a root host as a user private to the run.
    Unprivileged,
    /// As kernel root without capabilities: on a root host whose file system cannot map owners.
    KernelRoot,
}

impl Payload {
    pub(crate) const ALL: [Self; 2] = [Self::Unprivileged, Self::KernelRoot];

    pub(crate) const fn id(self) -> &'static str {
        match self {
            Self::Unprivileged => "unprivileged",
            Self::KernelRoot => "kernel_root",
        }
    }
}

impl Case {
    fn name(&self) -> String {
        let uid = rustix::process::geteuid();
        match self {
            Self::Outside => format!("outside_every_action_works_as_uid_{uid}"),
            Self::Inside(mode, rung, payload) => {
                let (mode, rung, payload) = (mode.id().replace('-', "_"), rung.id(), payload.id());
                format!("{mode}_on_{rung}_denies_every_escape_as_uid_{uid}_{payload}")
            }
        }
    }

    fn run(&self, host: &Host) -> Vec<String> {
        match self {
            Self::Outside => outside(host),
            Self::Inside(mode, rung, payload) => inside(host, *mode, *rung, *payload),
        }
    }
}

pub(crate) fn run_all(filter: &[&str]) -> ExitCode {
    let mut cases = vec![Case::Outside];
    let is_root = rustix::process::geteuid().is_root();
    for payload in Payload::ALL.into_iter().filter(|payload| is_root || *payload == Payload::Unprivileged) {
        for mode in AccessMode::ALL {
            cases.extend([Rung::Nsl, Rung::Ns].map(|rung| Case::Inside(mode, rung, payload)));
        }
    }
    let mut failures = 0;
    for case in cases {
        let name = case.name();
        if !filter.is_empty() && !filter.iter().any(|word| name.contains(word)) {
            continue;
        }
        let host = start_host(match case {
            Case::Outside => WorkspaceIs::WithListener,
            Case::Inside(..) => WorkspaceIs::Clean,
        });
        let problems = case.run(&host);
        println!("test {name} ... {}", if problems.is_empty() { "ok" } else { "FAILED" });
        for problem in &problems {
            println!("    {problem}");
        }
        failures += usize::from(!problems.is_empty());
    }
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn start_host(workspace: WorkspaceIs) -> Host {
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    // Directly in /tmp, so that the folder whose swap is tried is this user's own.
    let folder = PathBuf::from(format!("/tmp/stockade-fixture-{}-{number}", std::process::id()));
    let request = HostRequest { folder, git: program("git"), sleep: program("sleep"), workspace };
    Host::start(&request).unwrap_or_else(|error| panic!("the host side cannot be made: {error}"))
}

fn program(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap();
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|candidate| candidate.is_file())
        .unwrap_or_else(|| panic!("this test needs `{name}` on PATH"))
}

/// What was observed, and the setting as the fence told it.
struct Seen {
    observed: Vec<Observation>,
    processes: ProcessLimit,
    problems: Vec<String>,
}

fn hear(attempt: Result<Attempt, FenceError>) -> Seen {
    let mut seen = Seen { observed: Vec::new(), processes: ProcessLimit::Watched, problems: Vec::new() };
    let mut attempt = attempt.unwrap();
    loop {
        match attempt.next(Duration::from_secs(1)) {
            Ok(Heard::Said(Said::Observed(observation))) => seen.observed.push(observation),
            Ok(Heard::Said(Said::Built { limits_processes: true })) => {
                seen.processes = ProcessLimit::Enforced;
            }
            Ok(Heard::Said(Said::Closed { gone: false })) => {
                seen.problems.push("processes are left".to_owned());
            }
            Ok(Heard::Said(_) | Heard::Nothing) => {}
            Ok(Heard::End) => return seen,
            Err(error) => {
                seen.problems.push(error.to_string());
                return seen;
            }
        }
    }
}

/// Every probe has an observation that satisfies `is_met`.
fn judge(mut seen: Seen, is_met: impl Fn(&Probe, &Observed) -> bool) -> Vec<String> {
    for probe in PROBES {
        match seen.observed.iter().find(|observation| observation.id == probe.id) {
            None => seen.problems.push(format!("{} was not taken", probe.id)),
            Some(found) if !is_met(probe, &found.seen()) => seen.problems.push(format!(
                "{} {}: {} {} (guarantee {})",
                probe.id,
                probe.action,
                found.observed,
                found.detail,
                probe.guarantee.id()
            )),
            Some(_) => {}
        }
    }
    seen.problems
}

fn outside(host: &Host) -> Vec<String> {
    let uid = rustix::process::geteuid().as_raw();
    let seen = hear(Attempt::outside(host, Path::new("/proc/self/exe")));
    let mut problems = judge(seen, |probe, observed| probe.control.is_met_by(observed, uid));
    problems.extend(unseen_damage(host));
    problems
}

/// The look from outside is worth something: after the actions have worked it sees what they did.
fn unseen_damage(host: &Host) -> Vec<String> {
    let facts = host.facts();
    let at = |path: &str| facts.root.join(path);
    let done = [
        Damage::Changed(at("home/.bashrc")),
        Damage::Changed(at("home/.zshrc")),
        Damage::Removed(at("home/.delme")),
        Damage::Added(at("home/.newfile")),
        Damage::Changed(at("repo/.git/config")),
        Damage::Added(at("repo/.git/hooks/post-checkout")),
        Damage::Changed(facts.workspace.join(".git")),
        Damage::Changed(at("stdin.json")),
        Damage::Changed(at("log.txt")),
        Damage::Leaked(PathBuf::from("/var/tmp").join(&facts.token)),
        Damage::Contacted("TCP service".to_owned()),
        Damage::Contacted("UDP service".to_owned()),
        Damage::Contacted("abstract stream socket".to_owned()),
    ];
    let seen = host.check(AccessMode::IsolatedWrite).unwrap();
    let missed = done.into_iter().filter(|damage| !seen.contains(damage));
    missed.map(|damage| format!("not seen from outside: {damage}")).collect()
}

fn inside(host: &Host, mode: AccessMode, rung: Rung, payload: Payload) -> Vec<String> {
    let git = fenced::PrivateGit::beside(host.facts());
    let request = fenced::request(host.facts(), &git.0, mode, rung, payload);
    let seen = hear(Attempt::inside(host, Path::new("/proc/self/exe"), &request));
    // On a root host an unprivileged payload has a user of its own.
    let is_callers = payload == Payload::KernelRoot || !rustix::process::geteuid().is_root();
    let user = if is_callers { KernelUser::Callers } else { KernelUser::Another };
    let setting = Setting { mode, rung, user, processes: seen.processes };
    let mut problems = judge(seen, |probe, observed| probe.is_met_in(&setting, observed));
    let damage = host.check(mode).unwrap();
    problems.extend(damage.into_iter().map(|damage| format!("from outside: {damage}")));
    problems
}
