//! Files of the caller's own: `--from FILE` and `--executable FILE`.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use stockade_pins::{Outcome, PinErrorKind, PinKind, PinList, ProvisionRequest, Step, executable_file};

use crate::package::{Package, brotli, file, sha256, tarball};
use crate::world::{World, request_from, run};

#[test]
fn a_tarball_a_brotli_file_and_an_executable_are_taken() {
    let package = Package::new();
    for (name, content) in [
        ("grok.tgz", package.tarball.clone()),
        ("grok.br", brotli(&package.program)),
        ("grok", package.program.clone()),
    ] {
        let world = World::new(package.pins());
        let done = run(&world.store, &request_from(&world.write(name, &content))).unwrap();
        assert_eq!(
            (done.outcome, done.installed.record.pin),
            (Outcome::Installed, PinKind::Stockade),
            "{name}"
        );
        assert_eq!(fs::read(done.installed.executable).unwrap(), package.program, "{name}");
        assert_eq!(world.staged(), Vec::<String>::new());
    }
}

#[test]
fn given_files_meet_the_same_checks() {
    let package = Package::new();
    let mut damaged = package.tarball.clone();
    *damaged.last_mut().unwrap() ^= 1;
    let mut longer = package.program.clone();
    longer.push(0);
    let cut = brotli(&package.program[..1 << 17]);
    let world = World::new(package.pins());
    for (name, content, step) in [
        ("grok.tgz", damaged, Step::CheckIntegrity),
        ("short.tgz", package.tarball[..1000].to_vec(), Step::CheckIntegrity),
        ("grok.br", cut, Step::CheckDigest),
        ("grok", b"#!/bin/sh\nexit 0\n".to_vec(), Step::CheckDigest),
        ("empty", Vec::new(), Step::CheckDigest),
        ("longer", longer, Step::Unpack),
    ] {
        let error = run(&world.store, &request_from(&world.write(name, &content))).unwrap_err();
        assert_eq!((error.kind(), error.step()), (PinErrorKind::VerificationFailed, step), "{name}: {error}");
        assert!(error.to_string().contains(&format!("/{name}")), "{error}");
        world.assert_nothing_left();
    }
}

#[test]
fn a_cut_tarball_under_an_own_pin_is_refused() {
    let package = Package::new();
    let world = World::new(package.pins());
    let path = world.write("grok.tgz", &package.tarball[..package.tarball.len() / 2]);
    let own = ProvisionRequest {
        spec: "grok@2.0.0".parse().unwrap(),
        sha256: Some(sha256(&package.program).parse().unwrap()),
        ..request_from(&path)
    };
    let error = run(&world.store, &own).unwrap_err();
    assert_eq!((error.kind(), error.step()), (PinErrorKind::VerificationFailed, Step::Unpack), "{error}");
    assert!(!world.store.state().join("providers/grok/2.0.0").exists());
}

#[test]
fn what_is_no_file_is_a_usage_error() {
    let world = World::new(Package::new().pins());
    let pipe = world.folder.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    for path in [world.folder.path().join("missing"), world.folder.path().to_owned(), pipe] {
        let error = run(&world.store, &request_from(&path)).unwrap_err();
        assert_eq!((error.kind(), error.path()), (PinErrorKind::Usage, Some(path.as_path())), "{error}");
        world.assert_nothing_left();
    }
}

#[test]
fn a_provider_of_several_files_is_installed_and_watched_as_a_whole() {
    let tarball =
        tarball(&[file("package/vendor/bin/codex", b"main"), file("package/vendor/res/helper", b"beside")]);
    let text = format!(
        r#"
[[pins]]
provider = "codex"
version = "1.2.3"
package = "@openai/codex"
registry_path = "@openai/codex/-/codex-1.2.3-linux-x64.tgz"
integrity = "sha512-{}"
tarball_size = {}
executable = "bin/codex"
files = [
  {{ from = "package/vendor/bin/codex", to = "bin/codex", transform = "none", size = 4, sha256 = "{}" }},
  {{ from = "package/vendor/res/helper", to = "res/helper", transform = "none", size = 6, sha256 = "{}" }},
]"#,
        base64::Engine::encode(
            &base64::engine::general_purpose::STANDARD,
            <sha2::Sha512 as sha2::Digest>::digest(&tarball)
        ),
        tarball.len(),
        sha256(b"main"),
        sha256(b"beside"),
    );
    let world = World::new(PinList::parse(&text).unwrap());
    let request = ProvisionRequest {
        spec: "codex".parse().unwrap(),
        ..request_from(&world.write("codex.tgz", &tarball))
    };
    let installed = run(&world.store, &request).unwrap().installed;
    let verified = world.store.verify(&installed).unwrap();
    assert_eq!((verified.path, verified.hashed), (installed.folder.join("bin/codex"), false));

    let helper = installed.folder.join("res/helper");
    fs::set_permissions(&helper, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(&helper, b"BESIDE").unwrap();
    let error = world.store.verify(&installed).unwrap_err();
    assert_eq!((error.kind(), error.path()), (PinErrorKind::Refused, Some(helper.as_path())));

    let alone = ProvisionRequest { from: Some(world.write("codex", b"main")), ..request.clone() };
    assert_eq!(run(&world.store, &alone).unwrap_err().kind(), PinErrorKind::Usage);
    let own = ProvisionRequest {
        spec: "codex@9.9.9".parse().unwrap(),
        sha256: Some(sha256(b"main").parse().unwrap()),
        ..request
    };
    assert_eq!(run(&world.store, &own).unwrap_err().kind(), PinErrorKind::Usage);
}

#[test]
fn a_named_executable_is_recorded_by_its_real_path_and_unpinned() {
    let world = World::new(Package::new().pins());
    let real = fs::canonicalize(world.write("stub", b"#!/bin/sh\n")).unwrap();
    fs::set_permissions(&real, fs::Permissions::from_mode(0o755)).unwrap();
    let link = world.folder.path().join("link");
    symlink(&real, &link).unwrap();
    let verified = executable_file("grok", &link).unwrap();
    assert_eq!(verified.path, real);
    let facts = serde_json::to_value(verified.runtime()).unwrap();
    let expected = serde_json::json!({"name": "grok", "version": null, "sha256": sha256(b"#!/bin/sh\n"), "pin": "unpinned"});
    assert_eq!(facts, expected);
}

#[test]
fn what_cannot_be_run_is_no_executable() {
    let world = World::new(Package::new().pins());
    let data = fs::canonicalize(world.write("data", b"x")).unwrap();
    fs::set_permissions(&data, fs::Permissions::from_mode(0o644)).unwrap();
    let folder = fs::canonicalize(world.folder.path()).unwrap();
    let dangling = folder.join("dangling");
    symlink("nowhere", &dangling).unwrap();
    for (path, kind) in [
        (&data, PinErrorKind::Refused),
        (&folder, PinErrorKind::Refused),
        (&dangling, PinErrorKind::Usage),
        (&folder.join("missing"), PinErrorKind::Usage),
    ] {
        let error = executable_file("grok", path).unwrap_err();
        assert_eq!((error.kind(), error.path()), (kind, Some(path.as_path())), "{error}");
    }
}
