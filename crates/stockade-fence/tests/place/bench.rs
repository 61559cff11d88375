//! What a fence costs: medians of its phases, beside a plain start and bubblewrap, and a hundred at once. The last line is
//! for programs (`cargo xtask bench`), in milliseconds. Numbers of one machine: printed, never asserted.

use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use stockade_core::survey::Rung;
use stockade_fence::{GroupSpec, Role, StartedHelper, stdio};

use super::lab::{Lab, wait_for};

const ROUNDS: usize = 60;
const CROWD: usize = 100;
const CROWDS: usize = 3;

pub(crate) fn run() {
    println!("uid {}", rustix::process::geteuid().as_raw());
    let mut best = None;
    for rung in [Rung::Nsl, Rung::Ns] {
        let rounds: Vec<Round> = (0..ROUNDS).map(|_| Round::of(rung)).collect();
        let plain = told(rung, "plain start", rounds.iter().map(|r| r.plain).collect());
        let laps = ["build", "prove", "spawn+wait", "close"];
        for (i, name) in laps.iter().enumerate() {
            told(rung, name, rounds.iter().map(|r| r.laps[i]).collect());
        }
        let total = told(rung, "total", rounds.iter().map(Round::total).collect());
        let added = rounds.iter().map(|r| r.total().saturating_sub(r.plain)).collect();
        let added = told(rung, "over plain", added);
        let phases: Vec<_> = rounds.iter().flat_map(|r| &r.phases).collect();
        let mut names: Vec<&String> = Vec::new();
        for (name, _) in &phases {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        for name in names {
            let mut values: Vec<u64> = phases.iter().filter(|(n, _)| n == name).map(|(_, v)| *v).collect();
            values.sort_unstable();
            println!("{}   inside {name:<10} {:>6} us", rung.id(), values[values.len() / 2]);
        }
        best.get_or_insert((plain, total, added));
    }
    let (plain, total, added) = best.unwrap();
    let bubblewrap = bubblewrap();
    let crowd = median((0..CROWDS).map(|_| crowd()).collect());
    println!("{CROWD} at once {crowd:.3?}");
    let ms = |d: Duration| d.as_secs_f64() * 1e3;
    println!(
        "{}",
        serde_json::json!({
            "plain": ms(plain),
            "fence": ms(total),
            "added": ms(added),
            "bubblewrap": bubblewrap.map(ms),
            "hundred": ms(crowd),
        })
    );
}

fn told(rung: Rung, name: &str, mut values: Vec<Duration>) -> Duration {
    values.sort();
    let middle = values[values.len() / 2];
    println!("{} {name:<12} {middle:>9.3?} (max {:.3?})", rung.id(), values[values.len() - 1]);
    middle
}

fn median(mut values: Vec<Duration>) -> Duration {
    values.sort();
    values[values.len() / 2]
}

struct Round {
    plain: Duration,
    laps: [Duration; 4],
    phases: Vec<(String, u64)>,
}

impl Round {
    #[expect(clippy::disallowed_methods, reason = "a plain start to compare with")]
    fn of(rung: Rung) -> Self {
        let lab = Lab::new("bench");
        let start = Instant::now();
        Command::new("/bin/true").stdin(Stdio::null()).status().unwrap();
        let plain = start.elapsed();
        let (laps, phases) = fence(&lab, rung, None);
        Self { plain, laps, phases }
    }

    fn total(&self) -> Duration {
        self.laps.iter().sum()
    }
}

/// The whole life of a fence around one `/bin/true`, as a run has it.
fn fence(lab: &Lab, rung: Rung, group: Option<&GroupSpec>) -> ([Duration; 4], Vec<(String, u64)>) {
    let mut spec = lab.spec();
    spec.rung = rung;
    spec.group = group.cloned();
    let mut clock = Instant::now();
    let mut lap = || {
        let now = Instant::now();
        let lap = now - clock;
        clock = now;
        lap
    };
    let building = StartedHelper::start().unwrap().build(&spec).unwrap();
    let decoys = building.place_decoys(&lab.proof()).unwrap();
    let mut fence = building.finish().unwrap();
    let build = lap();
    fence.prove_with(decoys).unwrap();
    let prove = lap();
    let (theirs, _ours) = stdio::sockets().unwrap();
    let mut spawn = lab.shell(Role::Agent, "");
    spawn.argv = vec!["/bin/true".into()];
    let id = fence.spawn(&spawn, theirs).unwrap();
    wait_for(&mut fence, id);
    let spawned = lap();
    let phases = fence.facts().phases.clone();
    assert!(fence.close(Duration::from_secs(10)).gone);
    ([build, prove, spawned, lap()], phases)
}

/// What control groups add, each fence with them beside one without.
pub(crate) fn groups() {
    let (lab, mut group) = (Lab::new("bench-groups"), super::groups::group("bench"));
    // As a run has them: memory, and version 2.
    group.hierarchies.retain(|h| h.version == 2 || h.controllers.iter().any(|c| c == "memory"));
    let total = |group| fence(&lab, Rung::Ns, group).0.iter().sum::<Duration>();
    let pairs: Vec<_> = (0..ROUNDS).map(|_| (total(None), total(Some(&group)))).collect();
    let micros = |d: Duration| i128::try_from(d.as_micros()).unwrap();
    let mut added: Vec<i128> = pairs.iter().map(|(without, with)| micros(*with) - micros(*without)).collect();
    added.sort_unstable();
    println!("{} control groups add {} us", group.hierarchies.len(), added[added.len() / 2]);
}

/// Many fences at the same moment, until the last is gone.
fn crowd() -> Duration {
    let labs: Vec<Lab> = (0..CROWD).map(|i| Lab::new(&format!("bench-{i}"))).collect();
    let ready = Barrier::new(CROWD + 1);
    std::thread::scope(|scope| {
        for lab in &labs {
            let ready = &ready;
            scope.spawn(move || {
                ready.wait();
                fence(lab, Rung::Ns, None);
            });
        }
        ready.wait();
        Instant::now()
    })
    .elapsed()
}

/// A comparable sandbox of bubblewrap around the same program; `None`: it is not here or does not work.
#[expect(clippy::disallowed_methods, reason = "a peer to compare with")]
fn bubblewrap() -> Option<Duration> {
    const ARGUMENTS: [&str; 16] = [
        "--unshare-user",
        "--unshare-pid",
        "--unshare-net",
        "--unshare-ipc",
        "--unshare-uts",
        "--die-with-parent",
        "--ro-bind",
        "/",
        "/",
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "--tmpfs",
        "/tmp",
        "/bin/true",
    ];
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let status = Command::new("bwrap").args(ARGUMENTS).stdin(Stdio::null()).status().ok()?;
        times.push(start.elapsed());
        status.success().then_some(())?;
    }
    let middle = median(times);
    println!("bubblewrap   {middle:>9.3?}");
    Some(middle)
}
