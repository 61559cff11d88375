//! `doctor`, `rehearse` and `fence check` killed in the middle: no process is left, and `gc` finds and removes the rest,
//! also what lies in no folder.
//!
//! Needs root, to become another user and to look into every process.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test: a panic is how it fails, and ends are waited for"
)]

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use rustix::process::Signal;
use serde_json::Value;
use stockade_tests::{Caller, Started, World, outside};

/// How the folders begin that these commands make.
const PREFIXES: [&str; 3] = ["stockade-doctor-", "stockade-fence-check-", "stockade-rehearsal-"];
/// No process may be left after this time.
const GONE: Duration = Duration::from_secs(3);

/// What a caller has on this host that these commands make: folders, files of shared memory, segments, queues.
fn belongings(caller: &Caller) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let names = PREFIXES.into_iter().chain(["stockade-probe-"]).collect::<Vec<_>>();
    for folder in ["/tmp", "/dev/shm", "/dev/mqueue", "/run/secrets"] {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let is_named = names.iter().any(|name| entry.file_name().to_string_lossy().starts_with(name));
            let is_own = entry.metadata().is_ok_and(|m| m.uid() == caller.uid);
            if is_named && is_own {
                found.insert(entry.path().display().to_string());
            }
        }
    }
    for line in fs::read_to_string("/proc/sysvipc/shm").unwrap().lines().skip(1) {
        // key shmid perms size cpid lpid nattch uid
        let fields: Vec<&str> = line.split_whitespace().collect();
        if fields[7] == caller.uid.to_string() {
            found.insert(format!("segment {}", fields[0]));
        }
    }
    found.extend(fs::metadata("/run/secrets").ok().map(|_| "/run/secrets".to_owned()));
    found
}

fn folders(belongings: &BTreeSet<String>) -> impl Iterator<Item = &Path> {
    belongings.iter().map(Path::new).filter(|path| path.starts_with("/tmp"))
}

/// Every process below this one, as (pid, start time), and itself.
fn tree(pid: u32) -> Vec<(u32, String)> {
    let mut found = vec![pid];
    let mut at = 0;
    while let Some(pid) = found.get(at).copied() {
        at += 1;
        for thread in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            found.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        }
    }
    found.into_iter().filter_map(|pid| Some((pid, started(pid)?))).collect()
}

/// When a process started; `None`: it has ended.
fn started(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let is_dead = fields.next() == Some("Z");
    (!is_dead).then(|| fields.nth(18).unwrap().to_owned())
}

/// Kills a command, and waits until all of its tree is gone.
#[track_caller]
fn kill(run: Started) {
    let tree = tree(run.pid());
    run.signal(Signal::KILL);
    let ended = run.wait(Duration::from_secs(60));
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended.status), Some(9), "{}", ended.stderr);
    let until = std::time::Instant::now() + GONE;
    loop {
        let left: Vec<_> = tree.iter().filter(|(pid, at)| started(*pid).as_ref() == Some(at)).collect();
        if left.is_empty() {
            return;
        }
        assert!(std::time::Instant::now() < until, "still alive: {left:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What `gc` finds, as (kind, path, safe, removed).
fn gc(world: &World, arguments: &[&str]) -> Vec<(String, PathBuf, bool, bool)> {
    let ended = world.call(&["gc", "--json"]).args(arguments).end().expect_code(0);
    let found: Vec<Value> = serde_json::from_str(&ended.stdout).unwrap();
    let row = |l: &Value| {
        (
            l["kind"].as_str().unwrap().to_owned(),
            l["path"].as_str().unwrap().into(),
            l["safe"].as_bool().unwrap(),
            l["removed"].as_bool().unwrap(),
        )
    };
    found.iter().map(row).collect()
}

/// Whatever a killed command left is found and removed: nothing of it is there any more.
#[track_caller]
fn assert_cleared(what: &str, world: &World, before: &BTreeSet<String>) {
    let left: BTreeSet<String> = belongings(&world.caller).difference(before).cloned().collect();
    assert!(folders(&left).next().is_some(), "{what}: the kill came too late: {left:?}");
    // What was made this very moment may be in the making.
    for folder in folders(&left) {
        fs::File::open(folder).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    }
    let shown = gc(world, &[]);
    for folder in folders(&left) {
        let row = ("scratch".to_owned(), folder.to_owned(), true, false);
        assert!(shown.contains(&row), "{what}: {} is not in {shown:?}", folder.display());
    }
    assert_eq!(&belongings(&world.caller).difference(before).cloned().collect::<BTreeSet<_>>(), &left);
    let removed = gc(world, &["--remove"]);
    assert!(removed.iter().all(|(_, _, safe, removed)| safe == removed), "{what}: {removed:?}");
    assert_eq!(&belongings(&world.caller), before, "{what}");
    // Records and homes have their own times, and are told.
    let kept = gc(world, &[]);
    assert!(kept.iter().all(|(kind, _, safe, _)| !safe && kind != "scratch"), "{what}: {kept:?}");
}

/// One at a time, so that what one leaves is not taken for another's.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static LOCK: std::sync::Mutex<()> = std::sync::Mutex::new(());
    LOCK.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[test]
fn a_killed_fence_check_is_cleared_away_by_gc() {
    let _alone = alone();
    for caller in Caller::both() {
        for part in ["-outside", "-read-only", "-isolated-write"] {
            let world = World::new(&caller);
            let before = belongings(&caller);
            let run = world.call(&["fence", "check", "--json"]).start();
            outside::wait_until("a host side with all that belongs to it", || {
                let now = belongings(&caller);
                let new: Vec<_> = now.difference(&before).collect();
                new.iter().any(|name| name.ends_with(part)) && new.iter().any(|n| n.starts_with("segment"))
            });
            kill(run);
            assert_cleared(&format!("{} at {part}", caller.name), &world, &before);
        }
    }
}

#[test]
fn a_killed_doctor_is_cleared_away_by_gc() {
    let _alone = alone();
    for caller in Caller::both() {
        let world = World::with_providers(&caller);
        let before = belongings(&caller);
        // It takes a few hundredths of a second: the kill has to hit it.
        let hit = (0..200).any(|_| {
            let mut run = world.call(&["doctor", "--provider", "grok", "--json"]).start();
            while !run.has_ended() {
                if belongings(&caller).difference(&before).any(|name| name.ends_with("-decoys")) {
                    kill(run);
                    return belongings(&caller).difference(&before).any(|name| name.ends_with("-decoys"));
                }
            }
            false
        });
        assert!(hit, "no kill hit the doctor while it had a folder");
        assert_cleared(caller.name, &world, &before);
    }
}

#[test]
fn a_killed_rehearsal_is_cleared_away_by_gc() {
    let _alone = alone();
    for caller in Caller::both() {
        let world = World::with_providers(&caller);
        let before = belongings(&caller);
        let arguments =
            ["rehearse", "--provider", "grok", "--mode", "read-only", "--provider-sandbox", "replace"];
        let run = world.call(&arguments).start();
        outside::wait_until("the stage of the probes", || {
            let now = belongings(&caller);
            let new: BTreeSet<String> = now.difference(&before).cloned().collect();
            folders(&new).any(|folder| folder.join("probed/stdin.json").exists())
                && !outside::processes_with("stockade-probes-by-tool").is_empty()
        });
        kill(run);
        assert_cleared(caller.name, &world, &before);
    }
}
