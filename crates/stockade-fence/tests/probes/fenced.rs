//! Builds a fence as a lane would and runs the probes in it. Started as a careless caller leaves it.

use std::fs::File;
use std::io::{Read, Write};
use std::process::ExitCode;

use stockade_core::mode::AccessMode;
use stockade_core::survey::Rung;
use stockade_fence::probes::{ARGUMENT as PROBES_ARGUMENT, FixtureFacts};
use stockade_fence::{
    Bind, BindAccess, BindOwner, Fence, FenceNetwork, FenceSpec, Identity, OWN_BINARY, OwnBinary, Role,
    SpawnLimits, SpawnRequest, private_kernel_id, stdio,
};

use super::cases::Payload;

pub(crate) const ARGUMENT: &str = "stockade-test-fenced";

pub(crate) fn run(mode: &str, rung: &str, payload: &str) -> ExitCode {
    let mode = AccessMode::ALL.into_iter().find(|m| m.id() == mode).unwrap();
    let rung = Rung::ALL.into_iter().find(|r| r.id() == rung).unwrap();
    let payload = Payload::ALL.into_iter().find(|p| p.id() == payload).unwrap();
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).unwrap();
    let facts = FixtureFacts { init: 1, ..serde_json::from_str(&text).unwrap() };

    let mut fence =
        Fence::build(&spec(&facts, mode, rung, payload)).unwrap_or_else(|error| panic!("build: {error}"));
    let (streams, ends) = stdio::sockets().unwrap();
    let request = SpawnRequest {
        role: Role::Probe,
        argv: vec![OWN_BINARY.to_owned(), PROBES_ARGUMENT.to_owned()],
        env: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
        cwd: facts.workspace.clone(),
        limits: SpawnLimits::default(),
    };
    fence.spawn(&request, streams).unwrap_or_else(|error| panic!("spawn: {error}"));
    let mut stdin = File::from(ends.stdin);
    stdin.write_all(&serde_json::to_vec(&facts).unwrap()).unwrap();
    drop(stdin);
    let mut observations = Vec::new();
    File::from(ends.stdout).read_to_end(&mut observations).unwrap();
    std::io::stdout().write_all(&observations).unwrap();
    ExitCode::SUCCESS
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
