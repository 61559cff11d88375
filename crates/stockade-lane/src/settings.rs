//! Files of a workspace that configure the agent whatever it is told: code in them would run in the agent itself, before
//! any model was asked. A workspace that holds one is refused.

use std::path::Path;

use stockade_core::{
    mode::AccessMode,
    order::WorkspaceObjection,
    profile::Profile,
    status::{Boundary, Cause, Refusal, Status},
};

const CODE: &str = "workspace-configures-agent";
const REMEDY: &str = "take them out of the working folder of this run, or use another provider";

/// The names of the profile that are in a folder, whatever they are there.
fn found(folder: &Path, profile: &Profile) -> Vec<String> {
    let names = profile.launch.workspace_settings.iter();
    names.filter(|name| folder.join(name).symlink_metadata().is_ok()).cloned().collect()
}

fn message(profile: &Profile) -> String {
    format!(
        "the workspace holds settings of {} itself, which it obeys whatever it is told, code in them included",
        profile.title
    )
}

/// What is to be said against a workspace that the agent works in as it is.
pub(crate) fn objection(workspace: &Path, profile: &Profile) -> Option<WorkspaceObjection> {
    let evidence = found(workspace, profile);
    (!evidence.is_empty()).then(|| WorkspaceObjection {
        code: CODE.to_owned(),
        modes: AccessMode::ALL.to_vec(),
        message: message(profile),
        evidence,
        remedy: REMEDY.to_owned(),
    })
}

/// Refuses the folder that is worked in, looked at again when it is complete: of a worktree that was made for the run it is only
/// known now what is in it.
pub(crate) fn check(folder: &Path, profile: &Profile) -> Result<(), Refusal> {
    let evidence = found(folder, profile);
    if evidence.is_empty() {
        return Ok(());
    }
    let cause = Cause::new(CODE, Boundary::Workspace, "look", message(profile)).with_remedy(REMEDY);
    let cause = evidence.into_iter().fold(cause, Cause::with_evidence);
    Err(Refusal::new(Status::WorkspaceRefused, cause))
}
