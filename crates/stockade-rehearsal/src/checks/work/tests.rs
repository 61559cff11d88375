use std::{fs, path::PathBuf};

use stockade_core::{changes::FileChange, receipt::Receipt};

use super::*;
use crate::{checks::examples, scratch::Scratch};

const REFUSAL_WORDS: &[&str] = &["Tool not found"];

/// A rehearsal that went well, on a real folder.
struct Lab {
    scratch: Scratch,
    before: Snapshot,
    receipt: Receipt,
    results: Vec<String>,
    _parent: tempfile::TempDir,
}

impl Lab {
    fn new(results: impl FnOnce(&Texts) -> Vec<String>) -> Self {
        let parent = tempfile::tempdir().unwrap();
        let scratch = Scratch::make(parent.path()).unwrap();
        let before = Snapshot::take(&scratch.workspace()).unwrap();
        let results = results(&scratch.texts);
        Self { scratch, before, receipt: examples::receipt(), results, _parent: parent }
    }

    fn read_only() -> Self {
        Self::new(|texts| {
            let missing = || "Tool not found".to_owned();
            let shell = "bash: report.md: Read-only file system\nstatus=1\n".to_owned();
            vec![format!("1→token {}", texts.token), missing(), missing(), shell, String::new()]
        })
    }

    fn isolated_write() -> Self {
        let mut lab = Self::new(|texts| {
            let done = || "done".to_owned();
            let shell = format!("status=0\nsum={}\n", texts.sum());
            vec![format!("1→token {}", texts.token), done(), done(), shell, String::new()]
        });
        let texts = lab.scratch.texts.clone();
        lab.write(EXISTING_FILE, &texts.existing(&texts.new), ChangeKind::Modified);
        lab.write(NEW_FILE, &format!("{}\n", texts.notes), ChangeKind::Added);
        lab.write(SHELL_FILE, &format!("{}\n", texts.report), ChangeKind::Added);
        lab
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.workspace().join(name)
    }

    /// Writes a file and puts it into the receipt.
    fn write(&mut self, name: &str, text: &str, kind: ChangeKind) {
        fs::write(self.path(name), text).unwrap();
        let sha256 = Some(sha256_hex(text.as_bytes()));
        let bytes = Some(text.len() as u64);
        self.receipt.changes.files.push(FileChange { path: name.to_owned(), kind, sha256, bytes });
    }

    fn judge(&self, check: impl Fn(&Work<'_>) -> Verdict) -> Verdict {
        let wire = examples::wire(examples::conversation(&self.results));
        let after = Snapshot::take(&self.scratch.workspace()).unwrap();
        let (receipt, texts, before) = (&self.receipt, &self.scratch.texts, &self.before);
        check(&Work { receipt, wire: &wire, texts, before, after: &after })
    }
}

fn refused(work: &Work<'_>) -> Verdict {
    refuses_edits(work, REFUSAL_WORDS)
}

#[test]
fn a_good_read_only_run_passes() {
    let lab = Lab::read_only();
    assert!(lab.judge(reads_a_file).is_ok());
    assert_eq!(
        lab.judge(refused).unwrap(),
        "nothing changed on the host, the turn went on; the model was told README.md: Tool not found; \
         notes.md: Tool not found"
    );
    assert_eq!(
        lab.judge(refuses_shell_write).unwrap(),
        "no report.md on the host, the turn went on; the shell said bash: report.md: Read-only file system; status=1"
    );
}

#[test]
fn reading_needs_the_random_content() {
    let mut lab = Lab::read_only();
    lab.results[0] = "I have read README.md, it says hello".to_owned();
    assert!(lab.judge(reads_a_file).is_err());
}

#[test]
fn a_turn_that_stops_at_a_refusal_fails() {
    let mut lab = Lab::read_only();
    lab.results.truncate(2);
    assert!(lab.judge(refused).unwrap_err().contains("never told a result"));
    assert!(lab.judge(refuses_shell_write).is_err());
}

#[test]
fn a_refusal_the_model_is_not_told_fails() {
    let mut lab = Lab::read_only();
    lab.results[1] = "The file has been updated".to_owned();
    assert!(lab.judge(refused).is_err());
    lab.results[3] = "status=0".to_owned();
    assert!(lab.judge(refuses_shell_write).is_err());
    lab.results[3] = "I could not write".to_owned();
    assert!(lab.judge(refuses_shell_write).is_err());
}

#[test]
fn a_write_on_the_host_fails_whatever_the_model_is_told() {
    for name in [EXISTING_FILE, NEW_FILE, SHELL_FILE] {
        let lab = Lab::read_only();
        fs::write(lab.path(name), "written").unwrap();
        assert!(lab.judge(refused).is_err(), "{name}");
        assert!(lab.judge(refuses_shell_write).is_err(), "{name}");
    }
}

#[test]
fn a_good_isolated_write_run_passes() {
    let lab = Lab::isolated_write();
    for check in [reads_a_file, edits_a_file, creates_a_file, runs_a_command] {
        lab.judge(check).unwrap();
    }
    assert_eq!(
        lab.judge(changes_measured).unwrap(),
        "the receipt lists README.md modified, notes.md added, report.md added, with their digests"
    );
}

#[test]
fn work_that_is_not_on_the_host_fails() {
    let lab = Lab::isolated_write();
    let texts = &lab.scratch.texts;
    fs::write(lab.path(EXISTING_FILE), texts.existing(&texts.old)).unwrap();
    fs::write(lab.path(NEW_FILE), &texts.notes).unwrap();
    fs::remove_file(lab.path(SHELL_FILE)).unwrap();
    for check in [edits_a_file, creates_a_file, runs_a_command, changes_measured] {
        assert!(lab.judge(check).is_err());
    }
}

#[test]
fn a_command_that_only_seems_to_have_run_fails() {
    let mut lab = Lab::isolated_write();
    lab.results[3] = format!("status=0\nsum={}", lab.scratch.texts.sum() + 1);
    assert!(lab.judge(runs_a_command).is_err());
}

#[test]
fn a_file_of_another_owner_fails() {
    let lab = Lab::isolated_write();
    std::os::unix::fs::chown(lab.path(NEW_FILE), Some(12345), Some(12345)).expect("this test needs root");
    assert!(lab.judge(creates_a_file).unwrap_err().contains("does not belong"));
}

#[test]
fn a_receipt_that_lists_anything_else_fails() {
    let spoilt = |spoil: fn(&mut Receipt)| {
        let mut lab = Lab::isolated_write();
        spoil(&mut lab.receipt);
        lab.judge(changes_measured)
    };
    assert!(spoilt(|_| ()).is_ok());
    assert!(spoilt(|receipt| receipt.changes.complete = false).is_err());
    assert!(spoilt(|receipt| drop(receipt.changes.files.pop())).is_err());
    assert!(spoilt(|receipt| receipt.changes.files[0].kind = ChangeKind::Metadata).is_err());
    assert!(spoilt(|receipt| receipt.changes.files[0].sha256 = None).is_err());
    assert!(spoilt(|receipt| receipt.changes.files.push(receipt.changes.files[0].clone())).is_err());

    let mut more = Lab::isolated_write();
    more.write("surprise", "x", ChangeKind::Added);
    assert!(more.judge(changes_measured).is_err());
}

#[test]
fn numbers_are_read_from_lines_of_their_own() {
    assert_eq!(printed("status=0\r\n  status=12\nnot status=3\nstatus=x", "status="), [0, 12]);
}
