//! A place to test in: folders of its own, a fence over them, and programs run in it.

use std::fs;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use stockade_core::survey::Rung;
use stockade_fence::{
    Bind, BindAccess, BindOwner, Exited, Fence, FenceNetwork, FenceSpec, Identity, Notice, OwnBinary,
    ProofRequest, Role, RoleId, SpawnLimits, SpawnRequest, WorkspaceProof, private_kernel_id, stdio,
};

/// Folders of one test.
pub struct Lab {
    pub root: PathBuf,
    pub workspace: PathBuf,
    pub home: PathBuf,
    pub decoys: PathBuf,
}

/// How a program ended and what it said.
#[derive(Debug)]
pub struct Outcome {
    pub exited: Exited,
    pub stdout: String,
    pub stderr: String,
}

impl Lab {
    pub fn new(name: &str) -> Self {
        let root = std::env::temp_dir().join(format!("stockade-place-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        let lab =
            Self { workspace: root.join("ws"), home: root.join("home"), decoys: root.join("decoys"), root };
        for folder in [&lab.workspace, &lab.home, &lab.decoys] {
            fs::create_dir_all(folder).unwrap();
        }
        fs::write(lab.workspace.join("file"), "from the host\n").unwrap();
        lab
    }

    pub fn spec(&self) -> FenceSpec {
        FenceSpec {
            rung: Rung::Ns,
            identity: identity(),
            binds: vec![
                bind(&self.workspace, &self.workspace, BindAccess::ReadWrite),
                bind(&self.home, Path::new("/home/agent"), BindAccess::ReadWrite),
            ],
            network: FenceNetwork::Gateway,
            own_binary: OwnBinary::Absent,
            temp_bytes: 16 << 20,
            max_processes: Some(4096),
        }
    }

    pub fn build(&self, spec: FenceSpec) -> Fence {
        Fence::build(&spec).unwrap()
    }

    pub fn proof(&self) -> ProofRequest {
        ProofRequest {
            decoys: self.decoys.clone(),
            workspace: Some(WorkspaceProof { path: self.workspace.clone(), access: BindAccess::ReadWrite }),
            protected: Vec::new(),
        }
    }

    /// Runs a shell script as the agent and waits for its end.
    pub fn run(&self, fence: &mut Fence, script: &str) -> Outcome {
        let (theirs, ours) = stdio::pipes().unwrap();
        let id = fence.spawn(&self.shell(Role::Agent, script), theirs).unwrap();
        drop(ours.stdin);
        let exited = wait_for(fence, id);
        Outcome { exited, stdout: text(ours.stdout), stderr: text(ours.stderr) }
    }

    pub fn shell(&self, role: Role, script: &str) -> SpawnRequest {
        SpawnRequest {
            role,
            argv: ["/bin/sh", "-c", script].map(String::from).into(),
            env: vec![("PATH".into(), "/usr/bin:/bin".into()), ("HOME".into(), "/home/agent".into())],
            cwd: self.workspace.clone(),
            limits: SpawnLimits::default(),
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

pub fn bind(source: &Path, target: &Path, access: BindAccess) -> Bind {
    Bind { source: source.into(), target: target.into(), access, owner: BindOwner::Payload }
}

pub fn identity() -> Identity {
    if rustix::process::geteuid().is_root() {
        let id = private_kernel_id("test").unwrap();
        Identity::Kernel { uid: id, gid: id }
    } else {
        Identity::Caller
    }
}

pub fn wait_for(fence: &mut Fence, id: RoleId) -> Exited {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        match fence.next_notice().unwrap() {
            Some(Notice::Exited(exited)) if exited.role == id => return exited,
            Some(Notice::Exited(_)) => {}
            Some(Notice::Closed) => panic!("the fence closed"),
            None => {
                assert!(Instant::now() < end, "the role does not end");
                let timeout = rustix::event::Timespec { tv_sec: 1, tv_nsec: 0 };
                let fd =
                    rustix::event::PollFd::from_borrowed_fd(fence.control(), rustix::event::PollFlags::IN);
                rustix::event::poll(&mut [fd], Some(&timeout)).unwrap();
            }
        }
    }
}

fn text(stream: OwnedFd) -> String {
    let mut bytes = Vec::new();
    fs::File::from(stream).read_to_end(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}
