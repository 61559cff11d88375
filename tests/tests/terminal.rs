//! A person at a terminal sees a run go on: what is said, what it costs, and how long ago something moved.
#![expect(clippy::unwrap_used, reason = "a test: a panic is how it fails")]

use std::{fs::File, io::Read as _, os::fd::OwnedFd, process::Stdio, time::Duration};

use rustix::{
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};
use stockade_tests::{Caller, World, outside, stub};

/// A terminal of 80 columns: our end and that of a program.
fn terminal() -> (OwnedFd, File) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let path = ptsname(&ours, Vec::new()).unwrap().into_string().unwrap();
    let theirs = File::options().read(true).write(true).open(path).unwrap();
    let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&theirs, size).unwrap();
    (ours, theirs)
}

/// What is shown on a terminal until the last program has closed it, which the kernel tells as an error.
fn shown(ours: OwnedFd) -> String {
    let (mut ours, mut text, mut piece) = (File::from(ours), Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = ours.read(&mut piece) {
        text.extend_from_slice(&piece[..count]);
    }
    String::from_utf8(text).unwrap()
}

#[test]
fn the_last_line_tells_time_tokens_and_age_and_is_gone_at_the_end() {
    for caller in Caller::both() {
        let world = World::with_providers(&caller);
        let lines = [stub::INIT, &stub::message("Looking."), &stub::success("Seen.")];
        let agent = world
            .stub("slow", &format!("say '{}'\nsay '{}'\nsleep 2.5\nsay '{}'", lines[0], lines[1], lines[2]));
        let agent = agent.display().to_string();
        let call = world.run("r", &["--provider", "grok", "--provider-sandbox", "replace", "--model", "m"]);
        let call = call.args(&["--endpoint", "http://127.0.0.1:9/v1", "--executable", &agent]);
        let (ours, theirs) = terminal();
        let mut command = call.command();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(theirs).env("TERM", "xterm");
        let mut child = command.spawn().unwrap();
        // The command holds the other end of the terminal.
        drop(command);
        let text = shown(ours);
        assert!(child.wait().unwrap().success(), "{text}");
        assert!(text.contains("Looking."), "{text}");
        assert!(text.contains("0:01, 0 requests; last output "), "{text}");
        assert!(text.contains("0:02, 0 requests; last output "), "{text}");
        assert!(text.contains(" s ago, last moved: "), "{text}");
        let (_, end) = text.rsplit_once("requests; last output").unwrap();
        assert!(end.contains("\u{1b}[2K") && end.contains("complete: exit 0"), "{text}");
        outside::wait_for_no_process_fenced_for(&world, Duration::from_secs(2));
    }
}
