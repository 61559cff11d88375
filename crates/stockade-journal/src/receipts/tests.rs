use std::{fs, os::unix::fs::symlink};

use super::*;
use crate::{
    RunDir, State, launcher_record,
    testing::{dead_launcher, interrupted_receipt},
};

/// A run with the caller's receipt at `receipt`, both interrupted.
struct Scene {
    folder: tempfile::TempDir,
    state: State,
    run: RunDir,
    receipt: Receipt,
}

impl Scene {
    fn new(launcher: &LauncherRecord) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let state = State::create(&folder.path().join("state")).unwrap();
        let run = state.create_run("run-1", launcher).unwrap();
        let mut receipt = interrupted_receipt("run-1", run.path(), launcher);
        receipt.receipt_path = Some(folder.path().join("receipt").to_str().unwrap().to_owned());
        let scene = Self { folder, state, run, receipt };
        scene.write_callers(&scene.receipt);
        scene.run.write_receipt(&bytes(&scene.receipt)).unwrap();
        scene
    }

    fn write_callers(&self, receipt: &Receipt) {
        fs::write(self.callers(), bytes(receipt)).unwrap();
    }

    fn callers(&self) -> PathBuf {
        self.folder.path().join("receipt")
    }

    /// Writes the final receipt to the run directory only.
    fn finish(&mut self) -> Receipt {
        let mut receipt = self.receipt.clone();
        receipt.status = Status::Complete;
        receipt.completed_at = Some("2026-11-30T13:00:01.000Z".to_owned());
        receipt.digests = self.run.digests().unwrap();
        self.run.write_receipt(&bytes(&receipt)).unwrap();
        receipt
    }

    fn end_process(self) -> (tempfile::TempDir, State) {
        (self.folder, self.state)
    }
}

fn bytes(receipt: &Receipt) -> Vec<u8> {
    serde_json::to_vec_pretty(receipt).unwrap()
}

fn failed(v: &Verification) -> Vec<&str> {
    v.checks.iter().filter(|c| !c.passed).map(|c| c.name.as_str()).collect()
}

#[test]
fn the_reserved_receipt_is_a_valid_interrupted_one() {
    let me = launcher_record().unwrap();
    let scene = Scene::new(&me);
    let found = read(&scene.callers()).unwrap();
    assert!(is_reservation(&found.receipt));
    assert_eq!(found.receipt.launcher, me);
    assert_eq!(schema_version(&found.bytes), Some(SCHEMA_VERSION));
}

#[test]
fn a_run_whose_launcher_lives_is_running_and_one_whose_launcher_died_is_interrupted() {
    let scene = Scene::new(&launcher_record().unwrap());
    let by_path = show(&Target::Path(scene.callers()), Some(&scene.state)).unwrap();
    assert_eq!((by_path.standing, by_path.repaired), (Standing::Running, None));
    let by_id = show(&Target::Run("run-1".into()), Some(&scene.state)).unwrap();
    assert_eq!(by_id.standing, Standing::Running);
    // Without the state directory the receipt's own word leads to the run.
    assert_eq!(show(&Target::Path(scene.callers()), None).unwrap().standing, Standing::Running);

    let scene = Scene::new(&dead_launcher());
    let callers = scene.callers();
    let (_folder, state) = scene.end_process();
    let shown = show(&Target::Path(callers), Some(&state)).unwrap();
    assert_eq!(shown.standing, Standing::Interrupted);
}

#[test]
fn a_final_receipt_heals_the_reservation_it_was_not_put_over() {
    for by_id in [false, true] {
        let mut scene = Scene::new(&dead_launcher());
        let last = scene.finish();
        let target = if by_id { Target::Run("run-1".into()) } else { Target::Path(scene.callers()) };
        let shown = show(&target, Some(&scene.state)).unwrap();
        assert_eq!((shown.standing, &shown.receipt), (Standing::Final, &last));
        assert_eq!(shown.repaired, Some(scene.callers()));
        assert_eq!(fs::read(scene.callers()).unwrap(), bytes(&last));
        let again = show(&target, Some(&scene.state)).unwrap();
        assert_eq!((again.standing, again.repaired), (Standing::Final, None));
        assert!(verify(&target, Some(&scene.state)).unwrap().passed());
    }
}

#[test]
fn other_files_are_never_healed() {
    let mut scene = Scene::new(&dead_launcher());
    let last = scene.finish();
    let other_run = Receipt { execution_id: "run-2".into(), ..scene.receipt.clone() };
    scene.write_callers(&other_run);
    let shown = show(&Target::Run("run-1".into()), Some(&scene.state)).unwrap();
    assert_eq!((shown.standing, shown.repaired), (Standing::Final, None));
    assert_eq!(fs::read(scene.callers()).unwrap(), bytes(&other_run));

    // A copy that somebody keeps elsewhere repairs nothing either.
    scene.write_callers(&scene.receipt);
    let copy = scene.folder.path().join("copy");
    fs::write(&copy, bytes(&last)).unwrap();
    assert_eq!(show(&Target::Path(copy), Some(&scene.state)).unwrap().repaired, None);
    assert_eq!(fs::read(scene.callers()).unwrap(), bytes(&scene.receipt));
}

#[test]
fn a_run_directory_of_somebody_else_is_not_believed() {
    assert!(rustix::process::geteuid().is_root(), "this test has to run as root: it gives a folder away");
    let mut scene = Scene::new(&dead_launcher());
    scene.finish();
    std::os::unix::fs::chown(scene.run.path(), Some(12_345), None).unwrap();
    let shown = show(&Target::Path(scene.callers()), None).unwrap();
    assert_eq!((shown.standing, shown.repaired), (Standing::Interrupted, None));
}

#[test]
fn targets_are_run_ids_where_such_a_run_is_and_paths_elsewhere() {
    let scene = Scene::new(&dead_launcher());
    let cwd = scene.folder.path();
    let parse = |word: &str| Target::parse(word.as_ref(), Some(&scene.state), cwd);
    assert_eq!(parse("run-1"), Target::Run("run-1".into()));
    assert_eq!(parse("run-2"), Target::Path(cwd.join("run-2")));
    assert_eq!(parse("receipt"), Target::Path(scene.callers()));
    assert_eq!(show(&parse("run-2"), Some(&scene.state)).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(show(&Target::Run("..".into()), Some(&scene.state)).unwrap_err().kind(), ErrorKind::NotFound);
    // The run directory and a link to the receipt name it as well.
    symlink(scene.callers(), cwd.join("link")).unwrap();
    for path in [scene.run.path().to_owned(), cwd.join("link")] {
        assert!(show(&Target::Path(path), Some(&scene.state)).is_ok());
    }
}

#[test]
fn what_is_no_receipt_is_said_to_be_none() {
    let t = tempfile::tempdir().unwrap();
    let path = t.path().join("r");
    for (text, reason) in [
        ("", "schemaVersion"),
        ("{\"half", "schemaVersion"),
        ("[3]", "invalid length"),
        ("{\"schemaVersion\":99}", "version is 99"),
        ("{\"schemaVersion\":3}", "missing field"),
    ] {
        fs::write(&path, text).unwrap();
        let error = show(&Target::Path(path.clone()), None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Malformed, "{text}");
        assert!(error.to_string().contains(reason), "{error}");
        let v = verify(&Target::Path(path.clone()), None).unwrap();
        assert!(!v.passed(), "{text}");
    }
}

#[test]
fn verification_names_what_was_changed_afterwards() {
    let mut scene = Scene::new(&dead_launcher());
    scene.run.write_plan(b"{}").unwrap();
    scene.run.write_answer(b"42").unwrap();
    let interrupted = verify(&Target::Run("run-1".into()), Some(&scene.state)).unwrap();
    assert_eq!(failed(&interrupted), ["finished"]);

    let last = scene.finish();
    scene.write_callers(&last);
    let target = Target::Path(scene.callers());
    let whole = verify(&target, Some(&scene.state)).unwrap();
    let names: Vec<&str> = whole.checks.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "schema-version",
            "schema",
            "finished",
            "run-directory",
            "same-receipt",
            "digest answer",
            "digest events.ndjson",
            "digest plan.json"
        ]
    );
    assert!(whole.passed(), "{whole:?}");

    fs::write(scene.run.path().join("answer"), "43").unwrap();
    fs::remove_file(scene.run.path().join("plan.json")).unwrap();
    fs::write(scene.run.path().join("stdout"), "slipped in").unwrap();
    scene.write_callers(&Receipt { tool_calls: 7, ..last });
    let tampered = verify(&target, Some(&scene.state)).unwrap();
    assert_eq!(failed(&tampered), ["same-receipt", "digest answer", "digest plan.json", "digest stdout"]);

    fs::remove_dir_all(scene.run.path()).unwrap();
    let lost = verify(&target, Some(&scene.state)).unwrap();
    assert_eq!(failed(&lost), ["run-directory"]);
}
