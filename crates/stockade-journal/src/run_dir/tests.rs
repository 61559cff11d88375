use std::{fs, os::unix::fs::PermissionsExt as _};

use stockade_core::event::{EVENT_VERSION, EventKind, LINE_LIMIT_BYTES, Source};

use super::*;
use crate::{State, launcher_record, testing};

fn run(t: &tempfile::TempDir) -> RunDir {
    let state = State::create(&t.path().join("state")).unwrap();
    state.create_run("run-1", &launcher_record().unwrap()).unwrap()
}

fn note(seq: u64, text: &str) -> Event {
    Event {
        v: EVENT_VERSION,
        seq,
        time: "2026-11-30T13:00:00.000Z".into(),
        elapsed_ms: seq,
        source: Source::Agent,
        event: EventKind::Note { code: "n".into(), text: text.into() },
    }
}

fn events(path: &Path) -> Vec<Event> {
    fs::read_to_string(path.join(file::EVENTS))
        .unwrap()
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect()
}

#[test]
fn files_are_private_and_their_digests_are_those_of_what_is_in_them() {
    let t = tempfile::tempdir().unwrap();
    let mut run = run(&t);
    run.append_event(&note(0, "a\nb")).unwrap();
    run.append_event(&note(1, "c")).unwrap();
    let plan = run.write_plan(b"{}").unwrap();
    let mut out = run.transcript(Stream::Stdout, 100).unwrap();
    out.write(b"hello ").unwrap();
    out.write(b"world").unwrap();
    let out = out.finish();
    run.reserve_receipt(b"{\"a\":1}").unwrap();
    assert_eq!(fs::read(run.path().join(file::RECEIPT)).unwrap(), b"{\"a\":1}");
    run.write_receipt(b"{\"a\":2}").unwrap();

    assert_eq!(events(run.path()), [note(0, "a\nb"), note(1, "c")]);
    assert_eq!(fs::read(run.path().join(file::RECEIPT)).unwrap(), b"{\"a\":2}");
    let digests = run.digests().unwrap();
    let expected: BTreeMap<String, String> = [
        (file::EVENTS, digest::sha256_hex(&fs::read(run.path().join(file::EVENTS)).unwrap())),
        (file::PLAN, plan),
        (file::STDOUT, out.sha256),
    ]
    .map(|(n, d)| (n.to_owned(), d))
    .into();
    assert_eq!(digests, expected);
    assert_eq!(run.path().metadata().unwrap().permissions().mode() & 0o7777, 0o700);
    for entry in fs::read_dir(run.path()).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o7777, 0o600, "{entry:?}");
    }
}

#[test]
fn a_run_is_made_once_and_discarded_without_a_trace() {
    let t = tempfile::tempdir().unwrap();
    let first = run(&t);
    let state = State::create(&t.path().join("state")).unwrap();
    let again = state.create_run("run-1", &launcher_record().unwrap()).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::Exists);
    for bad in ["", "..", "a/b", "-x", "a b"] {
        let error = state.create_run(bad, &launcher_record().unwrap()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PathUnusable, "{bad}");
    }
    let path = first.path().to_owned();
    first.discard().unwrap();
    assert!(!path.exists());
}

#[test]
fn the_launcher_is_locked_for_as_long_as_the_run_is_written() {
    let t = tempfile::tempdir().unwrap();
    let run = run(&t);
    let path = run.path().to_owned();
    assert!(crate::receipts::is_running(&path, &testing::dead_launcher()), "seen by the lock alone");
    drop(run);
    assert!(!crate::receipts::is_running(&path, &testing::dead_launcher()));
}

#[test]
fn a_transcript_keeps_its_head_and_counts_the_rest() {
    let t = tempfile::tempdir().unwrap();
    let run = run(&t);
    let mut err = run.transcript(Stream::Stderr, 8).unwrap();
    for piece in [b"01234".as_slice(), b"56789", b"abc"] {
        err.write(piece).unwrap();
    }
    assert!(err.is_cut());
    let expected = TranscriptRecord {
        bytes_seen: 13,
        bytes_kept: 8,
        cut: true,
        sha256: digest::sha256_hex(b"01234567"),
    };
    assert_eq!(err.finish(), expected);
    assert_eq!(fs::read(run.path().join(file::STDERR)).unwrap(), b"01234567");
    assert_eq!(run.transcript(Stream::Stderr, 8).unwrap_err().errno(), Some(Errno::EXIST.raw_os_error()));
}

#[test]
fn a_full_log_ends_with_one_note_and_an_oversized_event_becomes_one() {
    let t = tempfile::tempdir().unwrap();
    let folder = files::open_folder(rustix::fs::CWD, t.path()).unwrap();
    let mut log = EventLog::with_limit(&folder, t.path(), 8 * 1024).unwrap();
    for seq in 0..100 {
        log.append(&note(seq, &"x".repeat(100))).unwrap();
    }
    let kept = events(t.path());
    assert_eq!(log.left_out() + kept.len() as u64 - 1, 100, "every event is kept or counted");
    assert!(kept.iter().enumerate().all(|(i, e)| e.seq == i as u64), "no gap");
    let last = kept.last().unwrap();
    assert!(matches!(&last.event, EventKind::Note { code, .. } if code == "event-log-full"), "{last:?}");
    assert_eq!(last.source, Source::Stockade);
    assert!(fs::metadata(t.path().join(file::EVENTS)).unwrap().len() <= 8 * 1024);

    let t = tempfile::tempdir().unwrap();
    let mut run = run(&t);
    run.append_event(&note(0, &"x".repeat(LINE_LIMIT_BYTES))).unwrap();
    run.append_event(&note(1, "after")).unwrap();
    let kept = events(run.path());
    assert!(matches!(&kept[0].event, EventKind::Note { code, .. } if code == "event-too-long"));
    assert_eq!(kept[1], note(1, "after"));
}

#[test]
fn a_line_torn_by_a_full_disk_spoils_no_other() {
    let disk = testing::Mounted::small_tmpfs(64);
    let folder = files::open_folder(rustix::fs::CWD, disk.path()).unwrap();
    let mut log = EventLog::with_limit(&folder, disk.path(), 1 << 30).unwrap();
    log.append(&note(0, "first")).unwrap();
    let error = log.append(&note(1, &"x".repeat(100_000))).unwrap_err();
    assert_eq!(
        (error.kind(), error.step(), error.errno()),
        (ErrorKind::Storage, "write", Some(Errno::NOSPC.raw_os_error()))
    );
    assert!(error.hint().is_some_and(|h| h.contains("room")));
    // Room is made; the log goes on.
    rustix::mount::mount_remount(disk.path(), rustix::mount::MountFlags::empty(), "size=1024k").unwrap();
    log.append(&note(2, "third")).unwrap();
    let text = fs::read_to_string(disk.path().join(file::EVENTS)).unwrap();
    let lines: Vec<Option<Event>> = text.lines().map(|l| serde_json::from_str(l).ok()).collect();
    assert_eq!(lines, [Some(note(0, "first")), None, Some(note(2, "third"))]);
}

#[test]
fn a_torn_receipt_of_a_dead_writer_is_replaced() {
    let t = tempfile::tempdir().unwrap();
    let run = run(&t);
    run.write_receipt(b"old").unwrap();
    fs::write(run.path().join(file::RECEIPT_TEMPORARY), b"{\"half").unwrap();
    run.write_receipt(b"new").unwrap();
    assert_eq!(fs::read(run.path().join(file::RECEIPT)).unwrap(), b"new");
    assert!(!run.path().join(file::RECEIPT_TEMPORARY).exists());
}

#[test]
fn a_full_disk_leaves_the_receipt_that_was_there() {
    let disk = testing::Mounted::small_tmpfs(256);
    let root = disk.path().join("state");
    let state = State::create(&root).unwrap();
    let run = state.create_run("r", &launcher_record().unwrap()).unwrap();
    run.write_receipt(b"interrupted").unwrap();
    let error = run.write_receipt(&vec![b'x'; 1 << 20]).unwrap_err();
    assert_eq!((error.kind(), error.errno()), (ErrorKind::Storage, Some(Errno::NOSPC.raw_os_error())));
    assert_eq!(fs::read(run.path().join(file::RECEIPT)).unwrap(), b"interrupted");
    assert!(!run.path().join(file::RECEIPT_TEMPORARY).exists());
}

#[test]
fn the_session_log_is_copied_with_its_bound() {
    let t = tempfile::tempdir().unwrap();
    let run = run(&t);
    fs::create_dir_all(t.path().join("home/sessions/x")).unwrap();
    fs::write(t.path().join("home/sessions/x/events.jsonl"), "{}\n{}\n").unwrap();
    let copied =
        run.keep_session_events(&t.path().join("home"), "sessions/x/events.jsonl".as_ref(), 4).unwrap();
    assert_eq!((copied.bytes, copied.cut), (4, true));
    assert_eq!(run.digests().unwrap()[file::SESSION_EVENTS], copied.sha256);
}
