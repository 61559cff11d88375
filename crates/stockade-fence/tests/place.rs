//! The fence as a place, on the real kernel: as root with mapped owners, and as a user without privileges.
//!
//! Needs root and says so: a test that is skipped would prove nothing. `cargo test -p stockade-fence --test place NAME`
//! runs the tests whose name holds NAME; `-- bench` prints medians, `-- bench-groups` what control groups add.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this is a test program"
)]

use std::process::ExitCode;

mod place {
    pub(crate) mod bench;
    pub(crate) mod building;
    pub(crate) mod ending;
    pub(crate) mod errands;
    pub(crate) mod groups;
    pub(crate) mod harness;
    pub(crate) mod holding;
    pub(crate) mod lab;
    pub(crate) mod refusals;
    pub(crate) mod roothost;
    pub(crate) mod rungs;
}

fn main() -> ExitCode {
    stockade_fence::helper::enter_if_asked();
    place::harness::main()
}
