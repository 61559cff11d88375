//! Holes that were found once, and what a payload may not do.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use stockade_core::survey::Rung;
use stockade_fence::{BindAccess, Fence, Identity, OwnBinary, Role, stdio};

use super::harness::Test;
use super::lab::{Lab, bind, text, wait_for};

pub(crate) const TESTS: &[Test] = &[
    (
        "a_mount_parent_in_a_writable_folder_cannot_be_swapped",
        a_mount_parent_in_a_writable_folder_cannot_be_swapped,
    ),
    ("no_setuid_setgid_or_capability_file_appears", no_setuid_setgid_or_capability_file_appears),
    ("pid_1_takes_no_signals_and_gives_nothing_away", pid_1_takes_no_signals_and_gives_nothing_away),
    ("sockets_as_stdio_cannot_be_opened_again", sockets_as_stdio_cannot_be_opened_again),
    ("nothing_of_the_caller_comes_along", nothing_of_the_caller_comes_along),
    ("the_host_is_not_there", the_host_is_not_there),
    ("a_link_where_a_mount_should_be_is_not_followed", a_link_where_a_mount_should_be_is_not_followed),
];

fn a_mount_parent_in_a_writable_folder_cannot_be_swapped() {
    let tag = format!("stockade-swap-{}", std::process::id());
    for top in ["/dev/shm", "/tmp", "/var/tmp"] {
        let parent = Path::new(top).join(&tag);
        let workspace = parent.join("ws");
        fs::create_dir_all(&workspace).unwrap();
        fs::write(workspace.join("result"), "real\n").unwrap();
        for rung in Rung::ALL {
            let lab = Lab::new("swap");
            let mut spec = lab.spec_on(rung);
            spec.binds.push(bind(&workspace, &workspace, BindAccess::ReadWrite));
            let mut fence = Fence::build(&spec).unwrap();
            let (parent, workspace) = (parent.display(), workspace.display());
            let script = format!(
                "mv {parent} {top}/away; mv {workspace} {parent}/away; mkdir {parent}/x; rm -rf {parent}; \
                 mkdir -p {workspace}; cat {workspace}/new 2>/dev/null; echo made > {workspace}/new"
            );
            lab.run(&mut fence, &script);
            let out = lab.run(&mut fence, &format!("cat {workspace}/new; ls -a {top} | grep -c away"));
            assert_eq!(out.stdout, "made\n0\n", "{top}: {}", out.stderr);
        }
        assert_eq!(fs::read_to_string(workspace.join("new")).unwrap(), "made\n", "{top}");
        fs::remove_dir_all(&parent).unwrap();
    }
}

fn no_setuid_setgid_or_capability_file_appears() {
    for rung in Rung::ALL {
        let lab = Lab::new("setuid");
        let mut spec = lab.spec_on(rung);
        spec.own_binary = OwnBinary::Bound;
        let mut fence = Fence::build(&spec).unwrap();
        let script = "for f in ./a /home/agent/a; do cp /bin/true $f; chmod 4755 $f; chmod 2755 $f; chmod u+s $f; \
                      install -m 4755 /bin/true $f.i; mkdir -m 2755 $f.d; chmod g+s $f.d; \
                      perl -e 'mkdir $ARGV[0], 02777' $f.p; cp --preserve=mode /usr/bin/su $f.su; \
                      /run/stockade/stockade give-capability $f; done";
        let out = lab.run(&mut fence, script);
        let denied = if rung.nests() {
            "Err(Os { code: 95, kind: Unsupported, message: \"Operation not supported\" })\n"
        } else {
            "Err(Os { code: 1, kind: PermissionDenied, message: \"Operation not permitted\" })\n"
        };
        assert_eq!(out.stdout, denied.repeat(2), "{}", rung.id());
        for file in everything_under(&lab.root) {
            let mode = fs::symlink_metadata(&file).unwrap().mode();
            assert_eq!(mode & 0o6000, 0, "{} {mode:o}", file.display());
            let mut value = [0; 64];
            let capability = rustix::fs::lgetxattr(&file, "security.capability", &mut value);
            assert!(capability.is_err(), "{}", file.display());
        }
    }
}

fn everything_under(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path.clone());
            }
            found.push(path);
        }
    }
    assert!(found.len() > 4, "{found:?}");
    found
}

fn pid_1_takes_no_signals_and_gives_nothing_away() {
    // Where the host's /proc stays, 1 is the host's first process there.
    for rung in Rung::ALL.into_iter().filter(|r| *r != Rung::NsHostproc) {
        let lab = Lab::new("pid1");
        let spec = lab.spec_on(rung);
        if spec.identity == Identity::KernelRoot {
            // To kernel root the kernel tells how many descriptors PID 1 has open, and nothing of what they are.
            continue;
        }
        let mut fence = Fence::build(&spec).unwrap();
        let script = "for s in 0 TERM KILL STOP CHLD; do kill -$s 1 2>&1 | grep -o 'not permitted'; done; \
                      cat /proc/1/environ; head -c 1 /proc/1/mem; ls /proc/1/fd /proc/1/root/; cat /proc/1/maps; \
                      grep -E '^(CapEff|CapBnd|NoNewPrivs)' /proc/1/status";
        let out = lab.run(&mut fence, script);
        let expected = "not permitted\n".repeat(5)
            + "CapEff:\t0000000000000000\nCapBnd:\t0000000000000000\nNoNewPrivs:\t1\n";
        assert_eq!(out.stdout, expected, "{}", out.stderr);
        assert_eq!(out.stderr.matches("Permission denied").count(), 5, "{}", out.stderr);
        assert_eq!(fence.stat().unwrap().total, 0);
    }
}

fn sockets_as_stdio_cannot_be_opened_again() {
    let lab = Lab::new("stdio");
    let mut fence = Fence::build(&lab.spec()).unwrap();
    let (theirs, ours) = stdio::sockets().unwrap();
    let script =
        "read line; echo \"got $line\"; : < /proc/self/fd/0; : > /proc/self/fd/1; true > /proc/$$/fd/0";
    let id = fence.spawn(&lab.shell(Role::Agent, script), theirs).unwrap();
    rustix::io::write(&ours.stdin, b"a line\n").unwrap();
    drop(ours.stdin);
    wait_for(&mut fence, id);
    assert_eq!(text(ours.stdout), "got a line\n");
    // The shell ends at the first redirection that fails.
    assert!(text(ours.stderr).contains("No such device or address"));
}

fn nothing_of_the_caller_comes_along() {
    let lab = Lab::new("caller");
    // A descriptor that exec would hand on.
    let leaked = fs::File::open(&lab.decoys).unwrap();
    rustix::io::fcntl_setfd(&leaked, rustix::io::FdFlags::empty()).unwrap();
    let mut fence = Fence::build(&lab.spec()).unwrap();
    let script = "ls /proc/self/fd; env; ulimit -c; cat /proc/self/sessionid >/dev/null; \
                  grep -E 'SigBlk|SigIgn' /proc/self/status; grep -c . /proc/keys; id -G; umask";
    let out = lab.run(&mut fence, script);
    // 3 is the folder that `ls` itself has open.
    let expected = "0\n1\n2\n3\nHOME=/home/agent\nPATH=/usr/bin:/bin\nPWD=WS\n0\n\
                    SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n0\n1000\n0022\n";
    let got = out.stdout.replace(lab.workspace.to_str().unwrap(), "WS");
    let groups_stay = !rustix::process::geteuid().is_root();
    let got = if groups_stay { got.replace("1000 65534\n", "1000\n") } else { got };
    assert_eq!(sorted(&got), sorted(expected), "{}", out.stderr);
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

fn the_host_is_not_there() {
    let lab = Lab::new("host-gone");
    fs::write(lab.root.join("beside"), "secret").unwrap();
    fs::set_permissions(lab.root.join("beside"), fs::Permissions::from_mode(0o644)).unwrap();
    let mut fence = Fence::build(&lab.spec()).unwrap();
    let beside = lab.root.join("beside");
    let script = format!(
        "ls {} /root /etc/shadow /etc/ssl/private /var/log /sys /dev/kmsg /dev/vda /boot /srv 2>&1 | grep -c 'No such'; \
         ls -A /home; ls -A /var; ls -A /tmp; echo x > /etc/passwd; echo x > /x; echo x > /dev/x; \
         touch /usr/x; mount -t tmpfs x /tmp; unshare -r true; ps aux | wc -l",
        beside.display()
    );
    let out = lab.run(&mut fence, &script);
    let tmp = lab.root.file_name().unwrap().to_str().unwrap();
    assert_eq!(out.stdout, format!("10\nagent\nrun\ntmp\n{tmp}\n5\n"), "{}", out.stderr);
    assert_eq!(out.stderr.matches("Read-only file system").count(), 4, "{}", out.stderr);
}

fn a_link_where_a_mount_should_be_is_not_followed() {
    let lab = Lab::new("mount-link");
    fs::create_dir(lab.root.join("git")).unwrap();
    std::os::unix::fs::symlink("/etc", lab.workspace.join(".git")).unwrap();
    let mut spec = lab.spec();
    spec.binds.push(bind(&lab.root.join("git"), &lab.workspace.join(".git"), BindAccess::ReadOnly));
    let error = Fence::build(&spec).unwrap_err();
    assert_eq!((error.kind(), error.errno()), (stockade_fence::FenceErrorKind::Source, libc::ELOOP));
    // And no mount point is made in a folder of the host.
    fs::remove_file(lab.workspace.join(".git")).unwrap();
    let error = Fence::build(&spec).unwrap_err();
    assert_eq!((error.kind(), error.errno()), (stockade_fence::FenceErrorKind::Source, libc::ENOENT));
    assert!(!lab.workspace.join(".git").exists());
}
