//! Looking at the host from outside: processes, files, digests.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use sha2::{Digest as _, Sha256};

/// Processes whose command line or environment holds this text. The test's own are left out.
pub fn processes_with(mark: &str) -> Vec<(u32, String)> {
    let own = std::process::id();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else { continue };
        if pid == own {
            continue;
        }
        let read = |what: &str| fs::read(entry.path().join(what)).unwrap_or_default();
        let line = String::from_utf8_lossy(&read("cmdline")).replace('\0', " ");
        if line.contains(mark) || String::from_utf8_lossy(&read("environ")).contains(mark) {
            found.push((pid, line));
        }
    }
    found
}

/// Waits until no process holds this text; panics with the survivors after `limit`.
#[track_caller]
pub fn wait_for_no_process_with(mark: &str, limit: Duration) {
    let until = Instant::now() + limit;
    loop {
        let left = processes_with(mark);
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < until, "still alive after {limit:?}: {left:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What stands in a folder: kind, mode, owner and digest by relative path. Two such maps are equal if nothing changed.
pub fn picture(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut map = BTreeMap::new();
    look(root, root, &mut map);
    map
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
