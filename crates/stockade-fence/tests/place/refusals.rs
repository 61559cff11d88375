//! Hosts that refuse a step: the step and its error number are named, and nothing stays behind.

use std::process::{Command, Stdio};

use stockade_fence::{BindAccess, Fence, FenceErrorKind};

use super::harness::Test;
use super::lab::{Lab, bind};

pub(crate) const TESTS: &[Test] = &[
    ("a_refused_step_is_named", a_refused_step_is_named),
    ("a_bad_source_is_named", a_bad_source_is_named),
    (
        "root_of_a_nested_user_namespace_builds_as_its_caller",
        root_of_a_nested_user_namespace_builds_as_its_caller,
    ),
];

#[expect(clippy::disallowed_methods, reason = "the tests run themselves on a host that refuses a call")]
fn under_filter(rung: &str, call: &str, errno: i32) -> String {
    let output = Command::new("/proc/self/exe")
        .args(["under-filter", rung, call, &errno.to_string()])
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn a_refused_step_is_named() {
    assert_eq!(under_filter("ns", "clone-newnet", libc::EPERM), "Refused clone(NEWNET) EPERM");
    assert_eq!(under_filter("ns", "mount", libc::EACCES), "Refused mount(MS_PRIVATE) EACCES");
    assert_eq!(under_filter("ns", "fsmount", libc::EPERM), "Refused fsmount(proc) EPERM");
    assert_eq!(under_filter("ns", "open_tree", libc::EPERM), "Refused open_tree(CLONE) EPERM");
    assert_eq!(under_filter("ns", "close_range", libc::ENOSYS), "Refused close_range(CLOEXEC) ENOSYS");
    for errno in [libc::ENOSYS, libc::EOPNOTSUPP] {
        let name = stockade_fence::errno_name(errno);
        assert_eq!(under_filter("nsl", "landlock", errno), format!("Refused landlock_create_ruleset {name}"));
        assert_eq!(under_filter("ns", "landlock", errno), "built");
    }
    assert_eq!(under_filter("ns", "clone-newuser", libc::EPERM), "Refused clone(NEWUSER) EPERM");
}

fn a_bad_source_is_named() {
    let lab = Lab::new("bad");
    let missing = lab.root.join("missing");
    let mut spec = lab.spec();
    spec.binds.push(bind(&missing, &missing, BindAccess::ReadOnly));
    let error = Fence::build(&spec).unwrap_err();
    assert_eq!(
        (error.kind(), error.step(), error.errno()),
        (FenceErrorKind::Source, "openat2", libc::ENOENT)
    );
    assert_eq!(error.path(), Some(missing.as_path()));
    assert_eq!(error.to_string(), format!("openat2 on `{}`: ENOENT", missing.display()));
}

#[expect(clippy::disallowed_methods, reason = "the tests run themselves in a nested user namespace")]
fn root_of_a_nested_user_namespace_builds_as_its_caller() {
    let own = std::env::current_exe().unwrap();
    let output = Command::new("/usr/bin/unshare").arg("-Ur").arg(own).arg("nested").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let uid = rustix::process::geteuid().as_raw();
    assert!(said.starts_with("Caller kernel uid "), "{said} {}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "uid {uid}: {said}");
}
