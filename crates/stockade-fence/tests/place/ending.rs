//! Roles and their ends, and the end of everything.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use stockade_fence::{Fence, FenceErrorKind, Notice, ProofError, Role, RoleId, SpawnLimits, Target, stdio};

use super::harness::{Test, public_copy};
use super::lab::{Lab, folder_of, pause, wait_for, wait_until};

pub(crate) const TESTS: &[Test] = &[
    ("what_a_role_leaves_behind_is_recorded_and_swept", what_a_role_leaves_behind_is_recorded_and_swept),
    (
        "nothing_else_runs_beside_the_agent_but_its_companions",
        nothing_else_runs_beside_the_agent_but_its_companions,
    ),
    ("the_agents_end_is_its_companions_end", the_agents_end_is_its_companions_end),
    ("signals_reach_a_role_or_everything", signals_reach_a_role_or_everything),
    ("the_processes_inside_are_listed", the_processes_inside_are_listed),
    ("what_cannot_be_started_says_why", what_cannot_be_started_says_why),
    ("limits_are_those_asked_for", limits_are_those_asked_for),
    ("closing_ends_everything_and_counts_it", closing_ends_everything_and_counts_it),
    ("a_dropped_fence_is_gone", a_dropped_fence_is_gone),
    ("a_killed_runner_leaves_no_survivor", a_killed_runner_leaves_no_survivor),
    ("a_runner_killed_while_it_builds_leaves_nobody", a_runner_killed_while_it_builds_leaves_nobody),
    ("nobody_becomes_a_helper_by_accident", nobody_becomes_a_helper_by_accident),
    ("a_killed_pid_1_is_noticed", a_killed_pid_1_is_noticed),
];

fn start(lab: &Lab, fence: &mut Fence, role: Role, script: &str) -> (RoleId, stdio::CallerEnds) {
    let (theirs, ours) = stdio::pipes().unwrap();
    let id = fence.spawn(&lab.shell(role, script), theirs).unwrap();
    (id, ours)
}

fn what_a_role_leaves_behind_is_recorded_and_swept() {
    let lab = Lab::new("sweep");
    let mut fence = Fence::build(&lab.spec()).unwrap();
    let daemon = "setsid sh -c 'trap \"\" TERM HUP INT; (sleep 300 & sleep 301 & wait)' >/dev/null 2>&1 &";
    let out = lab.run(&mut fence, &format!("{daemon} sleep 0.2; exit 7"));
    assert_eq!((out.exited.code, out.exited.survivors), (Some(7), 0));
    assert!(out.exited.left_behind >= 3, "{:?}", out.exited);
    assert!(out.exited.left_names.iter().any(|n| n == "sleep"), "{:?}", out.exited);
    assert_eq!(fence.stat().unwrap().total, 0, "the notice comes after the sweep");
    let out = lab.run(&mut fence, "exit 0");
    assert_eq!(out.exited.left_behind, 0);
    // A name that tries to look like something else is still only a name.
    let out = lab.run_with(
        &mut fence,
        "/bin/bash",
        "cp /bin/sleep '/tmp/x) S 1 ('; '/tmp/x) S 1 (' 300 & sleep 0.1",
    );
    assert_eq!(out.exited.left_names, ["x) S 1 ("]);
}

fn nothing_else_runs_beside_the_agent_but_its_companions() {
    let lab = Lab::new("beside");
    let mut fence = Fence::build(&lab.spec()).unwrap();
    let (agent, ends) = start(&lab, &mut fence, Role::Agent, "sleep 300 & wait");
    let ProofError::Fence(refused) = fence.prove(&lab.proof()).unwrap_err() else {
        panic!("proven beside an agent")
    };
    assert_eq!((refused.kind(), refused.errno()), (FenceErrorKind::Request, libc::EBUSY));
    let (theirs, _ours) = stdio::pipes().unwrap();
    let refused = fence.spawn(&lab.shell(Role::Probe, "true"), theirs).unwrap_err();
    assert_eq!(refused.errno(), libc::EBUSY);
    // The end of a companion sweeps nothing of the agent's.
    let (terminal, _terminal_ends) = start(&lab, &mut fence, Role::ClientTerminal, "exit 5");
    assert_eq!(wait_for(&mut fence, terminal).code, Some(5));
    wait_until("the agent and its child live", || fence.stat().unwrap().total == 2);
    fence.signal(Target::Role(agent), libc::SIGKILL).unwrap();
    let exited = wait_for(&mut fence, agent);
    assert_eq!((exited.signal, exited.left_behind), (Some(libc::SIGKILL), 1));
    drop(ends);
}

fn the_agents_end_is_its_companions_end() {
    let lab = Lab::new("companion");
    let mut fence = Fence::build(&lab.spec()).unwrap();
    let (agent, ends) = start(&lab, &mut fence, Role::Agent, "sleep 0.2; exit 1");
    let (terminal, terminal_ends) = start(&lab, &mut fence, Role::ClientTerminal, "sleep 300");
    let mut notices = Vec::new();
    wait_until("both have ended", || {
        while let Some(notice) = fence.next_notice().unwrap() {
            let Notice::Exited(exited) = notice else { panic!("closed") };
            notices.push((exited.role, exited.code, exited.signal, exited.left_behind));
        }
        notices.len() == 2
    });
    assert_eq!(notices, [(terminal, None, Some(libc::SIGKILL), 0), (agent, Some(1), None, 0)]);
    drop((ends, terminal_ends));
}

fn signals_reach_a_role_or_everything() {
    let lab = Lab::new("signal");
    let mut fence = Fence::build(&lab.spec()).unwrap();
    let (agent, ends) =
        start(&lab, &mut fence, Role::Agent, "trap 'exit 9' TERM; while :; do sleep 0.05; done");
    pause(Duration::from_millis(200));
    fence.signal(Target::Role(agent), libc::SIGTERM).unwrap();
    assert_eq!(wait_for(&mut fence, agent).code, Some(9));
    assert_eq!(fence.signal(Target::Role(agent), libc::SIGTERM).unwrap_err().errno(), libc::ESRCH);
    let (agent, ends2) = start(&lab, &mut fence, Role::Agent, "sleep 300 & sleep 300");
    fence.signal(Target::All, libc::SIGKILL).unwrap();
    assert_eq!(wait_for(&mut fence, agent).signal, Some(libc::SIGKILL));
    assert_eq!(fence.signal(Target::All, libc::SIGTERM), Ok(()), "nobody to signal is no error");
    drop((ends, ends2));
}

fn the_processes_inside_are_listed() {
    let lab = Lab::new("stat");
    let mut fence = Fence::build(&lab.spec()).unwrap();
    let (agent, ends) = start(&lab, &mut fence, Role::Agent, "sleep 300 & while :; do :; done");
    let mut stat = fence.stat().unwrap();
    wait_until("the loop uses time", || {
        stat = fence.stat().unwrap();
        stat.processes.iter().any(|p| p.role == Some(agent) && p.cpu >= Duration::from_millis(50))
    });
    assert_eq!((stat.total, stat.processes.len()), (2, 2));
    let child = stat.processes.iter().find(|p| p.comm == "sleep").unwrap();
    let parent = stat.processes.iter().find(|p| p.pid == child.parent).unwrap();
    assert_eq!((parent.role, child.role), (Some(agent), None));
    assert!(parent.rss_kib > 0 && parent.state == 'R', "{parent:?}");
    fence.signal(Target::All, libc::SIGKILL).unwrap();
    let exited = wait_for(&mut fence, agent);
    assert!(exited.cpu >= Duration::from_millis(50) && exited.max_rss_kib > 0, "{exited:?}");
    assert!(fence.stat().unwrap().ended_cpu >= exited.cpu);
    drop(ends);
}

fn what_cannot_be_started_says_why() {
    let lab = Lab::new("start");
    let mut fence = Fence::build(&lab.spec()).unwrap();
    let mut fails = |program: &str, cwd: &str| {
        let mut spawn = lab.shell(Role::Agent, "true");
        spawn.argv[0] = program.into();
        spawn.cwd = cwd.into();
        let (theirs, _ours) = stdio::pipes().unwrap();
        let error = fence.spawn(&spawn, theirs).unwrap_err();
        (error.step().to_owned(), error.errno())
    };
    assert_eq!(fails("/bin/missing", "/"), ("execve".to_owned(), libc::ENOENT));
    assert_eq!(fails("/etc/passwd", "/"), ("execve".to_owned(), libc::EACCES));
    assert_eq!(fails("/bin/sh", "/missing"), ("chdir".to_owned(), libc::ENOENT));
    assert_eq!(fails("sh", "/").1, libc::EINVAL);
    assert_eq!(fails("/bin/s\0h", "/").1, libc::EINVAL);
    assert_eq!(lab.run(&mut fence, "echo fine").stdout, "fine\n");
    let mut spawn = lab.shell(Role::Agent, "true");
    spawn.argv.push("x".repeat(2 << 20));
    let (theirs, _ours) = stdio::pipes().unwrap();
    assert_eq!(fence.spawn(&spawn, theirs).unwrap_err().errno(), libc::E2BIG);
    assert_eq!(lab.run(&mut fence, "echo fine").stdout, "fine\n");
}

fn limits_are_those_asked_for() {
    let lab = Lab::new("limits");
    let mut fence = Fence::build(&lab.spec()).unwrap();
    let (theirs, ours) = stdio::pipes().unwrap();
    let mut spawn = lab.shell(Role::Agent, "ulimit -n; ulimit -c; head -c 5000 /dev/zero > big");
    spawn.limits = SpawnLimits { open_files: 256, file_bytes: Some(4096), processes: None };
    let id = fence.spawn(&spawn, theirs).unwrap();
    wait_for(&mut fence, id);
    assert_eq!(super::lab::text(ours.stdout), "256\n0\n");
    assert_eq!(fs::metadata(lab.workspace.join("big")).unwrap().len(), 4096);
}

fn closing_ends_everything_and_counts_it() {
    let lab = Lab::new("close");
    let mut fence = Fence::build(&lab.spec()).unwrap();
    let marker = format!("stockade-close-{}", std::process::id());
    let script = format!("exec -a {marker} sleep 300");
    let mut spawn = lab.shell(Role::Agent, &script);
    spawn.argv[0] = "/bin/bash".into();
    let (theirs, _ours) = stdio::pipes().unwrap();
    fence.spawn(&spawn, theirs).unwrap();
    wait_until("it runs", || running(&marker) == 1);
    let end = fence.close(Duration::from_secs(2));
    assert_eq!((end.gone, end.killed), (true, Some(1)));
    assert_eq!(running(&marker), 0);
}

fn a_dropped_fence_is_gone() {
    let lab = Lab::new("drop");
    let fence = Fence::build(&lab.spec()).unwrap();
    let pid = fence.facts().pid;
    drop(fence);
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "not even a zombie");
}

#[expect(clippy::disallowed_methods, reason = "a runner that can be killed")]
fn a_killed_runner_leaves_no_survivor() {
    for round in 0..5 {
        let marker = format!("stockade-hold-{}-{round}", std::process::id());
        let mut holder =
            Command::new("/proc/self/exe").args(["hold", &marker]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let pid_1 = format!("/proc/{}", line.trim());
        wait_until("the daemon runs", || running(&marker) == 1);
        holder.kill().unwrap();
        holder.wait().unwrap();
        clear_after(&holder);
        let killed = Instant::now();
        wait_until("nobody survives", || running(&marker) == 0 && is_gone(&pid_1));
        assert!(killed.elapsed() < Duration::from_secs(2), "{:?}", killed.elapsed());
    }
}

#[expect(clippy::disallowed_methods, reason = "a runner that can be killed")]
fn a_runner_killed_while_it_builds_leaves_nobody() {
    let program = public_copy("building");
    for round in 0..40 {
        let mut holder =
            Command::new(&program).args(["hold", "stockade-building"]).stdout(Stdio::null()).spawn().unwrap();
        pause(Duration::from_micros(500 * (round % 20)));
        holder.kill().unwrap();
        holder.wait().unwrap();
        clear_after(&holder);
        wait_until("nobody survives", || executing(&program) == 0);
    }
    fs::remove_dir_all(program.parent().unwrap()).unwrap();
}

/// Removes what a killed holder could not.
fn clear_after(holder: &Child) {
    let folder = folder_of("hold", holder.id());
    if folder.exists() {
        fs::remove_dir_all(folder).unwrap();
    }
}

/// How many processes of the host run this program.
fn executing(program: &Path) -> usize {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes.filter(|p| fs::read_link(p.path().join("exe")).is_ok_and(|exe| exe == program)).count()
}

#[expect(clippy::disallowed_methods, reason = "somebody who types what the runner says")]
fn nobody_becomes_a_helper_by_accident() {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let try_with = |stdin: Stdio, name: &str| {
        let mut command = Command::new("/proc/self/exe");
        command.arg0(name).arg("fence-helper-protocol-1").stdin(stdin);
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    assert_eq!(try_with(Stdio::null(), "stockade-fence-helper"), "no helper\n");
    assert_eq!(try_with(Stdio::from(OwnedFd::from(theirs)), "stockade"), "no helper\n");
    drop(ours);
}

/// Gone, or a zombie that its new parent has not reaped yet.
fn is_gone(process: &str) -> bool {
    fs::read_to_string(format!("{process}/stat")).map_or(true, |line| line.contains(") Z "))
}

/// How many processes of the host carry this as their name.
fn running(marker: &str) -> usize {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter(|p| fs::read(p.path().join("cmdline")).is_ok_and(|line| line.starts_with(marker.as_bytes())))
        .count()
}

fn a_killed_pid_1_is_noticed() {
    let lab = Lab::new("killed");
    let mut fence = Fence::build(&lab.spec()).unwrap();
    let (_, ends) = start(&lab, &mut fence, Role::Agent, "sleep 300");
    rustix::process::pidfd_send_signal(fence.pidfd(), rustix::process::Signal::KILL).unwrap();
    let mut closed = false;
    wait_until("it is noticed", || {
        closed = fence.next_notice().unwrap() == Some(Notice::Closed);
        closed
    });
    assert_eq!(fence.next_notice(), Ok(None), "once");
    assert_eq!(fence.stat().unwrap_err().kind(), FenceErrorKind::Helper);
    let end = fence.close(Duration::from_secs(2));
    assert_eq!((end.gone, end.killed), (true, None));
    drop(ends);
}
