//! The control groups of a run: one in each hierarchy that holds a limit, made before anything runs and removed after it.
//!
//! The first process enters them before it makes namespaces, so that everything in the fence is in them and nothing has
//! to be moved: moving a process waits for the whole kernel (11 to 15 ms), entering by oneself does not.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::Timespec;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use stockade_core::limits::CgroupHierarchy;

use crate::error::{FenceError, Step};

/// A file of a group is short.
const MAX_FILE: usize = 4096;
/// How often a group that still counts a process is tried to be removed, a millisecond apart: the kernel lets go of a
/// dead process a moment after it says that it is dead.
const REMOVALS: u32 = 50;

/// Control groups to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupSpec {
    /// The name of the group in each hierarchy.
    pub name: String,
    /// The hierarchies.
    pub hierarchies: Vec<CgroupHierarchy>,
    /// The limit of memory of all that is in it, in bytes; `None`: not limited by a group.
    pub memory_bytes: Option<u64>,
    /// The limit of processes and threads; `None`: not limited by a group.
    pub processes: Option<u64>,
}

/// What the memory controller counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryReading {
    /// The most at once, in bytes; what there is now where the kernel does not keep that.
    pub peak: u64,
    /// Processes that the kernel killed because the limit was reached.
    pub kills: u64,
    /// The file that counts those.
    pub counted_in: &'static str,
}

/// How the groups of a fence ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupEnd {
    /// What the memory controller counted; `None`: there was none.
    pub memory: Option<MemoryReading>,
    /// Whether the kernel says that nothing is in it; `None`: only version 2 says so.
    pub empty: Option<bool>,
    /// Groups that could not be removed, because something is still in them.
    pub left: Vec<PathBuf>,
}

/// The groups of one fence. They are removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Group {
    parts: Vec<Part>,
}

#[derive(Debug)]
struct Part {
    version: u8,
    path: PathBuf,
    folder: OwnedFd,
    has_memory: bool,
}

impl Group {
    /// Makes them and sets their limits. What was made goes again when one of them cannot be.
    pub(crate) fn make(spec: &GroupSpec) -> Result<Self, FenceError> {
        let mut group = Self { parts: Vec::with_capacity(spec.hierarchies.len()) };
        for hierarchy in &spec.hierarchies {
            let path = hierarchy.parent.join(&spec.name);
            rustix::fs::mkdir(&path, Mode::from_raw_mode(0o755)).step_on("mkdir(cgroup)", &path)?;
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let folder = match rustix::fs::openat(CWD, &path, flags, Mode::empty()) {
                Ok(folder) => folder,
                Err(e) => {
                    // The first failure is the one to report.
                    let _left = rustix::fs::rmdir(&path);
                    return Err(e).step_on("open(cgroup)", &path);
                }
            };
            let has = |name: &str| hierarchy.controllers.iter().any(|c| c == name);
            let memory = spec.memory_bytes.filter(|_| has("memory"));
            let part = Part { version: hierarchy.version, path, folder, has_memory: memory.is_some() };
            // First into the list, so that it goes again if a limit cannot be set.
            let at = group.parts.len();
            group.parts.push(part);
            let Some(part) = group.parts.get(at) else { continue };
            if let Some(bytes) = memory {
                part.limit_memory(bytes)?;
            }
            if let Some(max) = spec.processes.filter(|_| has("pids")) {
                part.write("pids.max", &max.to_string())?;
            }
        }
        Ok(group)
    }

    /// What the memory controller has counted so far.
    pub(crate) fn memory(&self) -> Option<MemoryReading> {
        self.parts.iter().find(|p| p.has_memory).map(Part::memory)
    }

    /// Ends everything in it at once, where the kernel can (version 2).
    pub(crate) fn kill(&self) {
        for part in self.parts.iter().filter(|p| p.version == 2) {
            // A second net: kernels before 5.14 do not have the file.
            let _without = part.write("cgroup.kill", "1");
        }
    }

    /// Takes the last readings and removes the groups.
    pub(crate) fn end(mut self) -> GroupEnd {
        let memory = self.memory();
        let empty = self.parts.iter().find(|p| p.version == 2).and_then(Part::is_empty);
        let left = self.remove();
        GroupEnd { memory, empty, left }
    }

    fn remove(&mut self) -> Vec<PathBuf> {
        self.parts.drain(..).filter_map(|part| part.remove().is_err().then_some(part.path)).collect()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // What is left is found by `gc`.
        self.remove();
    }
}

impl Part {
    fn limit_memory(&self, bytes: u64) -> Result<(), FenceError> {
        let limit = bytes.to_string();
        if self.version == 1 {
            self.write("memory.limit_in_bytes", &limit)?;
            // Without swap the limit is the end; with it, it would be the beginning of a long agony.
            return self.write_if_there("memory.memsw.limit_in_bytes", &limit);
        }
        self.write("memory.max", &limit)?;
        self.write_if_there("memory.swap.max", "0")?;
        self.write_if_there("memory.oom.group", "1")
    }

    fn memory(&self) -> MemoryReading {
        let (peak, counted_in) = match self.version {
            1 => ("memory.max_usage_in_bytes", "memory.oom_control"),
            _ => ("memory.peak", "memory.events"),
        };
        let number = |file| self.read(file).and_then(|text: String| text.trim().parse().ok());
        // Version 2 keeps the peak from Linux 5.19 on; before, whoever asks again and again keeps the most.
        let peak = number(peak).or_else(|| number("memory.current")).unwrap_or(0);
        let kills = self.read(counted_in).and_then(|text| number_after("oom_kill", &text)).unwrap_or(0);
        MemoryReading { peak, kills, counted_in }
    }

    fn is_empty(&self) -> Option<bool> {
        self.read("cgroup.events").and_then(|text| number_after("populated", &text)).map(|n| n == 0)
    }

    fn write(&self, file: &'static str, text: &str) -> Result<(), FenceError> {
        let step = || format!("write({file})");
        let fd = rustix::fs::openat(&self.folder, file, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
            .step_on(step(), &self.path)?;
        match rustix::io::write(fd, text.as_bytes()) {
            Ok(n) if n == text.len() => Ok(()),
            Ok(_) => Err(Errno::IO).step_on(step(), &self.path),
            Err(e) => Err(e).step_on(step(), &self.path),
        }
    }

    fn write_if_there(&self, file: &'static str, text: &str) -> Result<(), FenceError> {
        match self.write(file, text) {
            Err(e) if e.errno() == libc::ENOENT => Ok(()),
            other => other,
        }
    }

    fn read(&self, file: &str) -> Option<String> {
        let fd =
            rustix::fs::openat(&self.folder, file, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let mut bytes = vec![0; MAX_FILE];
        let n = rustix::io::read(fd, bytes.as_mut_slice()).ok()?;
        Some(String::from_utf8_lossy(bytes.get(..n)?).into_owned())
    }

    fn remove(&self) -> Result<(), Errno> {
        for _ in 0..REMOVALS {
            match rustix::fs::unlinkat(CWD, &self.path, AtFlags::REMOVEDIR) {
                Err(Errno::BUSY) => pause(Duration::from_millis(1)),
                Err(Errno::NOENT) => return Ok(()),
                other => return other,
            }
        }
        Err(Errno::BUSY)
    }
}

fn pause(time: Duration) {
    let time = Timespec::try_from(time).ok();
    // Cut short is as good.
    let _woken = rustix::event::poll(&mut [], time.as_ref());
}

fn number_after(key: &str, text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

/// Puts this process, which has one thread, into the version 1 groups, and opens the version 2 group for the process
/// that is about to be made: that one is born in it.
pub(crate) fn enter(spec: &GroupSpec) -> Result<Option<OwnedFd>, FenceError> {
    let mut born_in = None;
    for hierarchy in &spec.hierarchies {
        let path = hierarchy.parent.join(&spec.name);
        if hierarchy.version == 1 {
            // `tasks` and not `cgroup.procs`: one thread that moves itself needs no lock that others wait for.
            join(&path, "tasks")?;
        } else {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let folder =
                rustix::fs::openat(CWD, &path, flags, Mode::empty()).step_on("open(cgroup)", &path)?;
            born_in = Some(folder);
        }
    }
    Ok(born_in)
}

/// Puts this process into a version 2 group, for whom nobody can be born in it.
pub(crate) fn join_whole(folder: BorrowedFd<'_>) -> Result<(), FenceError> {
    write_zero(folder, "cgroup.procs").step("write(cgroup.procs)")
}

fn join(path: &Path, file: &str) -> Result<(), FenceError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = rustix::fs::openat(CWD, path, flags, Mode::empty()).step_on("open(cgroup)", path)?;
    write_zero(folder.as_fd(), file).step_on(format!("write({file})"), path)
}

fn write_zero(folder: BorrowedFd<'_>, file: &str) -> Result<(), Errno> {
    let fd = rustix::fs::openat(folder, file, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(fd, b"0").map(|_| ())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A group as files, for the version that this kernel may not have.
    fn part(version: u8, files: &[(&str, &str)]) -> (Part, PathBuf) {
        let path = std::env::temp_dir().join(format!("stockade-group-{version}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        for (name, text) in files {
            fs::write(path.join(name), text).unwrap();
        }
        let folder = rustix::fs::openat(CWD, &path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        (Part { version, path: path.clone(), folder, has_memory: true }, path)
    }

    #[test]
    fn version_2_is_limited_without_swap_and_as_a_whole() {
        let (part, path) =
            part(2, &[("memory.max", ""), ("memory.oom.group", ""), ("memory.current", "77\n")]);
        part.limit_memory(1 << 20).unwrap();
        let written = |file: &str| fs::read_to_string(path.join(file)).unwrap();
        assert_eq!((written("memory.max"), written("memory.oom.group")), ("1048576".into(), "1".into()));
        assert!(!path.join("memory.swap.max").exists(), "a kernel without swap has no such file");

        let reading = MemoryReading { peak: 77, kills: 0, counted_in: "memory.events" };
        assert_eq!(part.memory(), reading, "before Linux 5.19");
        fs::write(path.join("memory.peak"), "99\n").unwrap();
        fs::write(path.join("memory.events"), "low 0\nmax 3\noom 1\noom_kill 2\n").unwrap();
        assert_eq!(part.memory(), MemoryReading { peak: 99, kills: 2, ..reading });
        assert_eq!(part.is_empty(), None);
        fs::write(path.join("cgroup.events"), "populated 0\nfrozen 0\n").unwrap();
        assert_eq!(part.is_empty(), Some(true));
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn numbers_are_found_by_their_whole_key() {
        let text = "low 0\nhigh 0\nmax 7\noom 2\noom_kill 1\noom_group_kill 1\n";
        assert_eq!(number_after("oom_kill", text), Some(1));
        assert_eq!(number_after("oom", text), Some(2));
        assert_eq!(number_after("populated", text), None);
        assert_eq!(number_after("oom_kill", "oom_kill x\n"), None);
    }
}
