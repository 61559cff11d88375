//! A fence such as a lane builds, for the probes to be taken in.

use stockade_core::mode::AccessMode;
use stockade_core::survey::Rung;
use stockade_fence::probes::{FencedRequest, FixtureFacts};
use stockade_fence::{
    Bind, BindAccess, BindOwner, FenceNetwork, FenceSpec, Identity, OwnBinary, SpawnLimits, private_kernel_id,
};

use super::cases::Payload;

/// The fence and limits that the probes soon meet.
pub(crate) fn request(facts: &FixtureFacts, mode: AccessMode, rung: Rung, payload: Payload) -> FencedRequest {
    FencedRequest {
        spec: spec(facts, mode, rung, payload),
        limits: SpawnLimits { file_bytes: Some(32 << 20), ..SpawnLimits::default() },
    }
}

/// The workspace as its mode says, the git pointer in it and the repository's metadata for reading.
fn spec(facts: &FixtureFacts, mode: AccessMode, rung: Rung, payload: Payload) -> FenceSpec {
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
            bind(facts.root.join("repo/.git"), BindAccess::ReadOnly),
        ],
        network: FenceNetwork::Gateway,
        own_binary: OwnBinary::Bound,
        temp_bytes: 64 << 20,
        max_processes: Some(512),
        group: None,
    }
}
