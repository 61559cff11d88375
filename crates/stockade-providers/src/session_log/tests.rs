use std::{
    fs,
    io::Write as _,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use stockade_core::event::{PermissionDecision, TurnOutcome};

use super::*;

const LOG: &str = ".grok/sessions/%2Fw/01a22ca0/events.jsonl";

fn recording(name: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/grok").join(name)).unwrap()
}

struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        let home = Self(tempfile::tempdir().unwrap());
        fs::create_dir_all(home.log().parent().unwrap()).unwrap();
        home
    }

    fn log(&self) -> PathBuf {
        self.0.path().join(LOG)
    }

    fn follow(&self) -> SessionLog {
        SessionLog::open(Dialect::GrokMessages, self.0.path(), Path::new(LOG)).unwrap()
    }
}

fn read(bytes: &[u8]) -> (Vec<EventKind>, u32) {
    let home = Home::new();
    fs::write(home.log(), bytes).unwrap();
    let mut log = home.follow();
    let mut out = Vec::new();
    assert_eq!(log.poll(&mut out), Ok(Progress::Grown(bytes.len() as u64)));
    assert_eq!(log.poll(&mut out), Ok(Progress::Still));
    (out, log.tools_running())
}

fn asked(tool: &str) -> EventKind {
    EventKind::PermissionAsked { tool: tool.to_owned() }
}

fn decided(tool: &str, decision: PermissionDecision) -> EventKind {
    EventKind::PermissionDecided { tool: tool.to_owned(), decision, by: "agent".to_owned() }
}

#[test]
fn a_cancelled_permission_is_seen_with_its_tool() {
    for (file, tool) in [
        ("perm_cancelled_shell.session-events.jsonl", "run_terminal_command"),
        ("perm_cancelled_edit.session-events.jsonl", "search_replace"),
        ("dontask_denied.session-events.jsonl", "run_terminal_command"),
    ] {
        let permission = Some(tool.to_owned());
        let (events, running) = read(&recording(file));
        assert_eq!(
            events,
            [
                asked(tool),
                decided(tool, PermissionDecision::Cancelled),
                EventKind::TurnEnded { outcome: TurnOutcome::Cancelled { permission } },
            ],
            "{file}"
        );
        assert_eq!(running, 0);
    }
}

#[test]
fn a_denial_goes_on() {
    let tool = "run_terminal_command";
    let (events, _) = read(&recording("tool_denied_rule.session-events.jsonl"));
    assert_eq!(events, [asked(tool), decided(tool, PermissionDecision::Denied)]);
}

#[test]
fn under_our_flags_every_permission_is_allowed_at_once() {
    for (file, count) in
        [("our_read_only.session-events.jsonl", 3), ("our_isolated_write.session-events.jsonl", 4)]
    {
        let (events, running) = read(&recording(file));
        assert_eq!(running, 0);
        assert_eq!(events.len(), 2 * count, "{events:#?}");
        for pair in events.chunks(2) {
            let EventKind::PermissionAsked { tool } = &pair[0] else { panic!("{events:#?}") };
            assert_eq!(pair[1], decided(tool, PermissionDecision::Allowed));
        }
    }
}

#[test]
fn the_log_is_followed_line_by_line_from_before_it_is_there() {
    let home = Home::new();
    let mut log = home.follow();
    let mut out = Vec::new();
    assert_eq!(log.poll(&mut out), Ok(Progress::Absent));
    let mut file = fs::File::create(home.log()).unwrap();
    assert_eq!(log.poll(&mut out), Ok(Progress::Still));
    let lines = b"{\"type\":\"tool_started\",\"tool_name\":\"grep\"}\nnoise\n{\"type\":\"permission_requested\",\"tool";
    file.write_all(lines).unwrap();
    assert_eq!(log.poll(&mut out), Ok(Progress::Grown(lines.len() as u64)));
    assert_eq!((out.len(), log.tools_running()), (0, 1));
    file.write_all(b"_name\":\"grep\"}\n").unwrap();
    log.poll(&mut out).unwrap();
    assert_eq!(out, [asked("grep")]);
    file.write_all(b"{\"type\":\"tool_completed\",\"tool_name\":\"grep\"}\n").unwrap();
    log.poll(&mut out).unwrap();
    assert_eq!(log.tools_running(), 0);
}

#[test]
fn no_link_is_followed_anywhere_on_the_way() {
    let elsewhere = Home::new();
    fs::write(elsewhere.log(), recording("perm_cancelled_shell.session-events.jsonl")).unwrap();
    let parts: Vec<&str> = LOG.split('/').collect();
    for at in 1..=parts.len() {
        let home = Home(tempfile::tempdir().unwrap());
        let part = parts[..at].join("/");
        let link = home.0.path().join(&part);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(elsewhere.0.path().join(&part), &link).unwrap();
        let mut log = home.follow();
        let mut out = Vec::new();
        let refused = SessionLogError::Open { path: PathBuf::from(LOG), errno: Errno::LOOP };
        assert_eq!(log.poll(&mut out), Err(refused), "{part}");
        assert_eq!(log.poll(&mut out), Ok(Progress::Closed));
        assert_eq!(out, []);
    }
}

#[test]
fn pipes_and_folders_are_no_log() {
    let home = Home::new();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        home.log(),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    let not_a_file = SessionLogError::NotAFile { path: PathBuf::from(LOG) };
    assert_eq!(home.follow().poll(&mut Vec::new()), Err(not_a_file.clone()));
    fs::remove_file(home.log()).unwrap();
    fs::create_dir(home.log()).unwrap();
    assert_eq!(home.follow().poll(&mut Vec::new()), Err(not_a_file));
}

#[test]
fn paths_that_leave_the_home_are_refused() {
    let home = Home::new();
    for path in ["/etc/passwd", "../x", "a/../x", "", "a/./../../x"] {
        let refused = SessionLogError::Path { path: PathBuf::from(path) };
        assert_eq!(
            SessionLog::open(Dialect::GrokMessages, home.0.path(), Path::new(path)).unwrap_err(),
            refused,
            "{path}"
        );
    }
    let gone = home.0.path().join("gone");
    let refused = SessionLogError::Home { home: gone.clone(), errno: Errno::NOENT };
    assert_eq!(SessionLog::open(Dialect::GrokMessages, &gone, Path::new(LOG)).unwrap_err(), refused);
}

#[test]
fn a_poll_reads_a_part_and_the_whole_has_a_limit() {
    let home = Home::new();
    let file = fs::File::create(home.log()).unwrap();
    file.set_len(LOG_LIMIT_BYTES + 1).unwrap();
    let mut log = home.follow();
    let mut out = Vec::new();
    let mut total = 0;
    let end = loop {
        match log.poll(&mut out) {
            Ok(Progress::Grown(bytes)) => {
                assert!(bytes <= 1024 * 1024);
                total += bytes;
            }
            other => break other,
        }
    };
    assert_eq!(end, Err(SessionLogError::TooLong { path: PathBuf::from(LOG) }));
    assert!(total <= LOG_LIMIT_BYTES);
    assert_eq!(out, []);
}

#[test]
fn a_log_that_is_cut_is_read_no_further() {
    let home = Home::new();
    fs::write(home.log(), "{\"type\":\"first_token\"}\n").unwrap();
    let mut log = home.follow();
    let mut out = Vec::new();
    log.poll(&mut out).unwrap();
    fs::write(home.log(), "").unwrap();
    assert_eq!(log.poll(&mut out), Err(SessionLogError::Cut { path: PathBuf::from(LOG) }));
    assert_eq!(log.poll(&mut out), Ok(Progress::Closed));
}

#[test]
fn odd_lines_say_nothing() {
    let (events, running) = read(
        b"\n[]\n{\"type\":1}\n{\"type\":\"permission_resolved\",\"decision\":\"perhaps\"}\n\
          {\"type\":\"tool_completed\"}\n{\"type\":\"turn_ended\",\"outcome\":\"completed\"}\n\xff\n",
    );
    assert_eq!((events, running), (vec![], 0));
}

#[test]
fn a_star_stands_for_anything_and_the_first_file_that_fits_is_followed() {
    let home = Home::new();
    let mut log =
        SessionLog::open(Dialect::GrokMessages, home.0.path(), Path::new("days/*/log-*.jsonl")).unwrap();
    let mut out = Vec::new();
    assert_eq!((log.poll(&mut out), log.found()), (Ok(Progress::Absent), None));
    let folder = home.0.path().join("days/30");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("other.jsonl"), "x\n").unwrap();
    assert_eq!(log.poll(&mut out), Ok(Progress::Absent));
    let line = "{\"type\":\"permission_requested\",\"tool_name\":\"t\"}\n";
    fs::write(folder.join("log-2.jsonl"), line).unwrap();
    assert_eq!(log.poll(&mut out), Ok(Progress::Grown(line.len() as u64)));
    fs::write(folder.join("log-1.jsonl"), "nothing that is followed\n").unwrap();
    assert_eq!(log.poll(&mut out), Ok(Progress::Still));
    assert_eq!((out, log.found()), (vec![asked("t")], Some(Path::new("days/30/log-2.jsonl"))));
}

#[test]
fn a_link_is_no_folder_of_a_pattern() {
    let home = Home::new();
    let elsewhere = Home::new();
    fs::write(elsewhere.0.path().join("log-1.jsonl"), "x\n").unwrap();
    symlink(elsewhere.0.path(), home.0.path().join("days")).unwrap();
    let mut log =
        SessionLog::open(Dialect::GrokMessages, home.0.path(), Path::new("days/log-*.jsonl")).unwrap();
    assert_eq!(log.poll(&mut Vec::new()), Ok(Progress::Absent));
}
