//! Every escape probe: denied inside the fence in both modes, on both rungs, as root and as a user, and nothing
//! changed when looked at from outside; and, as the control, the same actions work outside.
//!
//! Needs root (to be both), git, sleep, user namespaces and Landlock, and fails where one is missing. Has a main of
//! its own, because the fence and the probes fork and because this executable is what runs inside.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a test with its own main, which starts itself"
)]

mod probes {
    pub(crate) mod cases;
    pub(crate) mod fenced;
}

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use probes::cases;

/// The users as whom everything is run: root, and one who owns nothing.
const USERS: [u32; 2] = [0, 65_534];

fn main() -> ExitCode {
    stockade_fence::helper::enter_if_asked();
    if let Some(code) = stockade_fence::probes::enter_if_asked() {
        return code;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [cases::ARGUMENT, filter @ ..] => cases::run_all(filter),
        filter => as_every_user(filter),
    }
}

/// Starts this executable once for each user, from a folder that each of them can reach.
fn as_every_user(filter: &[&str]) -> ExitCode {
    assert!(rustix::process::geteuid().is_root(), "this test needs root, to run as root and as a user");
    let filter: Vec<_> = filter.iter().filter(|word| !word.starts_with('-')).collect();
    let place = Place::new();
    let mut failed = Vec::new();
    for uid in USERS {
        let mut command = Command::new(place.0.join("probes"));
        command.arg(cases::ARGUMENT).args(&filter).uid(uid).gid(uid);
        if !command.status().unwrap().success() {
            failed.push(uid);
        }
    }
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!("failed as uid {failed:?}");
    ExitCode::FAILURE
}

/// A folder that everybody can reach, with a copy of this executable.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        let folder = PathBuf::from(format!("/tmp/stockade-test-probes-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::copy("/proc/self/exe", folder.join("probes")).unwrap();
        std::fs::set_permissions(folder.join("probes"), PermissionsExt::from_mode(0o755)).unwrap();
        Self(folder)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}
