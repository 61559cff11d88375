//! An installed version that is no longer what it was.

use std::fs::{self, File, FileTimes, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::Path;

use stockade_pins::{Installed, PinErrorKind, PinKind, Step};

use crate::package::{Package, VERSION, sha256};
use crate::world::{World, request_from, run};

struct Ready {
    world: World,
    package: Package,
    installed: Installed,
}

fn ready() -> Ready {
    let package = Package::new();
    let world = World::new(package.pins());
    let installed =
        run(&world.store, &request_from(&world.write("grok", &package.program))).unwrap().installed;
    Ready { world, package, installed }
}

impl Ready {
    fn refused_at(&self, path: &Path) -> Step {
        let error = self
            .world
            .store
            .resolve("grok", None)
            .and_then(|installed| self.world.store.verify(&installed))
            .unwrap_err();
        assert_eq!(
            (error.kind(), error.kind().code()),
            (PinErrorKind::Refused, "executable-refused"),
            "{error}"
        );
        assert_eq!(error.path(), Some(path), "{error}");
        assert!(error.hint().is_some(), "{error}");
        let listing = self.world.store.list().unwrap();
        assert_eq!((listing.listed.len(), listing.refused.len()), (0, 1));
        error.step()
    }

    fn executable(&self) -> &Path {
        &self.installed.executable
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn an_untouched_executable_is_proven_without_reading_it() {
    let ready = ready();
    let verified = ready.world.store.verify(&ready.installed).unwrap();
    assert!(!verified.hashed);
    assert_eq!(
        (verified.pin, verified.sha256.to_string()),
        (PinKind::Stockade, sha256(&ready.package.program))
    );
    assert!(ready.world.store.verify_fully(&ready.installed).unwrap().hashed);
}

#[test]
fn a_touched_executable_is_read_once_more_and_then_known_again() {
    let ready = ready();
    let times = FileTimes::new().set_modified(std::time::UNIX_EPOCH);
    File::open(ready.executable()).unwrap().set_times(times).unwrap();
    assert!(ready.world.store.verify(&ready.installed).unwrap().hashed);
    let installed = ready.world.store.resolve("grok", None).unwrap();
    assert!(!ready.world.store.verify(&installed).unwrap().hashed);
    assert_eq!(fs::read_dir(ready.world.version()).unwrap().count(), 2);
}

#[test]
fn a_change_of_the_same_size_with_its_time_set_back_is_seen() {
    let ready = ready();
    let modified = fs::metadata(ready.executable()).unwrap().modified().unwrap();
    let mut changed = ready.package.program.clone();
    *changed.last_mut().unwrap() ^= 1;
    set_mode(ready.executable(), 0o755);
    fs::write(ready.executable(), changed).unwrap();
    set_mode(ready.executable(), 0o555);
    File::open(ready.executable()).unwrap().set_times(FileTimes::new().set_modified(modified)).unwrap();
    assert_eq!(fs::metadata(ready.executable()).unwrap().modified().unwrap(), modified);
    assert_eq!(ready.refused_at(ready.executable()), Step::CheckExecutable);
}

#[test]
fn another_size_is_seen_without_reading() {
    let ready = ready();
    set_mode(ready.executable(), 0o755);
    fs::write(ready.executable(), b"#!/bin/sh\n").unwrap();
    assert_eq!(ready.refused_at(ready.executable()), Step::CheckExecutable);
}

#[test]
fn a_link_in_place_of_the_executable_is_refused() {
    let ready = ready();
    let copy = ready.world.write("copy", &ready.package.program);
    set_mode(&copy, 0o555);
    fs::remove_file(ready.executable()).unwrap();
    symlink(&copy, ready.executable()).unwrap();
    assert_eq!(ready.refused_at(ready.executable()), Step::OpenExecutable);
}

#[test]
fn a_link_in_place_of_a_folder_is_refused() {
    for place in ["providers", "providers/grok", "providers/grok/1.0.41"] {
        let ready = ready();
        let place = ready.world.store.state().join(place);
        let moved = ready.world.folder.path().join("moved");
        fs::rename(&place, &moved).unwrap();
        symlink(&moved, &place).unwrap();
        let error = ready.world.store.resolve("grok", None).unwrap_err();
        assert_eq!((error.kind(), error.path()), (PinErrorKind::Refused, Some(place.as_path())), "{error}");
        assert_eq!(error.errno(), Some(rustix::io::Errno::LOOP.raw_os_error()), "{error}");
        // Found by an earlier `resolve`, it must not pass either.
        assert_eq!(ready.world.store.verify(&ready.installed).unwrap_err().kind(), PinErrorKind::Refused);
    }
}

#[test]
fn modes_that_let_others_in_are_refused() {
    for mode in [0o575, 0o557, 0o4555, 0o2555, 0o444] {
        let ready = ready();
        set_mode(ready.executable(), mode);
        assert_eq!(ready.refused_at(ready.executable()), Step::CheckExecutable, "{mode:o}");
    }
    for mode in [0o775, 0o757] {
        let ready = ready();
        set_mode(&ready.installed.folder, mode);
        assert_eq!(ready.refused_at(&ready.installed.folder), Step::CheckExecutable, "{mode:o}");
    }
    let ready = ready();
    let record = ready.installed.folder.join("pin.json");
    set_mode(&record, 0o666);
    ready.refused_at(&record);
}

#[test]
fn an_executable_of_another_user_is_refused() {
    let ready = ready();
    chown(ready.executable(), Some(12345), None).expect("giving a file away needs root");
    assert_eq!(ready.refused_at(ready.executable()), Step::CheckExecutable);
}

#[test]
fn a_pipe_or_nothing_in_place_of_the_executable_is_refused_at_once() {
    let ready = ready();
    fs::remove_file(ready.executable()).unwrap();
    assert_eq!(ready.refused_at(ready.executable()), Step::OpenExecutable);
    rustix::fs::mknodat(rustix::fs::CWD, ready.executable(), rustix::fs::FileType::Fifo, 0o555.into(), 0)
        .unwrap();
    assert_eq!(ready.refused_at(ready.executable()), Step::CheckExecutable);
}

#[test]
fn a_record_cannot_vouch_for_another_executable() {
    let ready = ready();
    let other = b"#!/bin/sh\nexit 1\n";
    set_mode(ready.executable(), 0o755);
    fs::write(ready.executable(), other).unwrap();
    let path = ready.installed.folder.join("pin.json");
    for pin in ["stockade", "user"] {
        let mut record: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        record["sha256"] = sha256(other).into();
        record["size"] = other.len().into();
        record["pin"] = pin.into();
        fs::write(&path, record.to_string()).unwrap();
        ready.refused_at(ready.executable());
    }
}

#[test]
fn broken_records_are_refused() {
    for (name, content) in [
        ("empty", String::new()),
        ("html", "<html>".to_owned()),
        ("large", " ".repeat(300 * 1024)),
        ("other", r#"{"schemaVersion":1}"#.to_owned()),
    ] {
        let ready = ready();
        let path = ready.installed.folder.join("pin.json");
        fs::write(&path, content).unwrap();
        assert_eq!(ready.refused_at(&path), Step::ReadRecord, "{name}");
    }
    let ready = ready();
    let path = ready.installed.folder.join("pin.json");
    let text = fs::read_to_string(&path).unwrap();
    for (old, new) in [
        ("\"executable\": \"grok\"", "\"executable\": \"../grok\""),
        ("\"schemaVersion\": 1", "\"schemaVersion\": 2"),
        ("\"version\": \"1.0.41\"", "\"version\": \"1.0.42\""),
    ] {
        assert!(text.contains(old), "{old}");
        fs::write(&path, text.replace(old, new)).unwrap();
        assert_eq!(ready.refused_at(&path), Step::ReadRecord, "{new}");
    }
}

#[test]
fn what_is_not_installed_names_the_command_that_installs_it() {
    let world = World::new(Package::new().pins());
    for version in [None, Some(VERSION)] {
        let error = world.store.resolve("grok", version).unwrap_err();
        assert_eq!(error.kind(), PinErrorKind::Unavailable);
        assert_eq!(error.hint(), Some("stockade provision grok@1.0.41"));
    }
    let error = world.store.resolve("grok", Some("9.9.9")).unwrap_err();
    assert_eq!(error.hint(), Some("stockade provision grok@9.9.9 --sha256 HEX"));
    assert_eq!(world.store.resolve("nobody", None).unwrap_err().kind(), PinErrorKind::PinUnknown);
    assert_eq!(world.store.resolve("grok", Some("../x")).unwrap_err().kind(), PinErrorKind::Usage);
    assert!(world.store.list().unwrap().listed.is_empty());
}

#[test]
fn the_list_has_exactly_its_keys() {
    let ready = ready();
    for listing in [ready.world.store.list().unwrap(), ready.world.store.list_verified().unwrap()] {
        let expected = serde_json::json!([{
            "provider": "grok",
            "version": VERSION,
            "path": ready.executable(),
            "sha256": sha256(&ready.package.program),
            "pin": "stockade",
        }]);
        assert_eq!(serde_json::to_value(&listing.listed).unwrap(), expected);
        assert!(listing.refused.is_empty());
    }
}
