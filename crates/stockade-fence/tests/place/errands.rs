//! What this program does when a test starts it, inside a fence or outside.

use std::path::Path;
use std::process::ExitCode;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};
use stockade_core::survey::Rung;
use stockade_fence::{Fence, Role, stdio};

use super::lab::{Lab, identity, wait_for};

/// Runs the errand that the first argument names, if it names one.
pub(crate) fn run(arguments: &[String]) -> Option<ExitCode> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["fence-helper-protocol-1"] => println!("no helper"),
        ["hello"] => println!("hello from the own binary"),
        ["hold", marker] => hold(marker),
        ["under-filter", rung, call, errno] => under_filter(rung, call, errno),
        ["give-capability", path] => give_capability(Path::new(path)),
        ["nested"] => nested(),
        _ => return None,
    }
    Some(ExitCode::SUCCESS)
}

/// Holds a fence with a running agent until somebody kills it.
fn hold(marker: &str) {
    let lab = Lab::new("hold");
    let mut fence = Fence::build(&lab.spec()).unwrap();
    let script =
        format!("trap '' TERM HUP; setsid bash -c 'trap \"\" TERM; exec -a {marker} sleep 300' & sleep 300");
    let mut spawn = lab.shell(Role::Agent, &script);
    spawn.argv[0] = "/bin/bash".into();
    let (theirs, ours) = stdio::pipes().unwrap();
    let id = fence.spawn(&spawn, theirs).unwrap();
    println!("{}", fence.facts().pid);
    wait_for(&mut fence, id);
    drop(ours);
}

/// Builds a fence on a host that refuses one call, and prints kind, step and error number.
fn under_filter(rung: &str, call: &str, errno: &str) {
    let new_user =
        SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(NEW_USER), NEW_USER);
    let (number, rules) = match call {
        "clone-newuser" => (libc::SYS_clone, vec![SeccompRule::new(vec![new_user.unwrap()]).unwrap()]),
        "clone-newnet" => (libc::SYS_clone, vec![flag(libc::CLONE_NEWNET)]),
        "mount" => (libc::SYS_mount, Vec::new()),
        "open_tree" => (libc::SYS_open_tree, Vec::new()),
        "fsmount" => (libc::SYS_fsmount, Vec::new()),
        "landlock" => (libc::SYS_landlock_create_ruleset, Vec::new()),
        "close_range" => (libc::SYS_close_range, Vec::new()),
        other => panic!("no filter for {other}"),
    };
    let action = SeccompAction::Errno(errno.parse().unwrap());
    let rules = [(number, rules)].into_iter().collect();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, TargetArch::x86_64).unwrap();
    let lab = Lab::new("filter");
    seccompiler::apply_filter(&BpfProgram::try_from(filter).unwrap()).unwrap();
    let mut spec = lab.spec();
    spec.rung = if rung == "nsl" { Rung::Nsl } else { Rung::Ns };
    match Fence::build(&spec) {
        Ok(_) => println!("built"),
        Err(e) => println!("{:?} {} {}", e.kind(), e.step(), stockade_fence::errno_name(e.errno())),
    }
}

const NEW_USER: u64 = libc::CLONE_NEWUSER as u64;

fn flag(flag: i32) -> SeccompRule {
    let bits = u64::try_from(flag).unwrap();
    let condition = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(bits), bits);
    SeccompRule::new(vec![condition.unwrap()]).unwrap()
}

/// Prints what the kernel says to a file capability.
fn give_capability(path: &Path) {
    let capability = [1, 0, 0, 2, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let result =
        rustix::fs::setxattr(path, "security.capability", &capability, rustix::fs::XattrFlags::empty());
    println!("{result:?}");
}

/// Builds and proves a fence as uid 0 of a user namespace that is not the initial one.
fn nested() {
    let lab = Lab::new("nested");
    let mut fence = Fence::build(&lab.spec()).unwrap();
    let proof = fence.prove(&lab.proof()).unwrap();
    println!("{:?} kernel uid {}", identity(), proof.kernel_uid);
}
