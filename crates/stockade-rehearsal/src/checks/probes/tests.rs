use stockade_core::mode::AccessMode;
use stockade_fence::probes::{Expected, KernelUser, ProcessLimit};

use super::*;
use crate::checks::examples::{conversation, receipt, wire};

fn setting(rung: Rung) -> Setting {
    Setting {
        mode: AccessMode::IsolatedWrite,
        rung,
        user: KernelUser::Another,
        processes: ProcessLimit::Watched,
    }
}

/// What a tool prints where all is as the table says, with some lines replaced.
fn printed(rung: Rung, replaced: &[(&str, &str)]) -> String {
    let line = |probe: &Probe| {
        let expected = match probe.expected_in(&setting(rung)) {
            Expected::Denied | Expected::NotThere(_) | Expected::DeniedWhereEnforced => "EACCES",
            other => other.text(),
        };
        let other = replaced.iter().find(|(id, _)| *id == probe.id).map(|(_, observed)| *observed);
        format!("{}={}\n", probe.id, other.unwrap_or(expected))
    };
    format!("{}status=0\n", taken_by_tool().map(line).collect::<String>())
}

fn judged(rung: Rung, text: &str) -> Verdict {
    let (receipt, wire) = (receipt(), wire(conversation(&[text.to_owned()])));
    like_the_table(&Probes {
        receipt: &receipt,
        wire: &wire,
        setting: Some(setting(rung)),
        own_processes: false,
        damage: &[],
    })
}

#[test]
fn passes_where_every_probe_ends_as_the_table_says() {
    let count = taken_by_tool().count();
    let evidence = judged(Rung::Nsl, &printed(Rung::Nsl, &[])).unwrap();
    assert_eq!(
        evidence,
        format!(
            "{count} probes taken by a tool on rung nsl, 10 worked: each ended as the table says; nothing changed outside"
        )
    );
    let nested = judged(Rung::NsNest, &printed(Rung::NsNest, &[])).unwrap();
    assert!(nested.contains("13 worked: none was allowed that the table denies"), "{nested}");
}

#[test]
fn a_probe_that_works_and_should_not_fails_on_every_rung() {
    for rung in Rung::ALL {
        let verdict = judged(rung, &printed(rung, &[("U06", "allowed")])).unwrap_err();
        let expected = format!(
            "on rung {}: U06 (connect to a listener inside the workspace): expected denied, observed allowed",
            rung.id()
        );
        assert_eq!(verdict, expected);
    }
}

#[test]
fn a_denial_that_the_table_does_not_know_passes_only_behind_the_agents_own_sandbox() {
    for (id, observed) in [("X01", "EACCES"), ("S03", "ESRCH")] {
        assert!(judged(Rung::Nsl, &printed(Rung::Nsl, &[(id, observed)])).is_err(), "{id}");
        assert!(judged(Rung::NsNest, &printed(Rung::NsNest, &[(id, observed)])).is_ok(), "{id}");
    }
}

#[test]
fn a_probe_that_shows_nothing_or_is_missing_fails_on_every_rung() {
    for rung in [Rung::Nsl, Rung::NsNest] {
        for nothing in ["broken", "timed out", "killed by signal 9"] {
            let verdict = judged(rung, &printed(rung, &[("W01", nothing)])).unwrap_err();
            assert!(verdict.ends_with(&format!("expected denied, observed {nothing}")), "{verdict}");
        }
        let text = printed(rung, &[]).replace("W01=EACCES\n", "");
        let verdict = judged(rung, &text).unwrap_err();
        assert!(verdict.ends_with("W01 (append to ~/.bashrc): expected denied, not taken"), "{verdict}");
        let verdict =
            judged(rung, "bash: /run/stockade/stockade: Permission denied\nstatus=126").unwrap_err();
        assert!(verdict.starts_with("no probe was taken; the model was told: bash:"), "{verdict}");
    }
}

#[test]
fn a_change_outside_a_tree_that_lives_and_a_run_without_result_fail() {
    let (ended, good) = (receipt(), wire(conversation(&[printed(Rung::Nsl, &[])])));
    let damage = [Damage::Survived(7)];
    let probes = Probes {
        receipt: &ended,
        wire: &good,
        setting: Some(setting(Rung::Nsl)),
        own_processes: false,
        damage: &[],
    };
    assert!(like_the_table(&probes).is_ok());
    let verdict = like_the_table(&Probes { damage: &damage, ..probes });
    assert_eq!(verdict, Err("on rung nsl: outside process 7 lives on".to_owned()));
    let mut alive = receipt();
    alive.tree.gone = false;
    assert!(like_the_table(&Probes { receipt: &alive, ..probes }).is_err());
    assert!(like_the_table(&Probes { setting: None, ..probes }).is_err());
    let none = wire(conversation(&[]));
    assert!(like_the_table(&Probes { wire: &none, ..probes }).is_err());
}

#[test]
fn what_a_sandbox_of_the_agents_changes_is_told_from_a_hole() {
    let replaced = [("P02", "allowed"), ("P12", "broken"), ("P13", "broken")];
    assert!(judged(Rung::NsNest, &printed(Rung::NsNest, &replaced)).is_ok());
    let direct = judged(Rung::Nsl, &printed(Rung::Nsl, &replaced)).unwrap_err();
    for id in ["P02", "P12", "P13"] {
        assert!(direct.contains(id), "{direct}");
    }
    assert!(judged(Rung::NsNest, &printed(Rung::NsNest, &[("P12", "allowed")])).is_err());
}

#[test]
fn where_the_agents_sandbox_has_processes_of_its_own_its_pid_1_is_none_of_the_fences() {
    let (receipt, wire) = (receipt(), wire(conversation(&[printed(Rung::NsNest, &[("R35", "allowed")])])));
    let judged = |rung, own_processes| {
        like_the_table(&Probes {
            receipt: &receipt,
            wire: &wire,
            setting: Some(setting(rung)),
            own_processes,
            damage: &[],
        })
    };
    assert!(judged(Rung::NsNest, true).is_ok());
    assert!(judged(Rung::NsNest, false).unwrap_err().contains("R35"));
}
