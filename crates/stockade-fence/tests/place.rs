//! The fence as a place, on the real kernel: as root with mapped owners, and as a user without privileges.
//!
//! Needs root, and says so: a test that is skipped would prove nothing.

use std::process::ExitCode;

mod place {
    pub mod lab;
}

use place::lab::{Lab, Outcome};
use std::time::Instant;
use stockade_fence::*;

fn main() -> ExitCode {
    stockade_fence::helper::enter_if_asked();
    let lab = Lab::new("smoke");
    let t = Instant::now();
    let mut fence = lab.build(lab.spec());
    println!("build {:?} {:?}", t.elapsed(), fence.facts());
    let t = Instant::now();
    let proof = fence.prove(&lab.proof());
    println!("prove {:?} {proof:#?}", t.elapsed());
    let out: Outcome = lab.run(&mut fence, "id; ls -la / /dev /etc /proc/1/ 2>&1| head -100; cat /proc/self/mountinfo; ls -la; echo hi > new; touch /home/agent/x; cat /proc/sys/kernel/pid_max; sleep 100 & exit 3");
    println!("{}\n{}\n{:?}", out.stdout, out.stderr, out.exited);
    println!("{:?}", fence.close(std::time::Duration::from_secs(2)));
    ExitCode::SUCCESS
}
