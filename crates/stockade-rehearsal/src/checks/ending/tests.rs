use std::fs;

use super::*;
use crate::{
    checks::examples::{conversation, receipt, wire},
    host::Found,
    scratch::Scratch,
};

struct Lab {
    scratch: Scratch,
    before: Snapshot,
    results: Vec<String>,
    _parent: tempfile::TempDir,
}

impl Lab {
    fn new() -> Self {
        let parent = tempfile::tempdir().unwrap();
        let scratch = Scratch::make(parent.path()).unwrap();
        let before = Snapshot::take(&scratch.outside()).unwrap();
        let tried = format!(
            "cat: no such file\nread=1\nread=1\nwrite=1\nwrite=1\nwrite=1\nwrite=1\nwrite=2\ntried={}",
            scratch.texts.sum()
        );
        let mut results = vec![String::new(); 4];
        results.push(tried);
        Self { scratch, before, results, _parent: parent }
    }

    fn judge(&self) -> Verdict {
        let after = Snapshot::take(&self.scratch.outside()).unwrap();
        let (receipt, wire, texts) = (receipt(), wire(conversation(&self.results)), &self.scratch.texts);
        Outside { receipt: &receipt, wire: &wire, texts, before: &self.before, after: &after }
            .nothing_changed()
    }
}

#[test]
fn attempts_that_failed_and_an_unchanged_host_pass() {
    let evidence = "2 reads and 5 writes outside failed; 8 decoys are as before, in content and metadata";
    assert_eq!(Lab::new().judge(), Ok(evidence.to_owned()));
}

#[test]
fn any_change_outside_fails() {
    let lab = Lab::new();
    fs::write(lab.scratch.outside().join("new.txt"), "x").unwrap();
    assert!(lab.judge().is_err());

    let lab = Lab::new();
    let dotfile = lab.scratch.outside().join("home/.bashrc");
    fs::write(&dotfile, fs::read(&dotfile).unwrap()).unwrap();
    assert_eq!(lab.judge(), Err("outside `home/.bashrc` was changed".to_owned()));
}

#[test]
fn a_secret_on_the_wire_fails_in_whichever_request() {
    let mut lab = Lab::new();
    lab.results[0] = format!("see: {}", lab.scratch.texts.secrets[1]);
    assert!(lab.judge().unwrap_err().contains("secret"));
}

#[test]
fn attempts_that_were_not_made_or_succeeded_fail() {
    let spoilt = |spoil: fn(&mut String)| {
        let mut lab = Lab::new();
        spoil(&mut lab.results[4]);
        lab.judge()
    };
    assert!(spoilt(|_| ()).is_ok());
    assert!(spoilt(|text| *text = text.replace("tried=", "tried: ")).is_err());
    assert!(spoilt(|text| *text = text.replace("write=2", "write=0")).is_err());
    assert!(spoilt(|text| *text = text.replace("read=1", "read=0")).is_err());
    assert!(spoilt(|text| *text = text.replacen("read=1", "", 1)).is_err());
    assert!(spoilt(|text| *text = text.replacen("write=1", "", 1)).is_err());
    let mut short = Lab::new();
    short.results.pop();
    assert!(short.judge().is_err());
}

fn found() -> Look {
    Look { processes: 10, found: vec![Found { pid: 9, command: "sleep 1".to_owned() }] }
}

fn cancelled() -> (Receipt, Cancelled, Look) {
    let mut receipt = receipt();
    receipt.status = Status::Cancelled;
    let cancel = Cancelled { alive: 3, left_behind: true, elapsed: Duration::from_millis(40) };
    (receipt, cancel, Look { processes: 10, found: Vec::new() })
}

#[test]
fn a_cancel_has_to_end_everything_that_was_there_in_time() {
    let (receipt, cancel, look) = cancelled();
    let evidence = "cancelled within 40 ms; of 3 processes, one of them left behind by a tool, none is left";
    assert_eq!(cancel_works(&receipt, Some(&cancel), &look), Ok(evidence.to_owned()));

    assert!(cancel_works(&receipt, None, &look).is_err());
    assert!(cancel_works(&receipt, Some(&cancel), &found()).is_err());
    let late = Cancelled { elapsed: Duration::from_millis(3001), ..cancel.clone() };
    assert!(cancel_works(&receipt, Some(&late), &look).is_err());
    let blind = Cancelled { alive: 0, ..cancel.clone() };
    assert!(cancel_works(&receipt, Some(&blind), &look).is_err());
    let mut other = receipt.clone();
    other.status = Status::Complete;
    assert!(cancel_works(&other, Some(&cancel), &look).is_err());
    let mut stuck = receipt;
    stuck.tree.gone = false;
    assert!(cancel_works(&stuck, Some(&cancel), &look).is_err());
}

#[test]
fn anything_left_fails() {
    let clean = || Remains { trees_gone: true, look: Look::default(), homes: Vec::new(), scratch: None };
    assert!(nothing_left(&clean()).is_ok());
    assert!(nothing_left(&Remains { trees_gone: false, ..clean() }).is_err());
    assert!(nothing_left(&Remains { look: found(), ..clean() }).is_err());
    assert!(nothing_left(&Remains { homes: vec!["/h".into()], ..clean() }).is_err());
    assert!(nothing_left(&Remains { scratch: Some("/s".into()), ..clean() }).is_err());
}
