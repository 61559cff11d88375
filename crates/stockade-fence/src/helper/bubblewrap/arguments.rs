//! The arguments of bubblewrap: the same place as the direct rungs make, in its words.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

use crate::helper::sources::Source;
use crate::helper::{INNER_ARGUMENT, proc};
use crate::spec::{BindAccess, FenceNetwork, FenceSpec, INNER_HOME, INNER_ID};

/// Folders inside that everybody may write: mount points must not lie directly in them.
const WRITABLE: [&str; 5] = ["/tmp", "/var/tmp", "/run", "/dev/shm", INNER_HOME];
/// Devices. There are no terminals: for those bubblewrap would make a second user namespace.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
/// The smallest /tmp.
const MIN_TEMP: u64 = 1 << 20;

/// What is started as PID 1: this executable and its order, by descriptor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Command {
    pub(super) program: RawFd,
    pub(super) order: RawFd,
}

/// Arguments being written.
pub(super) struct Arguments {
    words: Vec<String>,
    /// Mounts that become read-only once everything is in its place.
    shut: Vec<PathBuf>,
    temp: u64,
    own_home: bool,
}

impl Arguments {
    pub(super) fn new(spec: &FenceSpec) -> Self {
        let mut arguments = Self {
            words: vec!["bwrap".to_owned()],
            shut: Vec::new(),
            temp: spec.temp_bytes.max(MIN_TEMP),
            own_home: !spec.binds.iter().any(|b| b.target == Path::new(INNER_HOME)),
        };
        let id = INNER_ID.to_string();
        arguments.add(&["--unshare-user", "--uid", &id, "--gid", &id, "--unshare-pid", "--as-pid-1"]);
        arguments.add(&["--unshare-ipc", "--unshare-uts", "--hostname", "stockade", "--unshare-cgroup-try"]);
        if spec.network != FenceNetwork::Host {
            arguments.add(&["--unshare-net"]);
        }
        // The one right that PID 1 needs, to give up the set of those that it could be given.
        arguments.add(&["--cap-drop", "ALL", "--cap-add", "CAP_SETPCAP"]);
        arguments
    }

    fn add(&mut self, words: &[&str]) {
        self.words.extend(words.iter().map(ToString::to_string));
    }

    /// /proc, /dev, the temporary folders, links and generated files.
    pub(super) fn root(&mut self, links: &[(PathBuf, PathBuf)], etc: &[(&str, OwnedFd)]) {
        self.add(&["--proc", "/proc"]);
        // As root bubblewrap leaves /proc/sys writable: its own test asks for the right of a folder's owner.
        self.add(&["--ro-bind", "/proc/sys", "/proc/sys"]);
        for name in proc::COVERED.map(|name| format!("/proc/{name}")).iter().filter(|p| Path::new(p).exists())
        {
            self.add(&["--ro-bind", "/dev/null", name]);
        }
        self.temporary("0755", 64 << 10, "/dev");
        for name in DEVICES.map(|name| format!("/dev/{name}")).iter().filter(|p| Path::new(p).exists()) {
            self.add(&["--dev-bind", name, name]);
        }
        for (content, at) in [
            ("/proc/self/fd", "/dev/fd"),
            ("/proc/self/fd/0", "/dev/stdin"),
            ("/proc/self/fd/1", "/dev/stdout"),
            ("/proc/self/fd/2", "/dev/stderr"),
        ] {
            self.add(&["--symlink", content, at]);
        }
        self.temporary("1777", 64 << 20, "/dev/shm");
        self.temporary("1777", self.temp, "/tmp");
        self.temporary("1777", self.temp, "/var/tmp");
        self.temporary("0755", 16 << 20, "/run");
        self.add(&["--symlink", "/run", "/var/run"]);
        if self.own_home {
            self.temporary("0700", self.temp, INNER_HOME);
        }
        for (at, content) in links {
            self.add(&["--symlink", &content.to_string_lossy(), &at.to_string_lossy()]);
        }
        for (name, fd) in etc {
            self.add(&["--perms", "0444", "--file", &fd.as_raw_fd().to_string(), &format!("/etc/{name}")]);
        }
        self.shut.extend(["/dev", "/proc"].map(PathBuf::from));
    }

    /// Binds everything, shallow before deep. The parents of a mount point inside a writable folder could be renamed away
    /// and replaced: they are shut in a small file system of their own.
    pub(super) fn bind(&mut self, sources: &[Source]) {
        let mut sorted: Vec<&Source> = sources.iter().collect();
        sorted.sort_by_key(|s| s.target.components().count());
        let mut bound: Vec<&Path> = Vec::new();
        for source in sorted {
            if !bound.iter().any(|b| source.target.starts_with(b)) {
                self.stub_for(&source.target);
            }
            let option = if source.access == BindAccess::ReadWrite { "--bind" } else { "--ro-bind" };
            self.add(&[option, &source.path().to_string_lossy(), &source.target.to_string_lossy()]);
            bound.push(&source.target);
        }
    }

    fn stub_for(&mut self, target: &Path) {
        for writable in WRITABLE {
            let Ok(rest) = target.strip_prefix(writable) else { continue };
            let mut components = rest.components();
            let (Some(first), Some(_)) = (components.next(), components.next()) else { continue };
            let stub = Path::new(writable).join(first);
            if !self.shut.contains(&stub) {
                self.temporary("0755", 64 << 10, &stub.to_string_lossy());
                self.shut.push(stub);
            }
        }
    }

    /// The size is said before each: without one it would be half of the host's memory.
    fn temporary(&mut self, mode: &str, size: u64, at: &str) {
        self.add(&["--perms", mode, "--size", &size.to_string(), "--tmpfs", at]);
    }

    /// Shuts what is to be read-only and names what is started.
    pub(super) fn finish(mut self, command: Command) -> Vec<String> {
        for path in std::mem::take(&mut self.shut).iter().chain([&PathBuf::from("/")]) {
            self.add(&["--remount-ro", &path.to_string_lossy()]);
        }
        let program = format!("/proc/self/fd/{}", command.program);
        self.add(&["--chdir", "/", "--", &program, INNER_ARGUMENT, &command.order.to_string()]);
        self.words
    }
}
