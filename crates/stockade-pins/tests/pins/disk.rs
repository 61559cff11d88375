//! State directories that cannot take what they are given.

use std::fs;
use std::path::Path;

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};
use stockade_pins::{Outcome, PinErrorKind, Store};

use crate::package::Package;
use crate::world::{World, request_from, run};

/// A small disk of its own; needs root.
struct Disk<'a>(&'a Path);

impl<'a> Disk<'a> {
    fn mount(path: &'a Path, options: &std::ffi::CStr) -> Self {
        fs::create_dir_all(path).unwrap();
        mount("tmpfs", path, "tmpfs", MountFlags::empty(), Some(options))
            .expect("mounting a tmpfs needs root");
        Self(path)
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        unmount(self.0, UnmountFlags::DETACH).unwrap();
    }
}

#[test]
fn a_full_disk_is_told_and_nothing_is_left_on_it() {
    let package = Package::new();
    let world = World::new(package.pins());
    let file = world.write("grok", &package.program);
    let _disk = Disk::mount(world.store.state(), c"size=128k,mode=0700");
    let error = run(&world.store, &request_from(&file)).unwrap_err();
    assert_eq!(
        (error.kind(), error.errno()),
        (PinErrorKind::Storage, Some(Errno::NOSPC.raw_os_error())),
        "{error}"
    );
    assert!(error.path().is_some_and(|path| path.starts_with(world.store.state())), "{error}");
    assert!(error.hint().is_some());
    world.assert_nothing_left();
}

#[test]
fn a_read_only_disk_is_told_and_what_is_installed_there_still_runs() {
    let package = Package::new();
    let world = World::new(package.pins());
    let file = world.write("grok", &package.program);
    let _disk = Disk::mount(world.store.state(), c"mode=0700");
    let installed = run(&world.store, &request_from(&file)).unwrap().installed;
    let times = fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH);
    fs::File::open(&installed.executable).unwrap().set_times(times).unwrap();
    mount_remount(world.store.state(), MountFlags::RDONLY, c"").unwrap();

    // The record cannot be brought up to date there, so the digest is taken each time.
    for _ in 0..2 {
        assert!(world.store.verify(&installed).unwrap().hashed);
    }
    assert_eq!(run(&world.store, &request_from(&file)).unwrap().outcome, Outcome::AlreadyInstalled);
    let mut other = request_from(&file);
    other.spec = "grok@2.0.0".parse().unwrap();
    other.sha256 = Some(installed.record.sha256);
    let error = run(&world.store, &other).unwrap_err();
    assert_eq!(
        (error.kind(), error.errno()),
        (PinErrorKind::Storage, Some(Errno::ROFS.raw_os_error())),
        "{error}"
    );
}

#[test]
fn a_state_directory_that_cannot_be_made_is_told() {
    let package = Package::new();
    let world = World::new(package.pins());
    let file = world.write("grok", &package.program);
    for state in [Path::new("/proc/stockade-state"), &file.join("state")] {
        let store = Store::new(state, package.pins());
        let error = run(&store, &request_from(&file)).unwrap_err();
        assert_eq!((error.kind(), error.path()), (PinErrorKind::Storage, Some(state)), "{error}");
        assert!(error.errno().is_some());
    }
}
