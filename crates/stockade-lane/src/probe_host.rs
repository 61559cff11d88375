//! The host side of the escape probes, made with what the caller has on `PATH`.

use std::{collections::BTreeMap, path::PathBuf};

use stockade_core::status::{Boundary, Cause, Refusal, Status};
use stockade_fence::probes::host::{Host, HostRequest, WorkspaceIs};

/// Makes in this folder, which must not exist yet, what the probes reach for. `environment` is the caller's: `git` and
/// `sleep` are looked for on its `PATH`.
pub fn probe_host(
    environment: &BTreeMap<String, String>,
    folder: PathBuf,
    workspace: WorkspaceIs,
) -> Result<Host, Refusal> {
    let path = environment.get("PATH").map(String::as_str).unwrap_or_default();
    let host = HostRequest { folder, git: program(path, "git")?, sleep: program(path, "sleep")?, workspace };
    Host::start(&host).map_err(|e| {
        let cause = Cause::new(
            "fixture",
            Boundary::Host,
            e.step().to_owned(),
            format!("what the probes reach for cannot be made: {e}"),
        );
        Refusal::new(Status::SandboxUnavailable, cause.with_errno(e.errno()))
    })
}

/// Both run outside the fence, in folders that were just made.
fn program(path: &str, name: &str) -> Result<PathBuf, Refusal> {
    let found = std::env::split_paths(path).map(|folder| folder.join(name)).find(|p| p.is_file());
    found.ok_or_else(|| {
        let cause = Cause::new("fixture", Boundary::Host, "find", format!("no `{name}` on PATH"));
        Refusal::new(
            Status::SandboxUnavailable,
            cause.with_remedy(format!("install `{name}`: the probes need it")),
        )
    })
}
