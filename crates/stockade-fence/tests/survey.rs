//! The survey on the host as it is. Needs a host on which the first rung stands, and says so where it does not.

use stockade_core::survey::{Rung, Survey};
use stockade_fence::survey::{Extent, SurveyRequest, measure};

fn survey(extent: Extent) -> Survey {
    measure(SurveyRequest { path: Some("/usr/bin:/bin".into()), extent }, &Rung::ALL)
}

#[test]
fn a_run_tries_no_rung_below_the_first_that_stands() {
    let survey = survey(Extent::FirstThatStands);
    assert!(survey.stands(Rung::Nsl), "this test needs namespaces, seccomp and Landlock: {survey:#?}");
    assert_eq!(survey.rungs.len(), 1);
}

#[test]
fn every_rung_is_tried_where_that_is_asked() {
    let survey = survey(Extent::EveryRung);
    let tried: Vec<_> = survey.rungs.iter().map(|trial| trial.rung).collect();
    assert_eq!(tried, Rung::ALL);
}

#[test]
fn nothing_changes_for_the_caller() {
    let fds = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let text = |file: &str| std::fs::read_to_string(format!("/proc/self/{file}")).unwrap();
    let before = (text("mountinfo"), std::fs::read_link("/proc/self/ns/user").unwrap());
    let _first = survey(Extent::EveryRung);
    let survey = survey(Extent::EveryRung);
    assert_eq!(before, (text("mountinfo"), std::fs::read_link("/proc/self/ns/user").unwrap()));
    assert_eq!(survey.landlock.layers_in_use, 0, "a trial put the caller into a domain");
    assert_eq!(survey.outer.seccomp_filters, 0, "a trial left a filter on the caller");
    assert!(!survey.outer.no_new_privs);
    assert!(fds() < 64);
}
