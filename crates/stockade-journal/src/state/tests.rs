use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
};

use super::*;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn folders_are_made_when_needed_and_private_but_for_the_providers() {
    let t = tempfile::tempdir().unwrap();
    let root = t.path().join("a/b/state");
    let state = State::create(&root).unwrap();
    assert_eq!(fs::read_dir(&root).unwrap().count(), 0, "nothing before it is needed");
    assert_eq!(mode(&root), 0o700);
    assert_eq!(mode(&state.providers().unwrap()), 0o755);
    assert_eq!(mode(&state.homes().unwrap()), 0o700);
    assert_eq!(mode(&state.locks().unwrap()), 0o700);
    assert_eq!(mode(&state.create_home("r-1").unwrap()), 0o700);
    assert_eq!(state.create_home("r-1").unwrap_err().kind(), ErrorKind::Exists);
    assert_eq!(state.create_home("../x").unwrap_err().kind(), ErrorKind::PathUnusable);
}

#[test]
fn a_missing_or_relative_root_is_not_opened() {
    let t = tempfile::tempdir().unwrap();
    assert_eq!(State::open(&t.path().join("none")).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(State::open(Path::new("state")).unwrap_err().kind(), ErrorKind::PathUnusable);
}

#[test]
fn a_root_that_others_own_or_can_write_is_refused() {
    assert!(geteuid().is_root(), "this test has to run as root: it gives a folder to somebody else");
    let t = tempfile::tempdir().unwrap();
    let root = t.path().join("state");
    State::create(&root).unwrap();
    fs::set_permissions(&root, fs::Permissions::from_mode(0o770)).unwrap();
    assert_eq!(State::create(&root).unwrap_err().kind(), ErrorKind::StateRefused);
    fs::set_permissions(&root, fs::Permissions::from_mode(0o700)).unwrap();
    std::os::unix::fs::chown(&root, Some(12_345), None).unwrap();
    let refused = State::create(&root).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::StateRefused);
    assert!(refused.to_string().contains("belongs to user 12345"), "{refused}");
    assert!(refused.hint().is_some());
}

#[test]
fn a_linked_root_is_resolved_once_and_linked_folders_are_refused() {
    let t = tempfile::tempdir().unwrap();
    let real = t.path().join("real");
    fs::create_dir(&real).unwrap();
    fs::set_permissions(&real, fs::Permissions::from_mode(0o700)).unwrap();
    symlink(&real, t.path().join("link")).unwrap();
    let state = State::create(&t.path().join("link")).unwrap();
    assert_eq!(state.root().metadata().unwrap().ino(), real.metadata().unwrap().ino());
    assert!(state.root().ends_with("real"));
    fs::create_dir(t.path().join("elsewhere")).unwrap();
    symlink(t.path().join("elsewhere"), real.join("homes")).unwrap();
    assert!(state.homes().is_err());
}

#[test]
fn a_file_system_that_refuses_is_storage_with_its_errno() {
    let mount = crate::testing::Mounted::read_only_bind();
    let error = State::create(&mount.path().join("state")).unwrap_err();
    assert_eq!((error.kind(), error.errno()), (ErrorKind::Storage, Some(Errno::ROFS.raw_os_error())));
}
