//! Medians of the phases of a fence. Numbers of one machine: printed, never asserted.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use stockade_core::survey::Rung;
use stockade_fence::{Fence, Role, stdio};

use super::lab::{Lab, wait_for};

const ROUNDS: usize = 60;

pub(crate) fn run() {
    println!("uid {}", rustix::process::geteuid().as_raw());
    for rung in Rung::ALL {
        let mut rows: Vec<[Duration; 6]> = Vec::new();
        let mut phases: Vec<(String, u64)> = Vec::new();
        for _ in 0..ROUNDS {
            let (row, inside) = round(rung);
            rows.push(row);
            phases.extend(inside);
        }
        let names = ["plain start", "build", "prove", "spawn+wait", "close", "total"];
        for (column, name) in names.iter().enumerate() {
            let mut values: Vec<Duration> = rows.iter().map(|r| r[column]).collect();
            values.sort();
            println!(
                "{} {name:<12} {:>9.3?} (max {:.3?})",
                rung.id(),
                values[values.len() / 2],
                values[values.len() - 1]
            );
        }
        let mut names: Vec<&str> = Vec::new();
        for (name, _) in &phases {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        for name in names {
            let mut values: Vec<u64> = phases.iter().filter(|(n, _)| n == name).map(|(_, v)| *v).collect();
            values.sort_unstable();
            println!("{}   inside {name:<10} {:>6} us", rung.id(), values[values.len() / 2]);
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a plain start to compare with")]
fn round(rung: Rung) -> ([Duration; 6], Vec<(String, u64)>) {
    let lab = Lab::new("bench");
    let mut spec = lab.spec();
    spec.rung = rung;
    let mut clock = Instant::now();
    let mut lap = || {
        let now = Instant::now();
        let lap = now - clock;
        clock = now;
        lap
    };
    Command::new("/bin/true").stdin(Stdio::null()).status().unwrap();
    let plain = lap();
    let mut fence = Fence::build(&spec).unwrap();
    let build = lap();
    fence.prove(&lab.proof()).unwrap();
    let prove = lap();
    let (theirs, _ours) = stdio::sockets().unwrap();
    let mut spawn = lab.shell(Role::Agent, "");
    spawn.argv = vec!["/bin/true".into()];
    let id = fence.spawn(&spawn, theirs).unwrap();
    wait_for(&mut fence, id);
    let spawned = lap();
    let inside = fence.facts().phases.clone();
    assert!(fence.close(Duration::from_secs(2)).gone);
    let close = lap();
    ([plain, build, prove, spawned, close, build + prove + spawned + close], inside)
}
