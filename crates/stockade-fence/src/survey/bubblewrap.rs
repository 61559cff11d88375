//! bubblewrap on PATH: a look-up only. It is never started on the host.

use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;

use rustix::fs::Access;
use stockade_core::survey::BubblewrapFacts;

/// Finds the first executable file `bwrap` in the absolute folders of `path`.
///
/// Relative and empty entries name the current folder, which may be a workspace: they are passed over.
pub(super) fn look_up(path: Option<&OsStr>) -> BubblewrapFacts {
    let folders = path.into_iter().flat_map(std::env::split_paths).filter(|folder| folder.is_absolute());
    for candidate in folders.map(|folder| folder.join("bwrap")) {
        let Ok(metadata) = std::fs::metadata(&candidate) else { continue };
        if metadata.is_file() && rustix::fs::access(&candidate, Access::EXEC_OK).is_ok() {
            return BubblewrapFacts { path: Some(candidate), setuid: metadata.mode() & libc::S_ISUID != 0 };
        }
    }
    BubblewrapFacts { path: None, setuid: false }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::look_up;

    #[test]
    fn only_an_executable_file_in_an_absolute_folder_counts() {
        let root = std::env::temp_dir().join(format!("stockade-bwrap-{}", std::process::id()));
        for folder in ["a", "b", "c/bwrap"] {
            std::fs::create_dir_all(root.join(folder)).unwrap();
        }
        std::fs::write(root.join("a/bwrap"), "").unwrap();
        std::fs::set_permissions(root.join("a/bwrap"), PermissionsExt::from_mode(0o644)).unwrap();
        std::fs::write(root.join("b/bwrap"), "").unwrap();
        std::fs::set_permissions(root.join("b/bwrap"), PermissionsExt::from_mode(0o4755)).unwrap();

        let path = |folders: &[&Path]| std::env::join_paths(folders).unwrap();
        let all = path(&[Path::new(""), Path::new("b"), &root.join("c"), &root.join("a"), &root.join("b")]);
        let found = look_up(Some(&all));
        assert_eq!(found.path, Some(root.join("b/bwrap")));
        assert!(found.setuid);
        assert_eq!(look_up(Some(&path(&[&root.join("a")]))).path, None);
        assert_eq!(look_up(None).path, None);
        std::fs::remove_dir_all(&root).unwrap();
    }
}
