//! Runs the tests one after another, first as root, then once more as uid 65534.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use super::{bench, building, ending, errands, groups, holding, refusals, roothost, rungs};

pub(crate) type Test = (&'static str, fn());

/// The user without privileges.
const NOBODY: u32 = 65_534;
const AS_NOBODY: &str = "--as-nobody";

pub(crate) fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--nocapture").collect();
    if let Some(code) = errands::run(&arguments) {
        return code;
    }
    if arguments.iter().any(|a| a == "bench") {
        bench::run();
        return ExitCode::SUCCESS;
    }
    if arguments.iter().any(|a| a == "bench-groups") {
        bench::groups();
        return ExitCode::SUCCESS;
    }
    let filter = arguments.iter().find(|a| !a.starts_with("--")).map_or("", String::as_str);
    let nobody = arguments.iter().any(|a| a == AS_NOBODY);
    if !nobody && !rustix::process::geteuid().is_root() {
        eprintln!("these tests need root: they run as root and as uid {NOBODY}");
        return ExitCode::FAILURE;
    }
    let mut tests: Vec<Test> =
        [building::TESTS, holding::TESTS, rungs::TESTS, ending::TESTS, refusals::TESTS].concat();
    if !nobody {
        tests.extend(roothost::TESTS);
        tests.extend(groups::TESTS);
    }
    let failed =
        tests.iter().filter(|(name, _)| name.contains(filter)).filter(|test| !passes(test, nobody)).count();
    let nobody_failed = !nobody && !run_as_nobody(filter);
    if failed > 0 || nobody_failed {
        eprintln!("{failed} failed");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn passes((name, test): &Test, nobody: bool) -> bool {
    let who = if nobody { "nobody" } else { "root" };
    let passed = catch_unwind(AssertUnwindSafe(test)).is_ok();
    println!("test {who}: {name} ... {}", if passed { "ok" } else { "FAILED" });
    passed
}

/// A copy of this program where everybody can run it.
pub(crate) fn public_copy(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("stockade-place-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.join("place");
    std::fs::copy("/proc/self/exe", &program).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    program
}

#[expect(clippy::disallowed_methods, reason = "the tests run themselves as another user")]
fn run_as_nobody(filter: &str) -> bool {
    let program = public_copy("program");
    // The standard library drops root's supplementary groups when it changes the user.
    let status = Command::new(&program)
        .args([AS_NOBODY, filter])
        .current_dir("/")
        .uid(NOBODY)
        .gid(NOBODY)
        .status()
        .unwrap();
    std::fs::remove_dir_all(program.parent().unwrap()).unwrap();
    status.success()
}
