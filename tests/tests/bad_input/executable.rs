//! The agent's own program.

use std::{fs, os::unix::fs::symlink, path::Path};

use serde_json::{Value, json};
use stockade_tests::{Caller, World, run::Call};

use super::{mistake, order, refused_with_receipt, shown};

fn executable_refused(code: &str, step: &str, path: &Path, message: &str, hint: &str) -> Value {
    let mut error = mistake(code, step, Some(path), message, hint);
    error["boundary"] = json!("executable");
    error
}

/// Orders the pinned Grok.
fn pinned(world: &World) -> Call<'_> {
    order(world, &[("--executable", None)])
}

#[test]
fn a_provider_that_is_not_installed() {
    for caller in Caller::both() {
        let world = World::new(&caller);
        let folder = world.state().join("providers/grok/1.0.41");
        let message = format!("find the provider: `{}`: grok@1.0.41 is not installed", folder.display());
        let error = executable_refused(
            "not-provisioned",
            "find the provider",
            &folder,
            &message,
            "stockade provision grok@1.0.41",
        );
        refused_with_receipt(&world, pinned(&world), 69, "unavailable-cli", &error);
    }
}

#[test]
fn a_provider_that_was_changed_in_one_byte_although_its_times_were_restored() {
    for caller in Caller::both() {
        let world = World::with_own_provider(&caller, "grok");
        let path = world.state().join("providers/grok/1.0.41/grok");
        let (mut bytes, meta) = (fs::read(&path).unwrap(), fs::metadata(&path).unwrap());
        // The file is shared with other tests: it is replaced, not written.
        fs::remove_file(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&path, &bytes).unwrap();
        fs::set_permissions(&path, meta.permissions()).unwrap();
        let times = fs::FileTimes::new().set_modified(meta.modified().unwrap());
        fs::File::options().read(true).open(&path).unwrap().set_times(times).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), meta.modified().unwrap());
        let receipt = refused_provider(&world);
        assert_eq!(receipt["cause"]["evidence"], json!([path]), "{receipt:#}");
    }
}

#[test]
fn a_provider_whose_folder_is_a_link() {
    for caller in Caller::both() {
        let world = World::with_own_provider(&caller, "grok");
        let folder = world.state().join("providers/grok/1.0.41");
        let moved = world.path("elsewhere");
        fs::rename(&folder, &moved).unwrap();
        symlink(&moved, &folder).unwrap();
        let receipt = refused_provider(&world);
        assert_eq!(receipt["cause"]["evidence"], json!([folder]), "{receipt:#}");
    }
}

/// Orders the pinned Grok, which has to be refused as the wrong executable, with a remedy.
#[track_caller]
fn refused_provider(world: &World) -> Value {
    let ended = pinned(world).end().expect_code(72);
    let receipt = stockade_tests::run::read_json(&world.path("out/receipt.json"));
    assert_eq!(receipt["status"], "executable-refused", "{receipt:#}");
    let (error, cause) = (shown(&ended), &receipt["cause"]);
    assert_eq!((&error["code"], &error["boundary"]), (&json!("executable-refused"), &json!("executable")));
    assert!(cause["remedy"].as_str().unwrap().contains("stockade provision"), "{receipt:#}");
    assert_eq!((&receipt["processStarted"], &receipt["runtime"]), (&json!(false), &Value::Null));
    receipt
}
