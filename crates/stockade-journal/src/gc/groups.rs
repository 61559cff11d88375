//! Control groups of runs that ended without removing them. A run's plan names them.

use std::path::{Path, PathBuf};

use rustix::{
    fs::{AtFlags, CWD},
    io::Errno,
};
use stockade_core::limits::{CgroupHierarchy, cgroup_name, cgroup_name_for_git};

use crate::{
    error::{ErrorKind, JournalError},
    files,
    run_dir::file,
};

/// The largest plan that is read.
const PLAN_LIMIT_BYTES: usize = 16 * 1024 * 1024;

/// How often the removal is tried, a millisecond apart.
const REMOVALS: u32 = 50;

/// The part of a plan that is needed here, so that plans of other versions can be read too.
#[derive(serde::Deserialize)]
struct Planned {
    #[serde(default)]
    cgroups: Vec<CgroupHierarchy>,
    session: String,
}

/// The groups of the run of this directory that are still there, each with whether nothing is in it.
pub(super) fn left(directory: &Path) -> Vec<(PathBuf, bool)> {
    let plan = files::read_at(CWD, directory.join(file::PLAN), PLAN_LIMIT_BYTES)
        .ok()
        .and_then(|bytes| serde_json::from_slice::<Planned>(&bytes).ok());
    let Some(plan) = plan else { return Vec::new() };
    // The name comes from a file: it must be one name.
    if plan.session.contains('/') {
        return Vec::new();
    }
    let names = [cgroup_name(&plan.session), cgroup_name_for_git(&plan.session)];
    plan.cgroups
        .iter()
        .flat_map(|h| names.iter().map(|name| h.parent.join(name)))
        .filter(|path| path.join("cgroup.procs").exists())
        .map(|path| {
            let empty = std::fs::read_to_string(path.join("cgroup.procs")).is_ok_and(|text| text.is_empty());
            (path, empty)
        })
        .collect()
}

/// Removes a group. One that something is in is refused by the kernel, and for a moment one that something was in.
pub(super) fn remove(path: &Path) -> Result<(), JournalError> {
    for _ in 0..REMOVALS {
        match rustix::fs::unlinkat(CWD, path, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::BUSY) => {
                let millisecond = rustix::event::Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
                // Cut short is as good.
                let _woken = rustix::event::poll(&mut [], Some(&millisecond));
            }
            Err(e) => return Err(JournalError::storage("remove", path, e)),
        }
    }
    Err(JournalError::new(ErrorKind::InUse, "remove", path, "something is still in it"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_plan_names_the_groups_and_only_those_that_are_there_are_left() {
        let t = tempfile::tempdir().unwrap();
        let parent = t.path().join("memory");
        let group = parent.join("stockade-r-1");
        fs::create_dir_all(&group).unwrap();
        fs::write(group.join("cgroup.procs"), "").unwrap();
        let plan = |session: &str| {
            let gone = t.path().join("pids");
            let cgroups = serde_json::json!([
                { "version": 1, "parent": parent, "controllers": ["memory"] },
                { "version": 1, "parent": gone, "controllers": ["pids"] },
            ]);
            fs::write(
                t.path().join(file::PLAN),
                serde_json::json!({ "session": session, "cgroups": cgroups, "other": 1 }).to_string(),
            )
            .unwrap();
        };
        plan("r-1");
        assert_eq!(left(t.path()), [(group.clone(), true)]);
        fs::write(group.join("cgroup.procs"), "42\n").unwrap();
        assert_eq!(left(t.path()), [(group, false)]);
        plan("r-1/../../other");
        assert_eq!(left(t.path()), []);
        fs::write(t.path().join(file::PLAN), "{}").unwrap();
        assert_eq!(left(t.path()), []);
    }
}
