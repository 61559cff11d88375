//! Root hosts: owners, foreign kernel ids, and file systems that cannot map.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags};
use stockade_fence::survey::{Extent, Measuring, SurveyRequest};
use stockade_fence::{BindAccess, BindOwner, Fence, FenceErrorKind, Identity, private_kernel_id};

use super::harness::Test;
use super::lab::{Lab, bind};

pub(crate) const TESTS: &[Test] = &[
    ("the_payload_is_nobody_on_the_host", the_payload_is_nobody_on_the_host),
    ("a_workspace_of_another_owner_stays_that_owners", a_workspace_of_another_owner_stays_that_owners),
    (
        "a_private_provider_folder_can_be_run_and_not_changed",
        a_private_provider_folder_can_be_run_and_not_changed,
    ),
    ("a_file_system_that_cannot_map_says_so", a_file_system_that_cannot_map_says_so),
    ("kernel_root_is_held_too", kernel_root_is_held_too),
];

fn the_payload_is_nobody_on_the_host() {
    let lab = Lab::new("nobody");
    let uid = private_kernel_id("a run").unwrap();
    let mut spec = lab.spec();
    spec.identity = Identity::Kernel { uid, gid: uid };
    let mut fence = Fence::build(&spec).unwrap();
    let proof = fence.prove(&lab.proof()).unwrap();
    assert_eq!(proof.kernel_uid, uid);
    let out =
        lab.run(&mut fence, "cat /proc/self/uid_map; echo x > /proc/sys/kernel/core_pattern; touch mine; id");
    assert_eq!(out.stdout.split_whitespace().take(3).collect::<Vec<_>>(), ["1000", &uid.to_string(), "1"]);
    assert!(out.stdout.contains("groups=1000(agent)\n"), "{}", out.stdout);
    let mine = fs::metadata(lab.workspace.join("mine")).unwrap();
    assert_eq!((mine.uid(), mine.gid()), (0, 0));
}

fn a_workspace_of_another_owner_stays_that_owners() {
    let lab = Lab::new("owner");
    for path in [lab.workspace.clone(), lab.workspace.join("file"), lab.home.clone()] {
        chown(path, Some(4321), Some(8765)).unwrap();
    }
    fs::write(lab.workspace.join("roots"), "of root").unwrap();
    for uid in [4321, private_kernel_id("other").unwrap()] {
        let mut spec = lab.spec();
        spec.identity = Identity::Kernel { uid, gid: if uid == 4321 { 8765 } else { uid } };
        let mut fence = Fence::build(&spec).unwrap();
        fence.prove(&lab.proof()).unwrap();
        let out = lab.run(&mut fence, "stat -c %u . file; echo x > made; echo x > roots; echo x >> file");
        assert_eq!(out.stdout, "1000\n1000\n", "{}", out.stderr);
        assert!(out.stderr.contains("Permission denied"), "{}", out.stderr);
        let made = fs::metadata(lab.workspace.join("made")).unwrap();
        assert_eq!((made.uid(), made.gid()), (4321, 8765));
        fs::remove_file(lab.workspace.join("made")).unwrap();
    }
}

fn a_private_provider_folder_can_be_run_and_not_changed() {
    let lab = Lab::new("provider");
    let provider = lab.root.join("provider");
    fs::create_dir(&provider).unwrap();
    fs::copy("/bin/echo", provider.join("agent")).unwrap();
    for path in [provider.join("agent"), provider.clone()] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
    }
    let mut spec = lab.spec();
    let mut provider = bind(&provider, Path::new("/provider"), BindAccess::ReadOnly);
    provider.owner = BindOwner::Host;
    spec.binds.push(provider);
    let mut fence = Fence::build(&spec).unwrap();
    let out =
        lab.run(&mut fence, "/provider/agent runs; touch /provider/x; mv /provider /p; chmod 777 /provider");
    assert_eq!(out.stdout, "runs\n", "{}", out.stderr);
    assert_eq!(out.stderr.lines().count(), 3, "{}", out.stderr);
}

/// An overlay over three folders, taken off again when dropped.
struct Overlay(PathBuf);

impl Overlay {
    fn over(lab: &Lab) -> Self {
        let folder = |name: &str| {
            let path = lab.root.join(name);
            fs::create_dir(&path).unwrap();
            path
        };
        let [lower, upper, work, at] = ["lower", "upper", "work", "merged"].map(folder);
        fs::create_dir(lower.join("ws")).unwrap();
        fs::write(lower.join("ws/file"), "from below\n").unwrap();
        let options =
            format!("lowerdir={},upperdir={},workdir={}", lower.display(), upper.display(), work.display());
        let options = std::ffi::CString::new(options).unwrap();
        rustix::mount::mount("overlay", &at, "overlay", MountFlags::empty(), options.as_c_str())
            .expect("this test needs overlayfs");
        Self(at)
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, UnmountFlags::DETACH);
    }
}

fn a_file_system_that_cannot_map_says_so() {
    let lab = Lab::new("overlay");
    let overlay = Overlay::over(&lab);
    let workspace = overlay.0.join("ws");
    let measuring = Measuring::begin(SurveyRequest { path: None, extent: Extent::FirstThatStands });
    assert_eq!(measuring.can_idmap(&lab.workspace), Ok(()));
    let error = measuring.can_idmap(&workspace).unwrap_err();
    assert_eq!((error.kind(), error.errno()), (FenceErrorKind::CannotIdmap, libc::EINVAL));
    assert_eq!(error.path(), Some(workspace.as_path()));
    let mut spec = lab.spec();
    spec.binds[0] = bind(&workspace, &workspace, BindAccess::ReadWrite);
    let error = Fence::build(&spec).unwrap_err();
    assert_eq!((error.kind(), error.step()), (FenceErrorKind::CannotIdmap, "mount_setattr(IDMAP)"));
    assert_eq!(error.path(), Some(workspace.as_path()));
    // What the caller may plan instead, in words of its own.
    spec.identity = Identity::KernelRoot;
    let mut fence = Fence::build(&spec).unwrap();
    let mut request = lab.proof();
    request.workspace.as_mut().unwrap().path.clone_from(&workspace);
    assert_eq!(fence.prove(&request).unwrap().kernel_uid, 0);
    let script = format!("cd {} && cat file && echo x > made && chmod 4755 made; id -u", workspace.display());
    let out = lab.run_in(&mut fence, "/", &script);
    assert_eq!(out.stdout, "from below\n1000\n", "{}", out.stderr);
    assert_eq!(fs::metadata(workspace.join("made")).unwrap().mode() & 0o7777, 0o644);
    drop(fence);
}

fn kernel_root_is_held_too() {
    let lab = Lab::new("kernel-root");
    let mut spec = lab.spec();
    spec.identity = Identity::KernelRoot;
    spec.max_processes = Some(500);
    let pid_max = fs::read_to_string("/proc/sys/kernel/pid_max").unwrap();
    let mut fence = Fence::build(&spec).unwrap();
    fence.prove(&lab.proof()).unwrap();
    let out = lab.run(
        &mut fence,
        "for f in core_pattern pid_max hostname; do echo x > /proc/sys/kernel/$f; done; \
         echo 0 > /proc/sys/vm/drop_caches; echo x > /proc/irq/default_smp_affinity; \
         grep -E 'CapEff|CapPrm' /proc/self/status; cat /etc/shadow; ls /root; unshare -r true; mount -t proc p /tmp; \
         chown 0:0 file; echo x > made",
    );
    assert_eq!(out.stdout, "CapPrm:\t0000000000000000\nCapEff:\t0000000000000000\n", "{}", out.stderr);
    assert_eq!(out.stderr.matches("Read-only file system").count(), 5, "{}", out.stderr);
    assert_eq!(fs::read_to_string("/proc/sys/kernel/pid_max").unwrap(), pid_max);
    assert_eq!(fs::metadata(lab.workspace.join("made")).unwrap().uid(), 0);
}
