//! The place: a root of its own with nothing in it but what was named.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use landlock::RulesetCreated;
use rustix::fs::{CWD, Mode};
use rustix::io::Errno;
use stockade_core::survey::Rung;

use crate::confine::privileges::{self, Bounding};
use crate::confine::{landlock as second_lock, seccomp};
use crate::error::{FenceError, FenceErrorKind, Step};
use crate::helper::phases::Phases;
use crate::helper::sources::{Gathered, Source};
use crate::helper::{etc, listing, proc};
use crate::spec::{
    BindAccess, EGRESS_PORT, FenceNetwork, FenceSpec, INNER_HOME, INNER_ID, MODEL_PORT, NAMES_PORT,
};
use crate::sys::mounts::{self, Attributes, Reach};
use crate::sys::{net, process};

/// Nothing here is ever executed with more rights or is a device.
const PLAIN: Attributes = Attributes::NO_SETUID.with(Attributes::NO_DEVICES);
/// Room for folders, links and generated files of the root.
const ROOT_OPTIONS: [(&str, &str); 3] = [("mode", "0755"), ("size", "4m"), ("nr_inodes", "4096")];
/// Room for the mount points in a folder of their own.
const STUB_OPTIONS: [(&str, &str); 3] = [("mode", "0755"), ("size", "64k"), ("nr_inodes", "64")];
/// Folders inside that everybody may write: mount points must not lie directly in them.
const WRITABLE: [&str; 5] = ["/tmp", "/var/tmp", "/run", "/dev/shm", INNER_HOME];
/// The smallest /tmp.
const MIN_TEMP: u64 = 1 << 20;

/// A place that is ready, as PID 1 holds it.
#[derive(Debug)]
pub(super) struct Place {
    /// To be passed out: the model's listener, the names', and the one for egress.
    pub(super) listeners: Vec<OwnedFd>,
    /// The limit of processes, where the kernel enforces one.
    pub(super) max_processes: Option<u32>,
    pub(super) filter: seccomp::Filter,
    pub(super) ruleset: Option<RulesetCreated>,
    pub(super) processes: listing::ProcIs,
    pub(super) phases: Vec<(String, u64)>,
}

/// Builds the place around this process, which is PID 1 of new namespaces with its ids mapped.
pub(super) fn build(spec: &FenceSpec, gathered: Gathered) -> Result<Place, FenceError> {
    let mut clock = Phases::new();
    let host_etc = etc::of_host(spec)?;
    mounts::make_all_private()?;
    let writable = writable_paths(&gathered.sources);
    let mut trees = Vec::new();
    for source in gathered.sources {
        let is_directory = source.is_directory();
        let (tree, target) = source.into_tree()?;
        trees.push(Tree { mount: tree, target, is_directory });
    }
    clock.mark("sources");
    if spec.is_root_host() {
        become_payload()?;
    }
    let root = new_root(spec.rung)?;
    clock.mark("root");
    let shut = furnish(spec, &gathered.links, trees, &host_etc)?;
    clock.mark("mounts");
    rustix::system::sethostname(b"stockade").step("sethostname")?;
    if spec.network != FenceNetwork::Host {
        net::loopback_up()?;
    }
    let listeners = listeners(spec.network)?;
    clock.mark("network");
    let max_processes = proc::harden(&root.proc, spec.rung, spec.max_processes)?;
    for tree in shut.iter().chain([&root.tree]) {
        mounts::set_attributes(tree, Reach::Mount, Attributes::READ_ONLY)?;
    }
    let ruleset = match spec.rung {
        Rung::Nsl => Some(second_lock::ruleset(&writable)?),
        Rung::Ns | Rung::NsNest | Rung::NsHostproc | Rung::Bs => None,
    };
    clock.mark("hardening");
    let filter = renounce(spec.rung)?;
    clock.mark("privileges");
    let processes = if spec.rung == Rung::NsHostproc { listing::ProcIs::Hosts } else { listing::ProcIs::Own };
    Ok(Place { listeners, max_processes, filter, ruleset, processes, phases: clock.finish() })
}

/// Gives up every privilege, and makes the filter of the roles.
pub(super) fn renounce(rung: Rung) -> Result<seccomp::Filter, FenceError> {
    let bounding = if rung == Rung::Bs { Bounding::EmptiedIfAllowed } else { Bounding::Emptied };
    privileges::drop_all(bounding)?;
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
        .step("prctl(SET_DUMPABLE)")?;
    own_keyring()?;
    let nesting = if rung.nests() { seccomp::Nesting::Allowed } else { seccomp::Nesting::Denied };
    Ok(seccomp::compile(nesting))
}

/// A detached mount on its way to its place.
struct Tree {
    mount: OwnedFd,
    target: PathBuf,
    is_directory: bool,
}

fn writable_paths(sources: &[Source]) -> Vec<PathBuf> {
    let asked = sources.iter().filter(|s| s.access == BindAccess::ReadWrite).map(|s| s.target.clone());
    let mut paths: Vec<PathBuf> = WRITABLE.iter().map(PathBuf::from).chain(asked).collect();
    paths.sort();
    paths.dedup();
    paths
}

/// Becomes the payload's ids. The capabilities in the new namespace stay until they are dropped, because nobody there is
/// kernel root.
fn become_payload() -> Result<(), FenceError> {
    let (uid, gid) = (rustix::process::Uid::from_raw(INNER_ID), rustix::process::Gid::from_raw(INNER_ID));
    rustix::thread::set_thread_groups(&[]).step("setgroups(none)")?;
    rustix::thread::set_thread_res_gid(gid, gid, gid).step("setresgid")?;
    rustix::thread::set_thread_res_uid(uid, uid, uid).step("setresuid")
}

struct Root {
    tree: OwnedFd,
    proc: OwnedFd,
}

/// Makes an empty root and leaves the old one. /proc comes first: the kernel allows a new one only while it sees a full
/// one.
fn new_root(rung: Rung) -> Result<Root, FenceError> {
    let proc = proc::of_rung(rung)?;
    let tree = mounts::new_file_system("tmpfs", &ROOT_OPTIONS, PLAIN)?;
    mounts::attach(&tree, Path::new("/proc"))?;
    mounts::pivot_into(tree.as_fd())?;
    make_folder(Path::new("/proc"))?;
    mounts::attach(&proc, Path::new("/proc"))?;
    Ok(Root { tree, proc })
}

/// Fills the root. Returns the mounts that are to be made read-only at the end.
fn furnish(
    spec: &FenceSpec,
    links: &[(PathBuf, PathBuf)],
    trees: Vec<Tree>,
    host_etc: &etc::OfHost,
) -> Result<Vec<OwnedFd>, FenceError> {
    let mut shut = fixed_folders(spec)?;
    for (at, content) in links {
        make_parents(at)?;
        rustix::fs::symlink(content, at).step_on("symlink", at)?;
    }
    // Before any bind, so that nothing is ever written to the host.
    etc::write(spec, host_etc)?;
    shut.extend(mount_all(trees)?);
    Ok(shut)
}

fn temporary(mode: &str, size: &str, attributes: Attributes) -> Result<OwnedFd, FenceError> {
    mounts::new_file_system("tmpfs", &[("mode", mode), ("size", size), ("nr_inodes", "65536")], attributes)
}

/// /tmp, /var/tmp, /run, /dev and, where the caller binds none, a home. Returns what is to be made read-only at the end.
fn fixed_folders(spec: &FenceSpec) -> Result<Vec<OwnedFd>, FenceError> {
    for folder in ["/dev", "/tmp", "/var", "/var/tmp", "/run", "/etc", "/home", INNER_HOME] {
        make_folder(Path::new(folder))?;
    }
    let size = spec.temp_bytes.max(MIN_TEMP).to_string();
    mounts::attach(temporary("1777", &size, PLAIN)?, Path::new("/tmp"))?;
    mounts::attach(temporary("1777", &size, PLAIN)?, Path::new("/var/tmp"))?;
    mounts::attach(temporary("0755", "16m", PLAIN)?, Path::new("/run"))?;
    if !spec.binds.iter().any(|b| b.target == Path::new(INNER_HOME)) {
        mounts::attach(temporary("0700", &size, PLAIN)?, Path::new(INNER_HOME))?;
    }
    let no_programs = Attributes::NO_SETUID.with(Attributes::NO_EXEC);
    let dev = mounts::new_file_system(
        "tmpfs",
        &[("mode", "0755"), ("size", "64k"), ("nr_inodes", "64")],
        no_programs,
    )?;
    mounts::attach(&dev, Path::new("/dev"))?;
    make_folder(Path::new("/dev/shm"))?;
    make_folder(Path::new("/dev/pts"))?;
    let shm = temporary("1777", "64m", PLAIN.with(Attributes::NO_EXEC))?;
    mounts::attach(shm, Path::new("/dev/shm"))?;
    let terminals =
        mounts::new_file_system("devpts", &[("ptmxmode", "0666"), ("mode", "0620")], no_programs)?;
    mounts::attach(terminals, Path::new("/dev/pts"))?;
    for (content, at) in [
        (c"pts/ptmx", c"/dev/ptmx"),
        (c"/proc/self/fd", c"/dev/fd"),
        (c"/proc/self/fd/0", c"/dev/stdin"),
        (c"/proc/self/fd/1", c"/dev/stdout"),
        (c"/proc/self/fd/2", c"/dev/stderr"),
        (c"/run", c"/var/run"),
    ] {
        make_link(content, at)?;
    }
    Ok(vec![dev])
}

/// Mounts everything, shallow before deep. Returns the stubs, to be made read-only at the end.
fn mount_all(mut trees: Vec<Tree>) -> Result<Vec<OwnedFd>, FenceError> {
    trees.sort_by_key(|t| t.target.components().count());
    let mut stubs = Stubs::default();
    let mut mounted: Vec<PathBuf> = Vec::new();
    for tree in trees {
        let inside_another = mounted.iter().any(|m| tree.target.starts_with(m));
        if !inside_another {
            stubs.make_for(&tree.target)?;
            make_mount_point(&tree)?;
        }
        mounts::attach(&tree.mount, &tree.target).map_err(|e| match e.errno() {
            // Never is a mount point made in a folder of the host.
            libc::ENOENT | libc::ELOOP if inside_another => e.of_kind(FenceErrorKind::Source),
            _ => e,
        })?;
        mounted.push(tree.target);
    }
    Ok(stubs.trees)
}

fn make_mount_point(tree: &Tree) -> Result<(), FenceError> {
    if tree.is_directory {
        return make_folders(&tree.target);
    }
    make_parents(&tree.target)?;
    let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CLOEXEC;
    match rustix::fs::open(&tree.target, flags, Mode::from_raw_mode(0o444)) {
        Ok(_) | Err(Errno::EXIST) => Ok(()),
        Err(e) => Err(e).step_on("open(mount point)", &tree.target),
    }
}

/// The parents of a mount point inside a writable folder could be renamed away and replaced. They are shut in a small
/// file system of their own that becomes read-only.
#[derive(Default)]
struct Stubs {
    paths: Vec<PathBuf>,
    trees: Vec<OwnedFd>,
}

impl Stubs {
    fn make_for(&mut self, target: &Path) -> Result<(), FenceError> {
        for writable in WRITABLE {
            let Ok(rest) = target.strip_prefix(writable) else { continue };
            let mut components = rest.components();
            let (Some(first), Some(_)) = (components.next(), components.next()) else { continue };
            let stub = Path::new(writable).join(first);
            if self.paths.contains(&stub) {
                continue;
            }
            make_folders(&stub)?;
            let tree = mounts::new_file_system("tmpfs", &STUB_OPTIONS, PLAIN)?;
            mounts::attach(&tree, &stub)?;
            self.trees.push(tree);
            self.paths.push(stub);
        }
        Ok(())
    }
}

fn make_folder(path: &Path) -> Result<(), FenceError> {
    match rustix::fs::mkdirat(CWD, path, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(e) => Err(e).step_on("mkdir", path),
    }
}

fn make_folders(path: &Path) -> Result<(), FenceError> {
    make_parents(path)?;
    make_folder(path)
}

fn make_parents(path: &Path) -> Result<(), FenceError> {
    let parents: Vec<&Path> = path.ancestors().skip(1).filter(|p| p.parent().is_some()).collect();
    parents.into_iter().rev().try_for_each(make_folder)
}

fn make_link(content: &CStr, at: &CStr) -> Result<(), FenceError> {
    match rustix::fs::symlink(content, at) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(e) => Err(e).step_on("symlink", Path::new(&*at.to_string_lossy())),
    }
}

/// The listeners of a network whose loopback is up.
pub(super) fn listeners(network: FenceNetwork) -> Result<Vec<OwnedFd>, FenceError> {
    match network {
        FenceNetwork::Host | FenceNetwork::Empty => Ok(Vec::new()),
        FenceNetwork::Gateway => Ok(vec![net::listen(MODEL_PORT)?.into(), names()?.into()]),
        FenceNetwork::GatewayWithEgress => {
            Ok(vec![net::listen(MODEL_PORT)?.into(), names()?.into(), net::listen(EGRESS_PORT)?.into()])
        }
    }
}

/// Without the right to a low port (through bubblewrap) nobody answers for names: the socket is one that no query reaches.
fn names() -> Result<std::net::UdpSocket, FenceError> {
    match net::bind_datagram(NAMES_PORT) {
        Err(e) if e.errno() == libc::EACCES => net::bind_datagram(0),
        other => other,
    }
}

fn own_keyring() -> Result<(), FenceError> {
    match process::own_keyring() {
        // A kernel without keys, or an outer filter that denies them, has none to read either.
        Ok(()) | Err(Errno::NOSYS | Errno::PERM) => Ok(()),
        Err(e) => Err(e).step("keyctl(JOIN_SESSION_KEYRING)"),
    }
}
