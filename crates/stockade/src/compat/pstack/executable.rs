//! The executable of a lane: the pinned one, or the one on `PATH` where the configuration says so.

use std::{
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

/// Looks for a program in the absolute folders of `path` that are not part of the lane's working folder: what a project
/// brings along must not be what judges it.
pub(super) fn on_path(name: &str, path: &str, cwd: &Path) -> Option<PathBuf> {
    let cwd = std::fs::canonicalize(cwd).ok()?;
    path.split(':')
        .map(Path::new)
        .filter(|folder| folder.is_absolute())
        .filter_map(|folder| std::fs::canonicalize(folder).ok())
        .filter(|folder| !folder.starts_with(&cwd))
        .map(|folder| folder.join(name))
        .find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    std::fs::metadata(file).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn neither_relative_folders_nor_those_of_the_project_are_looked_into() {
        let t = tempfile::tempdir().unwrap();
        let make = |relative: &str, mode: u32| {
            let file = t.path().join(relative);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, "#!/bin/sh\n").unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            file
        };
        make("project/bin/grok", 0o755);
        make("plain/grok", 0o644);
        let real = make("real/grok", 0o755);
        let folder = |name: &str| t.path().join(name).display().to_string();
        let path = format!("bin:.::{}:{}:{}", folder("project/bin"), folder("plain"), folder("real"));
        assert_eq!(on_path("grok", &path, &t.path().join("project")), Some(fs::canonicalize(real).unwrap()));
        assert_eq!(on_path("grok", "bin:.", &t.path().join("project")), None);
    }
}
