//! The state directory and its disk.

use std::{ffi::CString, fs, os::unix::fs::PermissionsExt as _, path::Path, path::PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use serde_json::{Value, json};
use stockade_tests::{Caller, World};

use super::{mistake, order, refused, shown, state_entries, with_errno};

/// A file system mounted on a folder, unmounted at the end.
struct Mounted(PathBuf);

impl Mounted {
    /// A small one in memory that belongs to the caller.
    fn tmpfs(world: &World, at: &Path, flags: MountFlags) -> Self {
        let options = CString::new(format!("mode=700,uid={0},gid={0},size=512k", world.caller.uid)).unwrap();
        mount("none", at, "tmpfs", flags, Some(options.as_c_str())).unwrap();
        Self(at.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let done = unmount(&self.0, UnmountFlags::DETACH);
        assert!(done.is_ok() || std::thread::panicking(), "{} stays mounted: {done:?}", self.0.display());
    }
}

fn no_storage(path: &Path, errno: i32, message: &str, hint: &str) -> Value {
    let mut error = mistake("storage-failed", "create", Some(path), message, hint);
    error["boundary"] = json!("storage");
    with_errno(error, errno)
}

#[test]
fn a_state_directory_that_cannot_be_written() {
    for caller in Caller::both() {
        let world = World::new(&caller);
        let mounted = Mounted::tmpfs(&world, &world.state(), MountFlags::RDONLY);
        let runs = world.state().join("runs");
        let message = format!("create `{}`: Read-only file system (os error 30)", runs.display());
        let hint = "that file system is mounted read-only; name a path elsewhere";
        refused(&world, order(&world, &[]), 74, &no_storage(&runs, libc::EROFS, &message, hint));
        drop(mounted);

        fs::remove_dir(world.state()).unwrap();
        world.write("state/stockade", "a file\n");
        let message = format!("create `{}`: File exists (os error 17)", world.state().display());
        let hint = "something else stands where a folder is needed; move it away";
        refused(&world, order(&world, &[]), 74, &no_storage(&world.state(), libc::EEXIST, &message, hint));
    }
    let world = World::new(&Caller::fresh_user());
    fs::set_permissions(world.state(), fs::Permissions::from_mode(0o500)).unwrap();
    let runs = world.state().join("runs");
    let message = format!("create `{}`: Permission denied (os error 13)", runs.display());
    let hint = "give the user who runs Stockade the right to that folder";
    refused(&world, order(&world, &[]), 74, &no_storage(&runs, libc::EACCES, &message, hint));
}

#[test]
fn a_full_disk_under_the_state_at_any_moment_of_a_run() {
    for caller in Caller::both() {
        let mut exits = Vec::new();
        for free_kib in [0, 4, 8, 12, 16, 24, 32, 48, 512] {
            let world = World::new(&caller);
            let _mounted = Mounted::tmpfs(&world, &world.state(), MountFlags::empty());
            fs::write(world.state().join("ballast"), vec![0; (512 - free_kib) * 1024]).unwrap();
            let ended = order(&world, &[]).end();
            let (code, receipt) = (ended.code(), world.path("out/receipt.json"));
            exits.push(code);
            let what = format!("{free_kib} KiB free as {}: {ended:?}", caller.name);
            if code == 0 {
                assert!(receipt.exists() && world.path("out/answer").exists(), "{what}");
                continue;
            }
            assert_eq!(code, 74, "{what}");
            let error = shown(&ended);
            assert_eq!(
                (&error["errno"], &error["boundary"]),
                (&json!(libc::ENOSPC), &json!("storage")),
                "{what}"
            );
            assert!(error["hint"].as_str().unwrap().starts_with("make room"), "{what}");
            if receipt.exists() {
                let receipt = stockade_tests::run::read_json(&receipt);
                assert_eq!(receipt["status"], "storage-failed", "{what}");
            } else {
                assert_eq!(state_entries(&world, "runs"), Vec::<String>::new(), "{what}");
            }
            assert_eq!(state_entries(&world, "homes"), Vec::<String>::new(), "{what}");
        }
        assert_eq!((exits.first(), exits.last()), (Some(&74), Some(&0)), "{exits:?}");
    }
}
