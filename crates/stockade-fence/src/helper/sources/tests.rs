use std::os::fd::AsFd;
use std::os::unix::fs::symlink;

use rustix::fs::{Mode, OFlags};
use stockade_core::survey::Rung;

use super::*;
use crate::spec::{Bind, FenceNetwork};

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("stockade-sources-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        for folder in ["ws", "other"] {
            std::fs::create_dir_all(dir.join(folder)).unwrap();
            std::fs::write(dir.join(folder).join("who"), folder).unwrap();
        }
        Self(dir)
    }

    fn workspace(&self) -> PathBuf {
        self.0.join("ws")
    }

    fn spec(&self, identity: Identity) -> FenceSpec {
        let bind = Bind {
            source: self.workspace(),
            target: self.workspace(),
            access: BindAccess::ReadWrite,
            owner: BindOwner::Payload,
        };
        FenceSpec {
            rung: Rung::Ns,
            bubblewrap: None,
            identity,
            binds: vec![bind],
            network: FenceNetwork::Empty,
            own_binary: OwnBinary::Absent,
            temp_bytes: 1 << 20,
            max_processes: None,
            group: None,
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The workspace among what was gathered.
fn workspace_of(gathered: Gathered, scratch: &Scratch) -> Source {
    gathered.sources.into_iter().find(|s| s.target == scratch.workspace()).unwrap()
}

#[test]
fn a_folder_swapped_between_check_and_mount_is_noticed() {
    let scratch = Scratch::new("folder");
    let source = workspace_of(gather(&scratch.spec(Identity::Caller)).unwrap(), &scratch);
    std::fs::rename(scratch.workspace(), scratch.0.join("away")).unwrap();
    std::fs::rename(scratch.0.join("other"), scratch.workspace()).unwrap();
    let error = source.into_tree().unwrap_err();
    assert_eq!((error.kind(), error.errno()), (FenceErrorKind::Changed, libc::ESTALE));
    assert_eq!(error.path(), Some(scratch.workspace().as_path()));
}

#[test]
fn a_folder_swapped_for_a_link_is_noticed() {
    let scratch = Scratch::new("link");
    let source = workspace_of(gather(&scratch.spec(Identity::Caller)).unwrap(), &scratch);
    std::fs::rename(scratch.workspace(), scratch.0.join("away")).unwrap();
    symlink(scratch.0.join("other"), scratch.workspace()).unwrap();
    let error = source.into_tree().unwrap_err();
    assert_eq!((error.kind(), error.errno()), (FenceErrorKind::Changed, libc::ELOOP));
}

#[test]
fn on_a_root_host_a_later_swap_changes_nothing() {
    assert!(rustix::process::geteuid().is_root(), "this test needs root");
    for identity in [Identity::KernelRoot, Identity::Kernel { uid: 0x7000_0001, gid: 0x7000_0001 }] {
        let scratch = Scratch::new("root");
        let source = workspace_of(gather(&scratch.spec(identity)).unwrap(), &scratch);
        std::fs::rename(scratch.workspace(), scratch.0.join("away")).unwrap();
        symlink(scratch.0.join("other"), scratch.workspace()).unwrap();
        let (tree, _) = source.into_tree().unwrap();
        let file = rustix::fs::openat(tree.as_fd(), "who", OFlags::RDONLY, Mode::empty()).unwrap();
        let mut who = [0; 8];
        let n = rustix::io::read(file, &mut who).unwrap();
        assert_eq!(&who[..n], b"ws", "{identity:?}");
    }
}

#[test]
fn what_the_caller_named_wrongly_is_the_callers_to_mend() {
    let scratch = Scratch::new("wrong");
    let fails = |path: &Path| {
        let mut spec = scratch.spec(Identity::Caller);
        spec.binds[0].source = path.to_path_buf();
        let error = gather(&spec).unwrap_err();
        assert_eq!(error.path(), Some(path));
        (error.kind(), error.errno())
    };
    assert_eq!(fails(&scratch.0.join("missing")), (FenceErrorKind::Source, libc::ENOENT));
    symlink("ws", scratch.0.join("link")).unwrap();
    assert_eq!(fails(&scratch.0.join("link")), (FenceErrorKind::Source, libc::ELOOP));
    assert_eq!(fails(&scratch.0.join("link/who")), (FenceErrorKind::Source, libc::ELOOP));
    std::os::unix::net::UnixListener::bind(scratch.0.join("socket")).unwrap();
    assert_eq!(fails(&scratch.0.join("socket")), (FenceErrorKind::Source, libc::EINVAL));
}

#[test]
fn private_keys_and_accounts_are_not_among_what_is_gathered() {
    let scratch = Scratch::new("etc");
    let gathered = gather(&scratch.spec(Identity::Caller)).unwrap();
    let targets = gathered.sources.iter().map(|s| s.target.as_path());
    let all: Vec<&Path> = targets.chain(gathered.links.iter().map(|(at, _)| at.as_path())).collect();
    for hidden in
        ["/etc", "/etc/ssl", "/etc/ssl/private", "/etc/shadow", "/etc/passwd", "/root", "/home", "/var"]
    {
        assert!(!all.contains(&Path::new(hidden)), "{hidden}");
    }
    assert!(all.contains(&Path::new("/usr")));
}
