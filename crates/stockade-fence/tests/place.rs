//! The fence as a place, on the real kernel: as root with mapped owners, and as a user without privileges.
//!
//! Needs root and says so: a test that is skipped would prove nothing. `cargo test -p stockade-fence --test place NAME`
//! runs the tests whose name holds NAME; `-- bench` prints medians.

use std::process::ExitCode;

mod place {
    pub mod bench;
    pub mod building;
    pub mod ending;
    pub mod errands;
    pub mod harness;
    pub mod holding;
    pub mod lab;
    pub mod refusals;
    pub mod roothost;
}

fn main() -> ExitCode {
    stockade_fence::helper::enter_if_asked();
    place::harness::main()
}
