//! The survey names what a host lacks: by the step that was refused and its error number, on every class of host.
//! Needs root, to become another user, and a kernel with Landlock and user namespaces, to take them away.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test: a panic is how it fails")]

use std::process::Command;

use stockade_core::survey::{Refused, Rung, Survey};

/// What the survey says on a host of these classes.
#[expect(clippy::disallowed_methods, reason = "a test that starts its own tool")]
fn survey_on(classes: &[&str]) -> Survey {
    let output = Command::new(env!("CARGO_BIN_EXE_host-class"))
        .args(classes)
        .args(["--", env!("CARGO_BIN_EXE_measure-host"), "every-rung"])
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{classes:?}: {} {stderr}", output.status);
    serde_json::from_slice(&output.stdout).unwrap()
}

fn refused(step: &str, errno: i32, errno_name: &str) -> Refused {
    Refused { step: step.to_owned(), errno, errno_name: errno_name.to_owned() }
}

/// Root, and a user who owns nothing.
const USERS: [&[&str]; 2] = [&[], &["new-uid=54321"]];

/// Every host class as root and as an unprivileged user.
fn on_both(classes: &[&str], check: impl Fn(&Survey)) {
    for user in USERS {
        let survey = survey_on(&[user, classes].concat());
        check(&survey);
    }
}

fn refusal(survey: &Survey, rung: Rung) -> Option<Refused> {
    survey.trial(rung).expect("the rung was tried").refused.clone()
}

#[test]
fn every_rung_stands_on_a_plain_host_and_nobody_elses_fence_is_seen() {
    on_both(&[], |survey| {
        assert!(Rung::ALL.into_iter().all(|rung| survey.stands(rung)), "{survey:#?}");
        let bubblewrap = &survey.bubblewrap;
        assert!(
            bubblewrap.path.is_some() && bubblewrap.untrusted.is_none() && !bubblewrap.setuid,
            "{bubblewrap:?}"
        );
        assert!(bubblewrap.version.is_some(), "{bubblewrap:?}");
        assert!(survey.landlock.abi.is_some_and(|abi| abi >= 6) && survey.landlock.refused.is_none());
        assert_eq!(survey.seccomp_refused, None);
        assert!(!survey.outer.is_present(), "{survey:#?}");
        assert!(survey.caller.initial_user_namespace);
    });
    assert_eq!(survey_on(&["new-uid=54321"]).caller.groups, Vec::<u32>::new());
    assert!(survey_on(&[]).caller.is_root_host(), "this test needs root");
}

#[test]
fn without_landlock_the_second_rung_stands_and_the_first_names_the_missing_call() {
    for (class, errno, name) in
        [("no-landlock", libc::ENOSYS, "ENOSYS"), ("landlock-eopnotsupp", libc::EOPNOTSUPP, "EOPNOTSUPP")]
    {
        on_both(&[class], |survey| {
            let missing = Some(refused("landlock_create_ruleset", errno, name));
            assert_eq!(survey.landlock.abi, None);
            assert_eq!(survey.landlock.refused, missing);
            assert_eq!(refusal(survey, Rung::Nsl), missing);
            assert_eq!(refusal(survey, Rung::Ns), None);
        });
    }
}

#[test]
fn without_user_namespaces_no_rung_stands_and_the_call_is_named() {
    on_both(&["no-userns-sysctl"], |survey| {
        for rung in Rung::ALL.into_iter().filter(|r| *r != Rung::Bs) {
            assert_eq!(refusal(survey, rung), Some(refused("clone(NEWUSER)", libc::EPERM, "EPERM")));
        }
        // Through bubblewrap its own complaint is the step.
        let through = refusal(survey, Rung::Bs).unwrap();
        assert!(through.step.starts_with("bwrap: ") && through.errno == libc::EPERM, "{through:?}");
        assert_eq!(survey.outer.intercepted_calls, Vec::<String>::new(), "a sysctl is not a foreign fence");
    });
    on_both(&["no-userns"], |survey| {
        assert_eq!(refusal(survey, Rung::Ns), Some(refused("clone(NEWUSER)", libc::EPERM, "EPERM")));
        assert_eq!(survey.outer.intercepted_calls, ["clone3=ENOSYS"]);
    });
}

/// What the survey says after a shell in namespaces of its own has taken something away, for real.
#[expect(clippy::disallowed_methods, reason = "a test that starts its own tool")]
fn survey_after(unshare: &str, taken_away: &str) -> Survey {
    let script = format!("{taken_away} && exec {} every-rung", env!("CARGO_BIN_EXE_measure-host"));
    let output = Command::new("unshare").args([unshare, "sh", "-c", &script]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{taken_away}: {} {stderr}", output.status);
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_kernels_own_refusals_are_named_by_their_step() {
    let spent = survey_after("-Ur", "echo 0 > /proc/sys/user/max_user_namespaces");
    for rung in [Rung::Ns, Rung::Bs] {
        assert_eq!(refusal(&spent, rung), Some(refused("clone(NEWUSER)", libc::ENOSPC, "ENOSPC")));
    }
    assert!(!spent.caller.is_root_host(), "root of another namespace is not the host's");

    let masked = survey_after("-m", "mount --bind /dev/null /proc/cmdline");
    for rung in [Rung::Nsl, Rung::Ns, Rung::NsNest] {
        assert_eq!(refusal(&masked, rung), Some(refused("fsmount(proc)", libc::EPERM, "EPERM")));
    }
    assert!(
        masked.stands(Rung::NsHostproc),
        "the host's /proc stays where no fresh one is given: {masked:#?}"
    );
    assert!(!masked.outer.is_present());

    let nested = survey_after("-Ur", "true");
    assert!(nested.stands(Rung::Ns), "root of another namespace takes the way of users: {nested:#?}");
    // Whose user is the host's root could change the kernel's settings from inside.
    let settings = refused("the kernel denies its settings", 0, "");
    assert_eq!(refusal(&nested, Rung::NsNest), Some(settings));
}

#[test]
fn a_container_filter_is_seen_for_what_it_is() {
    on_both(&["docker"], |survey| {
        assert_eq!(refusal(survey, Rung::Ns), Some(refused("clone(NEWUSER)", libc::EPERM, "EPERM")));
        let intercepted = &survey.outer.intercepted_calls;
        for call in ["unshare=EPERM", "setns=EPERM", "mount=EPERM", "clone3=ENOSYS", "keyctl=EPERM"] {
            assert!(intercepted.iter().any(|seen| seen == call), "{call} in {intercepted:?}");
        }
        assert!(survey.outer.is_present() && survey.outer.seccomp_filters >= 2 && survey.outer.no_new_privs);
        assert_eq!(survey.seccomp_refused, None);
    });
}

#[test]
fn a_refused_mount_is_the_step_that_is_named() {
    on_both(&["mount-eacces"], |survey| {
        assert_eq!(refusal(survey, Rung::Ns), Some(refused("mount(MS_PRIVATE)", libc::EACCES, "EACCES")));
    });
}

#[test]
fn inside_a_landlock_domain_mounting_is_refused_and_the_domain_is_counted() {
    on_both(&["in-landlock"], |survey| {
        assert_eq!(survey.landlock.layers_in_use, 1);
        assert!(survey.outer.is_present());
        // bubblewrap makes the same call, and is not started to hear it.
        for rung in [Rung::Ns, Rung::Bs] {
            assert_eq!(refusal(survey, rung), Some(refused("mount(MS_PRIVATE)", libc::EPERM, "EPERM")));
        }
        assert_eq!(survey.bubblewrap.version, None);
    });
}

#[test]
fn bubblewrap_is_not_found_where_it_is_not_on_path() {
    let survey = survey_on(&["no-bwrap"]);
    assert_eq!(survey.bubblewrap.path, None);
    assert_eq!(refusal(&survey, Rung::Bs), Some(refused("find bwrap on PATH", libc::ENOENT, "ENOENT")));
}

#[test]
fn a_bubblewrap_that_others_can_change_is_looked_at_and_never_run() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("ran");
    let own = folder.path().join("bwrap");
    std::fs::write(&own, format!("#!/bin/sh\ntouch {}\n", mark.display())).unwrap();
    std::fs::set_permissions(&own, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let first = format!("PATH={}:$PATH", folder.path().display());
    let survey = survey_after("-m", &format!("export {first}"));
    assert_eq!(survey.bubblewrap.path, Some(own));
    assert!(survey.bubblewrap.untrusted.is_some(), "{survey:#?}");
    let through = refusal(&survey, Rung::Bs).unwrap();
    assert!(through.step.starts_with("who can change bwrap: "), "{through:?}");
    assert!(!mark.exists(), "it was run");
    assert_eq!(survey.bubblewrap.version, None);
}

#[test]
fn claude_code_on_the_web_has_the_second_rung() {
    let survey = survey_on(&["claude-code-web"]);
    assert!(
        survey.caller.is_root_host() && !survey.stands(Rung::Nsl) && survey.stands(Rung::Ns),
        "{survey:#?}"
    );
    assert_eq!(survey.bubblewrap.path, None);
}

#[test]
fn a_class_that_cannot_be_applied_is_an_error_and_not_a_plain_host() {
    #[expect(clippy::disallowed_methods, reason = "a test that starts its own tool")]
    let output =
        Command::new(env!("CARGO_BIN_EXE_host-class")).args(["no-such", "--", "/bin/true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&output.stderr).contains("unknown class"));
}
