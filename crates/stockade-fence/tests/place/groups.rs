//! Control groups, on a root host that has some: what a fence is in from its first process on, and what is left of it.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use stockade_core::limits::CgroupHierarchy;
use stockade_core::survey::Rung;
use stockade_fence::survey::{Extent, SurveyRequest, measure};
use stockade_fence::{Fence, FenceErrorKind, GroupSpec, Identity};

use super::harness::Test;
use super::lab::Lab;

pub(crate) const TESTS: &[Test] = &[
    ("groups_hold_what_no_other_limit_can", groups_hold_what_no_other_limit_can),
    (
        "a_group_that_cannot_be_made_is_named_and_none_stays",
        a_group_that_cannot_be_made_is_named_and_none_stays,
    ),
    ("a_dropped_fence_takes_its_groups_along", a_dropped_fence_takes_its_groups_along),
];

/// Groups of this host with a memory and a process controller. A host without them cannot show what is claimed.
pub(crate) fn group(name: &str) -> GroupSpec {
    let survey = measure(SurveyRequest { path: None, extent: Extent::FirstThatStands }, &[Rung::Ns]);
    assert!(survey.cgroups.with("memory").is_some(), "no memory controller: {:?}", survey.cgroups);
    assert!(survey.cgroups.with("pids").is_some(), "no process controller: {:?}", survey.cgroups);
    GroupSpec {
        name: format!("stockade-place-{name}-{}", std::process::id()),
        hierarchies: survey.cgroups.hierarchies,
        memory_bytes: Some(64 << 20),
        processes: Some(40),
    }
}

fn folders(group: &GroupSpec) -> Vec<PathBuf> {
    group.hierarchies.iter().map(|h| h.parent.join(&group.name)).collect()
}

fn groups_hold_what_no_other_limit_can() {
    let lab = Lab::new("groups");
    let group = group("hold");
    let mut spec = lab.spec();
    // Kernel uid 0, which no limit per user binds, and fewer processes than pid_max takes.
    spec.identity = Identity::KernelRoot;
    spec.max_processes = None;
    spec.group = Some(group.clone());
    let mut fence = Fence::build(&spec).unwrap();
    fence.prove(&lab.proof()).unwrap();
    for folder in folders(&group) {
        let procs = fs::read_to_string(folder.join("cgroup.procs")).unwrap();
        assert_eq!(procs, format!("{}\n", fence.facts().pid), "PID 1 alone is in {}", folder.display());
    }
    let out = lab
        .run(&mut fence, "cat /proc/self/cgroup; i=0; while [ $i -lt 100 ]; do sleep 60 & i=$((i+1)); done");
    assert!(
        !out.stdout.contains("stockade-place-hold") || out.stdout.contains("0::/stockade"),
        "{}",
        out.stdout
    );
    assert!(out.stderr.contains("fork"), "{}", out.stderr);
    assert!((30..40).contains(&out.exited.left_behind), "{:?}", out.exited);
    assert_eq!(fence.group_memory().unwrap().kills, 0);

    let out = lab.run(&mut fence, "tail /dev/zero");
    let memory = fence.group_memory().unwrap();
    assert!(memory.kills >= 1, "{memory:?} {out:?}");
    assert!(memory.peak > 32 << 20 && memory.peak <= 64 << 20, "{memory:?}");

    let end = fence.close(Duration::from_secs(5));
    assert!(end.gone && end.stuck.is_empty(), "{end:?}");
    let ended = end.group.unwrap();
    assert_eq!((ended.empty, ended.left), (Some(true), Vec::new()));
    assert!(ended.memory.unwrap().kills >= 1);
    assert!(folders(&group).iter().all(|f| !f.exists()));
}

fn a_group_that_cannot_be_made_is_named_and_none_stays() {
    let lab = Lab::new("no-group");
    let mut group = group("none");
    let parent = PathBuf::from("/sys/fs/cgroup/there-is-no-such-group");
    group.hierarchies.push(CgroupHierarchy { version: 1, parent, controllers: vec!["pids".into()] });
    let mut spec = lab.spec();
    spec.group = Some(group.clone());
    let refused = Fence::build(&spec).unwrap_err();
    assert_eq!((refused.kind(), refused.step()), (FenceErrorKind::Refused, "mkdir(cgroup)"));
    assert_eq!(refused.errno(), libc::ENOENT);
    assert!(folders(&group).iter().all(|f| !f.exists()));

    // Made, and then the build fails elsewhere.
    group.hierarchies.pop();
    spec.group = Some(group.clone());
    spec.binds[0].source = "/nowhere/at/all".into();
    assert_eq!(Fence::build(&spec).unwrap_err().errno(), libc::ENOENT);
    assert!(folders(&group).iter().all(|f| !f.exists()));
}

fn a_dropped_fence_takes_its_groups_along() {
    let lab = Lab::new("drop-group");
    let group = group("drop");
    let mut spec = lab.spec();
    spec.group = Some(group.clone());
    let fence = Fence::build(&spec).unwrap();
    assert!(folders(&group).iter().all(|f| f.exists()));
    drop(fence);
    assert!(folders(&group).iter().all(|f| !f.exists()));
}
