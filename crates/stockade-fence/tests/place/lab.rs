//! A place to test in: folders of its own, a fence over them, and programs run in it.

use std::fs;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use stockade_core::survey::Rung;
use stockade_fence::{
    Bind, BindAccess, BindOwner, Exited, Fence, FenceNetwork, FenceSpec, Identity, Notice, OwnBinary,
    ProofRequest, Role, RoleId, SpawnLimits, SpawnRequest, WorkspaceProof, private_kernel_id, stdio,
};

/// Where bubblewrap is, for the rung that goes through it.
const BUBBLEWRAP: &str = "/usr/bin/bwrap";

/// Folders of one test.
pub(crate) struct Lab {
    pub(crate) root: PathBuf,
    pub(crate) workspace: PathBuf,
    pub(crate) home: PathBuf,
    pub(crate) decoys: PathBuf,
}

/// How a program ended and what it said.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) exited: Exited,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Lab {
    pub(crate) fn new(name: &str) -> Self {
        let root = folder_of(name, std::process::id());
        let _ = fs::remove_dir_all(&root);
        let lab =
            Self { workspace: root.join("ws"), home: root.join("home"), decoys: root.join("decoys"), root };
        for folder in [&lab.workspace, &lab.home, &lab.decoys] {
            fs::create_dir_all(folder).unwrap();
        }
        fs::write(lab.workspace.join("file"), "from the host\n").unwrap();
        lab
    }

    pub(crate) fn spec(&self) -> FenceSpec {
        FenceSpec {
            rung: Rung::Ns,
            bubblewrap: None,
            identity: identity(),
            binds: vec![
                bind(&self.workspace, &self.workspace, BindAccess::ReadWrite),
                bind(&self.home, Path::new("/home/agent"), BindAccess::ReadWrite),
            ],
            network: FenceNetwork::Gateway,
            own_binary: OwnBinary::Absent,
            temp_bytes: 16 << 20,
            max_processes: Some(4096),
            group: None,
        }
    }

    /// The same on a rung.
    pub(crate) fn spec_on(&self, rung: Rung) -> FenceSpec {
        let spec = FenceSpec { rung, ..self.spec() };
        match rung {
            Rung::Nsl => {
                assert!(can_landlock(), "this kernel has no Landlock with ABI 6: `nsl` cannot be tested");
            }
            Rung::Bs => {
                assert!(Path::new(BUBBLEWRAP).exists(), "`bs` cannot be tested: install bubblewrap");
                let root = matches!(spec.identity, Identity::Kernel { .. });
                let identity = if root { Identity::KernelRoot } else { spec.identity };
                return FenceSpec { bubblewrap: Some(BUBBLEWRAP.into()), identity, ..spec };
            }
            Rung::Ns | Rung::NsNest | Rung::NsHostproc => {}
        }
        spec
    }

    pub(crate) fn proof(&self) -> ProofRequest {
        ProofRequest {
            decoys: self.decoys.clone(),
            workspace: Some(WorkspaceProof { path: self.workspace.clone(), access: BindAccess::ReadWrite }),
            protected: Vec::new(),
        }
    }

    /// Runs a shell script as the agent and waits for its end.
    pub(crate) fn run(&self, fence: &mut Fence, script: &str) -> Outcome {
        run(fence, &self.shell(Role::Agent, script))
    }

    /// The same with another shell.
    pub(crate) fn run_with(&self, fence: &mut Fence, shell: &str, script: &str) -> Outcome {
        let mut spawn = self.shell(Role::Agent, script);
        spawn.argv[0] = shell.into();
        run(fence, &spawn)
    }

    /// The same in another folder.
    pub(crate) fn run_in(&self, fence: &mut Fence, cwd: &str, script: &str) -> Outcome {
        let mut spawn = self.shell(Role::Agent, script);
        spawn.cwd = cwd.into();
        run(fence, &spawn)
    }

    pub(crate) fn shell(&self, role: Role, script: &str) -> SpawnRequest {
        SpawnRequest {
            role,
            argv: ["/bin/sh", "-c", script].map(String::from).into(),
            env: vec![("PATH".into(), "/usr/bin:/bin".into()), ("HOME".into(), "/home/agent".into())],
            cwd: self.workspace.clone(),
            limits: SpawnLimits::default(),
        }
    }
}

/// Reads both streams while the program runs, so that it never waits for a reader.
fn run(fence: &mut Fence, spawn: &SpawnRequest) -> Outcome {
    let (theirs, ours) = stdio::pipes().unwrap();
    let id = fence.spawn(spawn, theirs).unwrap();
    drop(ours.stdin);
    let stdout = std::thread::spawn(move || text(ours.stdout));
    let stderr = std::thread::spawn(move || text(ours.stderr));
    let exited = wait_for(fence, id);
    Outcome { exited, stdout: stdout.join().unwrap(), stderr: stderr.join().unwrap() }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// Where a process keeps its lab of that name.
pub(crate) fn folder_of(name: &str, process: u32) -> PathBuf {
    std::env::temp_dir().join(format!("stockade-place-{name}-{process}"))
}

pub(crate) fn bind(source: &Path, target: &Path, access: BindAccess) -> Bind {
    Bind { source: source.into(), target: target.into(), access, owner: BindOwner::Payload }
}

pub(crate) fn identity() -> Identity {
    if rustix::process::geteuid().is_root() && in_initial_user_namespace() {
        let id = private_kernel_id("test").unwrap();
        Identity::Kernel { uid: id, gid: id }
    } else {
        Identity::Caller
    }
}

pub(crate) fn wait_for(fence: &mut Fence, id: RoleId) -> Exited {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        match fence.next_notice().unwrap() {
            Some(Notice::Exited(exited)) if exited.role == id => return exited,
            Some(Notice::Exited(_)) => {}
            Some(Notice::Closed) => panic!("the fence closed"),
            None => {
                assert!(Instant::now() < end, "the role does not end");
                let timeout = Timespec { tv_sec: 1, tv_nsec: 0 };
                let fd =
                    rustix::event::PollFd::from_borrowed_fd(fence.control(), rustix::event::PollFlags::IN);
                rustix::event::poll(&mut [fd], Some(&timeout)).unwrap();
            }
        }
    }
}

pub(crate) fn text(stream: OwnedFd) -> String {
    let mut bytes = Vec::new();
    fs::File::from(stream).read_to_end(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn in_initial_user_namespace() -> bool {
    fs::read_link("/proc/self/ns/user").unwrap() == Path::new("user:[4026531837]")
}

/// Whether the kernel has Landlock with scopes.
pub(crate) fn can_landlock() -> bool {
    // SAFETY: with this flag the call takes no attribute and only answers a number.
    let abi = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, 0_usize, 0_usize, 1_u32) };
    abi >= 6
}

pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        pause(Duration::from_millis(5));
    }
}

pub(crate) fn pause(time: Duration) {
    rustix::event::poll(&mut [], Some(&Timespec::try_from(time).unwrap())).unwrap();
}
