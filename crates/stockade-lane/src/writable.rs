//! Folders that the agent is to write, looked at before anything is made.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use stockade_core::{
    mode::AccessMode,
    order::{Workspace, WorkspaceObjection},
    status::{Boundary, Cause, Refusal},
};
use stockade_fence::survey::Measuring;

use crate::exposure;

/// Whether the path itself is a link: what it points to could change while the agent works.
fn is_link(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_symlink())
}

/// Whether somebody else than the caller owns a folder. Root may give away what it likes.
fn is_anothers(owner: u32) -> bool {
    let me = rustix::process::geteuid();
    !me.is_root() && owner != me.as_raw()
}

/// Why a workspace that exists cannot be written.
pub(crate) fn objections(named: &Path, found: &Path, owner: u32) -> Vec<WorkspaceObjection> {
    let objection = |code: &str, message: String, remedy: &str| WorkspaceObjection {
        code: code.to_owned(),
        modes: vec![AccessMode::IsolatedWrite],
        message,
        evidence: Vec::new(),
        remedy: remedy.to_owned(),
    };
    let mut objections = Vec::new();
    if is_link(named) {
        objections.push(objection(
            "workspace-is-link",
            format!("`{}` is a symbolic link", named.display()),
            &format!("name the folder itself: `{}`", found.display()),
        ));
    }
    if is_anothers(owner) {
        objections.push(objection(
            "workspace-of-another-owner",
            format!("`{}` belongs to user {owner}", found.display()),
            "use a folder of your own, or start Stockade as its owner",
        ));
    }
    objections
}

/// Checks the paths of `--write`: as they were named, and as they were found.
pub(crate) fn check(
    named: &[PathBuf],
    found: &[PathBuf],
    workspace: &Workspace,
    measuring: &Measuring,
) -> Result<(), Refusal> {
    for (named, found) in named.iter().zip(found) {
        let shown = found.display();
        let refuse = |code: &str, message: String, remedy: String| {
            let cause = Cause::new(code, Boundary::Order, "write", message).with_remedy(remedy);
            Err(Refusal::usage(cause).with_path(named))
        };
        if is_link(named) {
            let message = format!("`{}` is a symbolic link", named.display());
            return refuse("path-is-link", message, format!("name what it points to: `{shown}`"));
        }
        if exposure::is_system_folder(found) {
            let message = format!("`{shown}` is a folder of the system");
            return refuse("path-is-system", message, "name a folder of its own".to_owned());
        }
        let Ok(meta) = fs::metadata(found) else { continue };
        if is_anothers(meta.uid()) {
            let message = format!("`{shown}` belongs to user {}", meta.uid());
            return refuse("path-of-another-owner", message, "name a path of your own".to_owned());
        }
        unmapped(named, found, meta.uid(), workspace, measuring)?;
    }
    Ok(())
}

/// On a root host the agent writes under a user of its own, so what it writes has to be on a file system that maps owners,
/// as soon as the workspace is.
fn unmapped(
    named: &Path,
    found: &Path,
    owner: u32,
    workspace: &Workspace,
    measuring: &Measuring,
) -> Result<(), Refusal> {
    let runs_as_owner = workspace.owner_uid != 0 && workspace.owner_uid == owner;
    if !rustix::process::geteuid().is_root() || workspace.idmap_refused.is_some() || runs_as_owner {
        return Ok(());
    }
    let Err(e) = measuring.can_idmap(found) else { return Ok(()) };
    let cause = Cause::new(
        "path-cannot-map",
        Boundary::Order,
        e.step().to_owned(),
        format!("the file system of `{}` cannot map owners, and the agent is not root", found.display()),
    )
    .with_errno(e.errno())
    .with_remedy("name a path on the workspace's file system, or start Stockade as the path's owner");
    Err(Refusal::usage(cause).with_path(named))
}
