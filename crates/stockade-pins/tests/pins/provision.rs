//! What is installed, what is refused, and what is left behind.

use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt as _;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use stockade_pins::{Outcome, Phase, PinErrorKind, PinKind, PinList, ProvisionRequest, Store};
use tar::EntryType;

use crate::package::{Entry, Package, VERSION, brotli, file, pins, program, sha256, tarball};
use crate::server::{Reply, Server};
use crate::world::{NOW, World, request, run};

#[test]
fn a_package_is_installed_as_pinned_and_found_the_next_time() {
    let package = Package::new();
    let server = Server::plain(Reply::Whole(package.tarball.clone()));
    let world = World::new(package.pins());
    let mut phases = Vec::new();
    let done = world
        .store
        .provision(&request(&server.http()), &mut |progress| {
            if phases.last() != Some(&progress.phase) {
                phases.push(progress.phase);
            }
            ControlFlow::Continue(())
        })
        .unwrap();

    assert_eq!(done.outcome, Outcome::Installed);
    assert_eq!(phases, [Phase::Connecting, Phase::Downloading, Phase::Unpacking, Phase::Installing]);
    assert_eq!(
        server.asked(),
        [format!("GET /@xai-official/grok-linux-x64/-/grok-linux-x64-{VERSION}.tgz HTTP/1.1")]
    );
    assert_eq!(done.installed.executable, world.version().join("grok"));
    assert_eq!(fs::read(&done.installed.executable).unwrap(), package.program);
    let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(world.version().join("grok")), 0o555);
    assert_eq!([mode(world.version()), mode(world.store.state().join("providers/grok"))], [0o755, 0o755]);
    assert_eq!(world.staged(), Vec::<String>::new());

    let record = done.installed.record;
    assert_eq!((record.pin, record.installed_at.as_str()), (PinKind::Stockade, NOW));
    assert_eq!(record.package.as_deref(), Some("@xai-official/grok-linux-x64"));
    assert_eq!(
        (record.sha256.to_string(), record.size),
        (sha256(&package.program), package.program.len() as u64)
    );

    let again = run(&world.store, &request(&server.http())).unwrap();
    assert_eq!(again.outcome, Outcome::AlreadyInstalled);
    assert_eq!(server.asked().len(), 1);
}

#[test]
fn a_tarball_unlike_the_registrys_integrity_is_refused_before_unpacking() {
    let package = Package::new();
    let mut other = package.tarball.clone();
    *other.last_mut().unwrap() ^= 1;
    let server = Server::plain(Reply::Whole(other));
    let world = World::new(package.pins());
    let error = run(&world.store, &request(&server.http())).unwrap_err();
    assert_eq!(error.kind(), PinErrorKind::VerificationFailed);
    assert!(error.to_string().contains("integrity"), "{error}");
    world.assert_nothing_left();
}

#[test]
fn an_executable_unlike_its_pin_is_refused() {
    let package = Package::new();
    let mut expected = package.program.clone();
    *expected.last_mut().unwrap() ^= 1;
    let server = Server::plain(Reply::Whole(package.tarball.clone()));
    let world = World::new(pins(&package.tarball, "package/bin/grok.br", "brotli", &expected));
    let error = run(&world.store, &request(&server.http())).unwrap_err();
    assert_eq!(error.kind(), PinErrorKind::VerificationFailed);
    assert!(error.to_string().contains(&sha256(&expected)), "{error}");
    world.assert_nothing_left();
}

#[test]
fn an_executable_larger_than_its_pin_is_refused() {
    let package = Package::new();
    let shorter = &package.program[..1000];
    let server = Server::plain(Reply::Whole(package.tarball.clone()));
    let world = World::new(pins(&package.tarball, "package/bin/grok.br", "brotli", shorter));
    let error = run(&world.store, &request(&server.http())).unwrap_err();
    assert_eq!(error.kind(), PinErrorKind::VerificationFailed);
    assert!(error.to_string().contains("larger than the 1000 bytes"), "{error}");
    world.assert_nothing_left();
}

#[test]
fn tarballs_that_try_something_are_refused() {
    let program = program();
    let packed = brotli(&program);
    let name = "package/bin/grok.br";
    let link = |name| Entry { name, kind: EntryType::Symlink, content: b"" };
    let hard = |name| Entry { name, kind: EntryType::Link, content: b"" };
    for (entries, told) in [
        (vec![link(name)], "not a regular file"),
        (vec![hard(name)], "not a regular file"),
        (vec![Entry { name, kind: EntryType::Fifo, content: b"" }], "not a regular file"),
        (vec![file("../../../../etc/cron.d/x", b"x"), file(name, &packed)], "would leave its folder"),
        (vec![file("/etc/cron.d/x", b"x"), file(name, &packed)], "would leave its folder"),
        (vec![file(name, &packed), file(name, &packed)], "in it twice"),
        (vec![file("package/other", b"x")], "is missing"),
        (vec![file(name, &packed[..packed.len() / 2])], "damaged"),
        (vec![file(name, b"this is not brotli at all, whatever its name says")], "damaged"),
    ] {
        let tarball = tarball(&entries);
        let server = Server::plain(Reply::Whole(tarball.clone()));
        let world = World::new(pins(&tarball, name, "brotli", &program));
        let error = run(&world.store, &request(&server.http())).unwrap_err();
        assert_eq!(error.kind(), PinErrorKind::VerificationFailed, "{error}");
        assert!(error.to_string().contains(told), "{error}");
        world.assert_nothing_left();
    }
}

#[test]
fn other_entries_are_left_alone() {
    let program = program();
    let packed = brotli(&program);
    let tarball = tarball(&[
        Entry { name: "package/latest", kind: EntryType::Symlink, content: b"" },
        file("package/pin.json", b"{}"),
        file("package/bin/grok.br", &packed),
    ]);
    let server = Server::plain(Reply::Whole(tarball.clone()));
    let world = World::new(pins(&tarball, "package/bin/grok.br", "brotli", &program));
    run(&world.store, &request(&server.http())).unwrap();
    let mut names: Vec<_> =
        fs::read_dir(world.version()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["grok", "pin.json"]);
}

#[test]
fn two_provisions_at_once_download_once() {
    let package = Package::new();
    let server = Server::plain(Reply::Whole(package.tarball.clone()));
    let world = World::new(package.pins());
    let outcomes = thread::scope(|scope| {
        let runs: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| run(&world.store, &request(&server.http())).unwrap().outcome))
            .collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == Outcome::Installed).count(), 1, "{outcomes:?}");
    assert_eq!(server.asked().len(), 1);
    assert_eq!(world.staged(), Vec::<String>::new());
}

#[test]
fn a_cancel_is_heeded_while_the_registry_is_silent() {
    let package = Package::new();
    let server = Server::plain(Reply::Hang(package.tarball.clone()));
    let world = World::new(package.pins());
    let half = package.tarball.len() as u64 / 2;
    let (mut silent_since, mut answered_after) = (None, Duration::ZERO);
    let error = world
        .store
        .provision(&request(&server.http()), &mut |progress| {
            if progress.phase == Phase::Downloading && progress.done == half {
                let since = *silent_since.get_or_insert_with(Instant::now);
                answered_after = since.elapsed();
                if answered_after > Duration::from_millis(300) {
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        })
        .unwrap_err();
    assert_eq!(error.kind(), PinErrorKind::Cancelled);
    assert!(answered_after < Duration::from_secs(5), "{answered_after:?}");
    world.assert_nothing_left();
}

#[test]
fn a_cancel_while_unpacking_leaves_nothing() {
    let package = Package::new();
    let server = Server::plain(Reply::Whole(package.tarball.clone()));
    let world = World::new(package.pins());
    let error = world
        .store
        .provision(&request(&server.http()), &mut |progress| match progress.phase {
            Phase::Unpacking if progress.done > 0 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        })
        .unwrap_err();
    assert_eq!(error.kind(), PinErrorKind::Cancelled);
    world.assert_nothing_left();
}

#[test]
fn what_dead_processes_left_is_cleared_and_what_living_ones_use_is_not() {
    let package = Package::new();
    let server = Server::plain(Reply::Whole(package.tarball.clone()));
    let world = World::new(package.pins());
    let staging = world.store.state().join("providers/.staging");
    for name in ["dead-0", "living-0"] {
        fs::create_dir_all(staging.join(name).join("tree")).unwrap();
        fs::write(staging.join(name).join("alive"), b"").unwrap();
        fs::write(staging.join(name).join("tree/grok"), b"half").unwrap();
    }
    fs::set_permissions(world.store.state().join("providers"), fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::symlink("/etc", staging.join("link-0")).unwrap();
    let living = fs::File::open(staging.join("living-0/alive")).unwrap();
    flock(&living, FlockOperation::LockExclusive).unwrap();
    run(&world.store, &request(&server.http())).unwrap();
    assert_eq!(world.staged(), ["living-0"]);
    assert!(fs::exists("/etc/passwd").unwrap());
}

#[test]
fn a_broken_version_is_replaced() {
    let package = Package::new();
    let server = Server::plain(Reply::Whole(package.tarball.clone()));
    let world = World::new(package.pins());
    run(&world.store, &request(&server.http())).unwrap();
    fs::set_permissions(world.version().join("grok"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(world.version().join("grok"), b"#!/bin/sh\nexit 1\n").unwrap();
    let again = run(&world.store, &request(&server.http())).unwrap();
    assert_eq!(again.outcome, Outcome::Replaced);
    assert_eq!(fs::read(world.version().join("grok")).unwrap(), package.program);

    // A link in place of the version goes away; what it leads to stays.
    let elsewhere = world.folder.path().join("elsewhere");
    fs::rename(world.version(), &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, world.version()).unwrap();
    assert_eq!(run(&world.store, &request(&server.http())).unwrap().outcome, Outcome::Replaced);
    assert!(!world.version().is_symlink() && elsewhere.join("grok").exists());
    assert_eq!(world.staged(), Vec::<String>::new());
}

#[test]
fn a_folder_others_may_write_or_a_link_is_refused_before_anything_is_downloaded() {
    let package = Package::new();
    let server = Server::plain(Reply::Whole(package.tarball.clone()));
    let world = World::new(package.pins());
    let home = world.store.state().join("providers/grok");
    fs::create_dir_all(&home).unwrap();
    fs::set_permissions(&home, fs::Permissions::from_mode(0o775)).unwrap();
    fs::set_permissions(home.parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
    let error = run(&world.store, &request(&server.http())).unwrap_err();
    assert_eq!((error.kind(), error.path()), (PinErrorKind::Refused, Some(home.as_path())));

    fs::remove_dir(&home).unwrap();
    std::os::unix::fs::symlink(world.folder.path(), &home).unwrap();
    let error = run(&world.store, &request(&server.http())).unwrap_err();
    assert_eq!((error.kind(), error.path()), (PinErrorKind::Refused, Some(home.as_path())));
    assert_eq!(server.asked(), Vec::<String>::new());
}

#[test]
fn a_version_without_a_pin_needs_a_digest_and_keeps_it() {
    let package = Package::new();
    let server = Server::plain(Reply::Whole(package.tarball.clone()));
    let world = World::new(package.pins());
    let mut own = ProvisionRequest { spec: "grok@1.0.13".parse().unwrap(), ..request(&server.http()) };
    let error = run(&world.store, &own).unwrap_err();
    assert_eq!(error.kind(), PinErrorKind::PinUnknown);
    assert!(error.to_string().contains("known: grok@1.0.41"), "{error}");
    assert!(!world.store.state().exists());

    own.sha256 = Some(sha256(&package.program).parse().unwrap());
    let done = run(&world.store, &own).unwrap();
    assert_eq!(done.installed.record.pin, PinKind::User);
    assert_eq!(server.asked(), ["GET /@xai-official/grok-linux-x64/-/grok-linux-x64-1.0.13.tgz HTTP/1.1"]);
    let facts = world.store.verify(&done.installed).unwrap().runtime();
    assert_eq!(
        (facts.name.as_str(), facts.version.as_deref(), facts.pin),
        ("grok", Some("1.0.13"), PinKind::User)
    );

    own.sha256 = Some("ab".repeat(32).parse().unwrap());
    assert_eq!(run(&world.store, &own).unwrap_err().kind(), PinErrorKind::Refused);
    own.spec = "grok@1.0.14".parse().unwrap();
    assert_eq!(run(&world.store, &own).unwrap_err().kind(), PinErrorKind::VerificationFailed);
    assert!(!world.store.state().join("providers/grok/1.0.14").exists());
}

#[test]
fn a_version_an_earlier_list_named_is_told_as_retired() {
    let package = Package::new();
    let server = Server::plain(Reply::Whole(package.tarball.clone()));
    let world = World::new(package.pins());
    run(&world.store, &request(&server.http())).unwrap();
    let later = Store::new(world.store.state(), PinList::shipped().unwrap());
    let installed = later.resolve("grok", None).unwrap();
    assert_eq!(later.verify(&installed).unwrap_err().kind(), PinErrorKind::Refused);
    let empty = Store::new(world.store.state(), PinList::parse("pins = []").unwrap());
    let installed = empty.resolve("grok", Some(VERSION)).unwrap();
    assert_eq!(empty.verify(&installed).unwrap().pin, PinKind::Retired);
}
