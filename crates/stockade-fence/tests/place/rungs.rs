//! What each rung adds or leaves out, beside what all of them hold.

use std::fs;
use std::path::Path;
use std::time::Duration;

use stockade_core::survey::Rung;
use stockade_fence::{BindAccess, Fence, FenceErrorKind, FenceSpec, Notice, OwnBinary, Role, stdio};

use super::harness::Test;
use super::lab::{Lab, bind, text, wait_for, wait_until};

pub(crate) const TESTS: &[Test] = &[
    ("work_in_the_writable_tree_goes_on_as_anywhere", work_in_the_writable_tree_goes_on_as_anywhere),
    ("a_sandbox_runs_inside_a_rung_that_nests", a_sandbox_runs_inside_a_rung_that_nests),
    ("root_of_a_sandbox_inside_changes_nothing_outside", root_of_a_sandbox_inside_changes_nothing_outside),
    ("a_sandbox_inside_ends_with_its_role", a_sandbox_inside_ends_with_its_role),
    (
        "the_hosts_proc_shows_processes_and_none_of_their_secrets",
        the_hosts_proc_shows_processes_and_none_of_their_secrets,
    ),
    ("on_the_hosts_proc_the_tree_is_told_from_the_host", on_the_hosts_proc_the_tree_is_told_from_the_host),
    ("through_bubblewrap_the_place_is_the_same", through_bubblewrap_the_place_is_the_same),
    ("a_bubblewrap_that_others_can_change_is_not_run", a_bubblewrap_that_others_can_change_is_not_run),
    (
        "through_bubblewrap_no_mount_point_is_made_on_the_host",
        through_bubblewrap_no_mount_point_is_made_on_the_host,
    ),
    ("through_bubblewrap_the_end_is_seen", through_bubblewrap_the_end_is_seen),
];

fn work_in_the_writable_tree_goes_on_as_anywhere() {
    for rung in Rung::ALL {
        let lab = Lab::new("work");
        let mut fence = Fence::build(&lab.spec_on(rung)).unwrap();
        let script = "set -e; echo one > a; mv a b; ln b c; mkdir -p d/e; mv b d/e/b; truncate -s 2 c; cat d/e/b; \
                      mv d/e f; ls f; ln -s f/b s; cat s; rm c; cp -a f g; echo end";
        let out = lab.run(&mut fence, script);
        assert_eq!(out.stdout, "onb\nonend\n", "{}: {}", rung.id(), out.stderr);
    }
}

fn a_sandbox_runs_inside_a_rung_that_nests() {
    let lab = Lab::new("nest");
    let mut fence = Fence::build(&lab.spec_on(Rung::NsNest)).unwrap();
    let proof = fence.prove(&lab.proof()).unwrap();
    assert_ne!(proof.kernel_uid, 0);
    for canary in ["user-namespace", "nested-remount", "nested-setting", "nested-capability"] {
        assert!(proof.canaries.iter().any(|c| c.name == canary), "{canary}: {proof:?}");
    }
    let sandbox = "bwrap --bind / / --unshare-user --unshare-pid --proc /proc --dev /dev --tmpfs /var/tmp";
    let script = format!("{sandbox} sh -c 'echo in; echo x > made; ls /var/tmp; echo $$; id -u'; cat made");
    let out = lab.run(&mut fence, &script);
    assert_eq!(out.stdout, "in\n2\n1000\nx\n", "{}", out.stderr);
    // On every other rung the same command is told that it may not.
    for rung in Rung::ALL.into_iter().filter(|r| !r.nests()) {
        let mut fence = Fence::build(&lab.spec_on(rung)).unwrap();
        let out = lab.run(&mut fence, &format!("{sandbox} true; echo $?"));
        assert_eq!(out.stdout, "1\n", "{}: {}", rung.id(), out.stderr);
    }
}

fn root_of_a_sandbox_inside_changes_nothing_outside() {
    let lab = Lab::new("nest-root");
    let mut spec = lab.spec_on(Rung::NsNest);
    spec.own_binary = OwnBinary::Bound;
    spec.binds[0].access = BindAccess::ReadWrite;
    let read_only = lab.root.join("read-only");
    fs::create_dir(&read_only).unwrap();
    spec.binds.push(bind(&read_only, &read_only, BindAccess::ReadOnly));
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    let mut fence = Fence::build(&spec).unwrap();
    let inner = format!(
        "id -u; touch {read_only}/x; mount -o remount,rw,bind {read_only}; touch {read_only}/x; umount {read_only}; \
         mount --bind / /tmp && touch /tmp/x; echo '|/bin/x' > /proc/sys/kernel/core_pattern; \
         cp /bin/true t; chmod 4755 t; chmod 2755 t; /run/stockade/stockade give-capability t; \
         perl -e 'my ($f, $n, $v) = qw(t user.x y); exit(syscall(188, $f, $n, $v, 1, 0) == 0)' && echo no attribute; \
         mknod d b 8 0; mount -t sysfs s /tmp; mount -t proc p /tmp; echo x > /tmp/sys/kernel/core_pattern; echo end",
        read_only = read_only.display()
    );
    let out = lab.run(&mut fence, &format!("unshare -rm sh -c '{}'", inner.replace('\'', "'\\''")));
    let denied = "Err(Os { code: 95, kind: Unsupported, message: \"Operation not supported\" })";
    assert_eq!(out.stdout, format!("0\n{denied}\nno attribute\nend\n"), "{}", out.stderr);
    assert_eq!(fs::read_dir(&read_only).unwrap().count(), 0, "{}", out.stderr);
    assert!(!Path::new("/x").exists());
    assert_eq!(fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap(), pattern);
    let made = std::os::unix::fs::MetadataExt::mode(&fs::metadata(lab.workspace.join("t")).unwrap());
    assert_eq!(made & 0o6000, 0, "{made:o}");
    assert!(!lab.workspace.join("d").exists());
    let nobody = fence.next_notice().unwrap();
    assert_eq!(nobody, None::<Notice>);
}

fn a_sandbox_inside_ends_with_its_role() {
    let lab = Lab::new("nest-end");
    let mut fence = Fence::build(&lab.spec_on(Rung::NsNest)).unwrap();
    let script = "for i in 1 2 3; do setsid bwrap --ro-bind / / --unshare-user --unshare-pid --proc /proc sleep 60 & done; \
                  while [ $(ls -d /proc/[0-9]*/exe | xargs -n1 readlink | grep -c sleep) -lt 3 ]; do :; done; echo up";
    let out = lab.run(&mut fence, script);
    assert_eq!(out.stdout, "up\n", "{}", out.stderr);
    assert!(out.exited.left_behind >= 6, "{:?}", out.exited);
    assert_eq!(out.exited.survivors, 0);
    assert_eq!(fence.stat().unwrap().total, 0);
    let end = fence.close(Duration::from_secs(2));
    assert!(end.gone && end.killed == Some(0), "{end:?}");
}

fn the_hosts_proc_shows_processes_and_none_of_their_secrets() {
    let lab = Lab::new("hostproc");
    let mut fence = Fence::build(&lab.spec_on(Rung::NsHostproc)).unwrap();
    let proof = fence.prove(&lab.proof()).unwrap();
    let names: Vec<&str> = proof.canaries.iter().map(|c| c.name.as_str()).collect();
    assert!(names.contains(&"process-secrets") && !names.contains(&"process-decoy"), "{names:?}");
    let me = std::process::id();
    let script = format!(
        "test -e /proc/{me}/stat && echo seen; for f in environ mem maps; do head -c 1 /proc/{me}/$f; done; \
         ls /proc/{me}/root/ /proc/{me}/cwd/; cat /proc/{me}/fd/0; readlink /proc/{me}/fd/0; kill -0 {me}; echo x > /proc/sys/kernel/core_pattern; \
         echo x > /proc/self/comm; cat /proc/keys | wc -l; grep -c Name /proc/self/status"
    );
    let out = lab.run(&mut fence, &script);
    assert_eq!(out.stdout, "seen\n0\n1\n", "{}", out.stderr);
    assert_eq!(out.stderr.matches("Permission denied").count(), 6, "{}", out.stderr);
    assert!(out.stderr.contains("No such process"), "{}", out.stderr);
    assert_eq!(out.stderr.matches("Read-only file system").count(), 2, "{}", out.stderr);
}

fn on_the_hosts_proc_the_tree_is_told_from_the_host() {
    let lab = Lab::new("hostproc-tree");
    let mut fence = Fence::build(&lab.spec_on(Rung::NsHostproc)).unwrap();
    assert_eq!(fence.facts().max_processes, None, "the limit that is seen there may be the host's");
    let (theirs, ours) = stdio::pipes().unwrap();
    let id = fence.spawn(&lab.shell(Role::Agent, "setsid sleep 60 & echo $! $$; read line"), theirs).unwrap();
    wait_until("a child that sleeps", || fence.stat().unwrap().processes.iter().any(|p| p.comm == "sleep"));
    let tree = fence.stat().unwrap();
    assert_eq!(tree.total, 2, "{tree:?}");
    let shell = tree.processes.iter().find(|p| p.role == Some(id)).expect("the role's own process");
    let sleep = tree.processes.iter().find(|p| p.comm == "sleep").expect("its child");
    assert_eq!(sleep.parent, shell.pid);
    assert!(shell.pid < 100, "an id of the host: {tree:?}");
    drop(ours.stdin);
    let exited = wait_for(&mut fence, id);
    assert_eq!((exited.left_behind, exited.left_names.as_slice()), (1, ["sleep".to_owned()].as_slice()));
    let told = text(ours.stdout);
    assert_eq!(told, format!("{} {}\n", sleep.pid, shell.pid));
    assert_eq!(fence.stat().unwrap().total, 0);
}

fn through_bubblewrap_the_place_is_the_same() {
    let lab = Lab::new("through");
    let mut fence = Fence::build(&lab.spec_on(Rung::Bs)).unwrap();
    let script = "cat /proc/self/uid_map; ls -A /; ls -A /dev; ls /sys; hostname; ls -d /proc/[0-9]* | wc -l; \
                  echo x > /x; echo x > /dev/x; echo x > /etc/passwd; touch /usr/x; echo x > /proc/sys/kernel/core_pattern; \
                  cat /proc/keys; head -c 1 /proc/1/environ; unshare -r true; grep CapBnd /proc/self/status; id";
    let out = lab.run(&mut fence, script);
    let lines: Vec<&str> = out.stdout.lines().collect();
    assert!(lines.contains(&"stockade") && lines.contains(&"CapBnd:\t0000000000000000"), "{}", out.stdout);
    assert!(!lines.contains(&"root") && !lines.contains(&"srv"), "{}", out.stdout);
    assert_eq!(out.stderr.matches("Read-only file system").count(), 5, "{}", out.stderr);
    assert!(out.stderr.contains("unshare failed"), "{}", out.stderr);
    // One user namespace: a second one would have a map of the first one's ids.
    let uid = rustix::process::geteuid().as_raw();
    let map: Vec<&str> = lines[0].split_whitespace().collect();
    assert_eq!(map, ["1000", &uid.to_string(), "1"]);
    assert!(fence.facts().phases.iter().any(|(name, _)| name == "compare"), "{:?}", fence.facts());
}

fn a_bubblewrap_that_others_can_change_is_not_run() {
    let lab = Lab::new("untrusted");
    let mark = lab.root.join("ran");
    let own = lab.root.join("bwrap");
    fs::write(&own, format!("#!/bin/sh\ntouch {}\n", mark.display())).unwrap();
    fs::set_permissions(&own, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let spec = FenceSpec { bubblewrap: Some(own), ..lab.spec_on(Rung::Bs) };
    let error = Fence::build(&spec).unwrap_err();
    assert!(error.step().starts_with("who can change the program"), "{error}");
    assert!(!mark.exists());
}

fn through_bubblewrap_no_mount_point_is_made_on_the_host() {
    let lab = Lab::new("mount-point");
    let mut spec = lab.spec_on(Rung::Bs);
    fs::create_dir(lab.root.join("git")).unwrap();
    spec.binds.push(bind(&lab.root.join("git"), &lab.workspace.join(".git"), BindAccess::ReadOnly));
    let error = Fence::build(&spec).unwrap_err();
    assert_eq!((error.kind(), error.errno()), (FenceErrorKind::Source, libc::ENOENT));
    assert!(!lab.workspace.join(".git").exists());
}

fn through_bubblewrap_the_end_is_seen() {
    let lab = Lab::new("through-end");
    let mut fence = Fence::build(&lab.spec_on(Rung::Bs)).unwrap();
    let pid = fence.facts().pid;
    let (theirs, _ours) = stdio::sockets().unwrap();
    fence.spawn(&lab.shell(Role::Agent, "setsid sleep 60 & exec sleep 60"), theirs).unwrap();
    wait_until("two processes", || fence.stat().unwrap().total == 2);
    let bubblewrap = parent_of(pid);
    assert_eq!(fs::read_to_string(format!("/proc/{bubblewrap}/comm")).unwrap(), "bwrap\n");
    let end = fence.close(Duration::from_secs(2));
    assert!(end.gone && end.killed == Some(2), "{end:?}");
    for gone in [pid, bubblewrap] {
        assert!(!Path::new(&format!("/proc/{gone}")).exists(), "{gone} is left");
    }
    // bubblewrap itself killed takes nothing with it that the runner would not see.
    let fence = Fence::build(&lab.spec_on(Rung::Bs)).unwrap();
    let pid = fence.facts().pid;
    let bubblewrap = rustix::process::Pid::from_raw(parent_of(pid)).unwrap();
    rustix::process::kill_process(bubblewrap, rustix::process::Signal::KILL).unwrap();
    let end = fence.close(Duration::from_secs(2));
    assert!(end.gone, "{end:?}");
    // The host's first process is left to take its status.
    wait_until("nothing of it", || !Path::new(&format!("/proc/{pid}/root")).exists());
}

fn parent_of(pid: i32) -> i32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    status.lines().find_map(|l| l.strip_prefix("PPid:")).unwrap().trim().parse().unwrap()
}
