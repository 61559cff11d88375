//! Tests run built programs as users who own nothing, so those users have to reach the build folder.

use std::{
    fs::{self, DirBuilder},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};

use crate::repository;

/// Used where the repository lies in a private folder, such as root's home.
const ELSEWHERE: &str = "/var/tmp/stockade-target";

/// The build folder to use in place of the usual one; `None`: that one will do.
pub(super) fn other_target() -> Result<Option<PathBuf>> {
    let target = repository::target();
    if target.ancestors().all(others_pass) {
        return Ok(None);
    }
    let elsewhere = PathBuf::from(ELSEWHERE);
    ensure!(target != elsewhere, "other users cannot reach {ELSEWHERE}");
    if !elsewhere.exists() {
        DirBuilder::new().mode(0o755).create(&elsewhere).with_context(|| format!("making {ELSEWHERE}"))?;
    }
    let found = fs::symlink_metadata(&elsewhere)?;
    let own = found.is_dir() && found.uid() == rustix::process::geteuid().as_raw();
    ensure!(own, "{ELSEWHERE} is there and is not a folder of this user");
    Ok(Some(elsewhere))
}

/// Whether everybody may pass through a folder. One that is not there yet will be made so.
fn others_pass(folder: &Path) -> bool {
    fs::metadata(folder).map_or(true, |m| m.permissions().mode() & 0o001 != 0)
}

#[cfg(test)]
mod tests {
    use super::others_pass;

    #[test]
    fn a_private_folder_is_told_from_a_public_one() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        for (mode, expected) in [(0o755, true), (0o711, true), (0o700, false), (0o750, false)] {
            std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(others_pass(folder.path()), expected, "{mode:o}");
        }
    }
}
