use std::{
    fs,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{PermissionsExt as _, symlink},
    },
};

use super::*;
use crate::testing::{Mounted, without_root_powers};

#[test]
fn links_are_removed_not_followed() {
    let t = tempfile::tempdir().unwrap();
    fs::create_dir_all(t.path().join("outside/sub")).unwrap();
    fs::write(t.path().join("outside/file"), "kept").unwrap();
    let tree = t.path().join("tree");
    fs::create_dir_all(tree.join("a/b")).unwrap();
    symlink("../outside", tree.join("link")).unwrap();
    symlink("/", tree.join("a/root")).unwrap();
    fs::hard_link(t.path().join("outside/file"), tree.join("a/b/hard")).unwrap();
    rustix::fs::mkfifoat(CWD, tree.join("pipe"), Mode::from_raw_mode(0o600)).unwrap();
    remove_tree(&tree).unwrap();
    assert!(rustix::fs::lstat(&tree).is_err());
    assert_eq!(fs::read(t.path().join("outside/file")).unwrap(), b"kept");
    assert!(t.path().join("outside/sub").is_dir());

    symlink("outside", t.path().join("top")).unwrap();
    remove_tree(&t.path().join("top")).unwrap();
    assert!(t.path().join("outside/sub").is_dir(), "a link at the top is only a link");
    remove_tree(&t.path().join("top")).unwrap();
    remove_tree(&t.path().join("none/at/all")).unwrap();
    assert_eq!(remove_tree(Path::new("/")).unwrap_err().kind(), ErrorKind::PathUnusable);
}

#[test]
fn a_hundred_thousand_levels_are_no_matter() {
    let memory = Mounted::in_memory();
    let tree = memory.path().join("deep");
    fs::create_dir(&tree).unwrap();
    let mut folder = files::open_folder(CWD, &tree).unwrap();
    for _ in 0..100_000 {
        rustix::fs::mkdirat(&folder, c"d", PRIVATE_FOLDER).unwrap();
        folder = files::open_folder(&folder, c"d").unwrap();
    }
    drop(files::create_private(&folder, c"bottom").unwrap());
    drop(folder);
    remove_tree(&tree).unwrap();
    assert!(!tree.exists());
}

#[test]
fn wide_folders_and_hostile_names_go() {
    let memory = Mounted::in_memory();
    let tree = memory.path().join("wide");
    for i in 0..2_000 {
        let folder = tree.join(format!("d{i}"));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("f"), "").unwrap();
        fs::write(tree.join(format!("f{i}")), "").unwrap();
    }
    for name in [b"\n".as_slice(), b"\xff\xfe", b"-rf", b"...", b"\x1b[2J", &[b'n'; 255]] {
        fs::create_dir_all(tree.join(OsStr::from_bytes(name)).join("x")).unwrap();
    }
    remove_tree(&tree).unwrap();
    assert!(!tree.exists());
}

#[test]
fn folders_closed_to_their_owner_are_opened_up() {
    let t = tempfile::tempdir().unwrap();
    let tree = t.path().join("tree");
    fs::create_dir_all(tree.join("a/b/c")).unwrap();
    fs::write(tree.join("a/b/c/file"), "").unwrap();
    fs::write(tree.join("a/file"), "").unwrap();
    for closed in ["a/b/c", "a/b", "a", ""] {
        fs::set_permissions(tree.join(closed), fs::Permissions::from_mode(0o000)).unwrap();
    }
    without_root_powers(|| {
        assert!(fs::read_dir(&tree).is_err(), "the test has to be without root's powers");
        remove_tree(&tree).unwrap();
    });
    assert!(!tree.exists());
}

#[test]
fn the_folder_around_a_tree_is_not_opened_up() {
    let t = tempfile::tempdir().unwrap();
    let around = t.path().join("around");
    fs::create_dir_all(around.join("tree")).unwrap();
    fs::set_permissions(&around, fs::Permissions::from_mode(0o500)).unwrap();
    let error = without_root_powers(|| remove_tree(&around.join("tree")).unwrap_err());
    assert_eq!(error.errno(), Some(Errno::ACCESS.raw_os_error()));
    assert_eq!(fs::metadata(&around).unwrap().permissions().mode() & 0o777, 0o500);
}

#[test]
fn a_mount_inside_is_not_emptied() {
    let t = tempfile::tempdir().unwrap();
    let precious = t.path().join("precious");
    fs::create_dir(&precious).unwrap();
    fs::write(precious.join("file"), "kept").unwrap();
    let mount = Mounted::bind_of(&precious);
    // The mount's own folder is the tree to be removed: its content is another mount's.
    let error = remove_tree(mount.path()).unwrap_err();
    assert!(matches!(error.errno().map(Errno::from_raw_os_error), Some(Errno::XDEV | Errno::BUSY)));
    assert_eq!(fs::read(precious.join("file")).unwrap(), b"kept");
}
