//! Looking at the host from outside: processes, files, digests.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use sha2::{Digest as _, Sha256};

use crate::World;

/// Processes whose command line or environment holds this text. The test's own are left out.
pub fn processes_with(mark: &str) -> Vec<(u32, String)> {
    let own = std::process::id();
    all_processes()
        .filter(|(pid, _)| *pid != own)
        .map(|(pid, folder)| (pid, command_line(&folder), folder))
        .filter(|(_, line, folder)| {
            let environ = || fs::read(folder.join("environ")).unwrap_or_default();
            line.contains(mark) || String::from_utf8_lossy(&environ()).contains(mark)
        })
        .map(|(pid, line, _)| (pid, line))
        .collect()
}

/// Waits until no process holds this text; panics with the survivors after `limit`.
#[track_caller]
pub fn wait_for_no_process_with(mark: &str, limit: Duration) {
    wait_for_none(limit, || processes_with(mark));
}

/// Processes inside a fence around the workspace of this world, whatever they call themselves: those in whose mount
/// namespace the workspace is a mount of its own.
pub fn processes_fenced_for(world: &World) -> Vec<(u32, String)> {
    let ws = world.ws().display().to_string();
    all_processes()
        .filter(|(_, folder)| {
            let mounts = fs::read_to_string(folder.join("mountinfo")).unwrap_or_default();
            // proc_pid_mountinfo(5): the fifth field is the mount point.
            mounts.lines().any(|line| line.split(' ').nth(4) == Some(&ws))
        })
        .map(|(pid, folder)| (pid, command_line(&folder)))
        .collect()
}

/// Waits until no process is left in a fence of this world; panics with the survivors after `limit`.
#[track_caller]
pub fn wait_for_no_process_fenced_for(world: &World, limit: Duration) {
    wait_for_none(limit, || processes_fenced_for(world));
}

fn all_processes() -> impl Iterator<Item = (u32, PathBuf)> {
    // All names first: one that changes its id faster than it is looked at would lead a reader on for ever.
    let names: Vec<_> = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.file_name()).collect();
    names.into_iter().filter_map(|name| {
        let pid = name.to_str()?.parse::<u32>().ok()?;
        Some((pid, Path::new("/proc").join(name)))
    })
}

fn command_line(folder: &Path) -> String {
    let bytes = fs::read(folder.join("cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

#[track_caller]
fn wait_for_none(limit: Duration, look: impl Fn() -> Vec<(u32, String)>) {
    let until = Instant::now() + limit;
    loop {
        let left = look();
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < until, "still alive after {limit:?}: {left:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Control groups of a run, in whatever hierarchy they lie.
pub fn groups_of(run: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    look_for_groups(Path::new("/sys/fs/cgroup"), &format!("stockade-{run}"), &mut found);
    found
}

/// Waits until nothing is in the control groups of a run. A process that was killed is in its group a moment longer than
/// it can be seen in its place.
#[track_caller]
pub fn wait_for_empty_groups(run: &str) -> Vec<PathBuf> {
    let groups = groups_of(run);
    wait_until("empty control groups", || {
        groups.iter().all(|g| fs::read_to_string(g.join("cgroup.procs")).is_ok_and(|text| text.is_empty()))
    });
    groups
}

fn look_for_groups(folder: &Path, name: &str, found: &mut Vec<PathBuf>) {
    // Groups of others come and go meanwhile.
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            if entry.file_name() == name {
                found.push(entry.path());
            }
            look_for_groups(&entry.path(), name, found);
        }
    }
}

/// Waits until a condition holds; panics with `what` after twenty seconds.
#[track_caller]
pub fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < until, "after 20 s still not: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What stands in a folder: kind, mode, owner and digest by relative path. Two such maps are equal if nothing changed.
pub fn picture(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut map = BTreeMap::new();
    look(root, root, &mut map);
    map
}

/// Asserts that two pictures are the same, and shows only what differs where they are not.
#[track_caller]
pub fn assert_same(before: &BTreeMap<PathBuf, String>, after: &BTreeMap<PathBuf, String>, what: &str) {
    let gone =
        before.iter().filter(|(path, is)| after.get(*path) != Some(is)).map(|(path, is)| ("was", path, is));
    let new =
        after.iter().filter(|(path, is)| before.get(*path) != Some(is)).map(|(path, is)| ("is", path, is));
    let differences: Vec<_> = gone.chain(new).collect();
    assert!(differences.is_empty(), "{what}: {differences:#?}");
}

fn look(root: &Path, path: &Path, map: &mut BTreeMap<PathBuf, String>) {
    let meta = fs::symlink_metadata(path).unwrap();
    let what = if meta.is_dir() {
        "folder".to_owned()
    } else if meta.is_symlink() {
        format!("link to {}", fs::read_link(path).unwrap().display())
    } else if meta.is_file() {
        format!("{:x?}", Sha256::digest(fs::read(path).unwrap()).as_slice())
    } else {
        "special".to_owned()
    };
    let relative = path.strip_prefix(root).unwrap().to_owned();
    map.insert(relative, format!("{:o} {}:{} {what}", meta.mode(), meta.uid(), meta.gid()));
    if meta.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            look(root, &entry.unwrap().path(), map);
        }
    }
}
