//! A fence such as a lane builds, for the probes to be taken in.

use std::path::{Path, PathBuf};

use stockade_core::mode::AccessMode;
use stockade_core::survey::Rung;
use stockade_fence::probes::{FencedRequest, FixtureFacts};
use stockade_fence::{
    Bind, BindAccess, BindOwner, FenceNetwork, FenceSpec, Identity, OwnBinary, SpawnLimits, private_kernel_id,
};

use super::cases::Payload;

/// The fence and limits that the probes soon meet.
pub(crate) fn request(
    facts: &FixtureFacts,
    private_git: &Path,
    mode: AccessMode,
    rung: Rung,
    payload: Payload,
) -> FencedRequest {
    FencedRequest {
        spec: spec(facts, private_git, mode, rung, payload),
        limits: SpawnLimits { file_bytes: Some(16 << 20), ..SpawnLimits::default() },
    }
}

/// A git folder of the lane's own, with what the probes reach for, that stands where the repository's is.
pub(crate) struct PrivateGit(pub(crate) PathBuf);

impl PrivateGit {
    pub(crate) fn beside(facts: &FixtureFacts) -> Self {
        let folder = facts.root.with_extension("git");
        std::fs::create_dir_all(folder.join("worktrees/lane")).unwrap();
        for file in ["config", "worktrees/lane/commondir"] {
            std::fs::copy(facts.root.join("repo/.git").join(file), folder.join(file)).unwrap();
        }
        Self(folder)
    }
}

impl Drop for PrivateGit {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

/// The workspace as its mode says, the git pointer in it for reading, and a git folder of the lane's own.
fn spec(
    facts: &FixtureFacts,
    private_git: &Path,
    mode: AccessMode,
    rung: Rung,
    payload: Payload,
) -> FenceSpec {
    let bind = |path: std::path::PathBuf, access| Bind {
        source: path.clone(),
        target: path,
        access,
        owner: BindOwner::Payload,
    };
    let workspace = match mode {
        AccessMode::ReadOnly => BindAccess::ReadOnly,
        AccessMode::IsolatedWrite => BindAccess::ReadWrite,
    };
    let identity = match payload {
        Payload::KernelRoot => Identity::KernelRoot,
        Payload::Unprivileged if rustix::process::geteuid().is_root() => {
            let id = private_kernel_id(&facts.token).unwrap();
            Identity::Kernel { uid: id, gid: id }
        }
        Payload::Unprivileged => Identity::Caller,
    };
    FenceSpec {
        rung,
        bubblewrap: None,
        identity,
        binds: vec![
            bind(facts.workspace.clone(), workspace),
            bind(facts.workspace.join(".git"), BindAccess::ReadOnly),
            Bind { source: private_git.to_owned(), ..bind(facts.root.join("repo/.git"), workspace) },
        ],
        network: FenceNetwork::Gateway,
        own_binary: OwnBinary::Bound,
        temp_bytes: 32 << 20,
        max_processes: Some(512),
        group: None,
    }
}
