//! Everything that will be mounted: opened and checked before the namespaces exist, and never walked twice.
//!
//! On a root host a source is cloned there and then, so that a later swap changes nothing (and because mapping owners
//! needs privileges over its file system). Elsewhere that is not allowed: it is opened again inside and compared.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType};
use rustix::io::Errno;

use crate::error::{FenceError, FenceErrorKind, Step};
use crate::spec::{BindAccess, BindOwner, FenceSpec, Identity, OWN_BINARY, OwnBinary};
use crate::sys::files::{self, Seen};
use crate::sys::mounts::{self, Attributes, Reach};
use crate::sys::userns::{Ids, OwnerMap};

/// Folders of the system, read-only, where present. A link among them (`/bin` to `usr/bin`) is made again as a link.
const FOLDERS: [&str; 9] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix"];

/// Everything of /etc that exists inside, where present and readable by everybody; passwd, group, hosts, resolv.conf and
/// nsswitch.conf are generated. Of /etc/ssl only these: the folder beside them holds private keys.
const ETC: [&str; 13] = [
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/ca-certificates",
    "/etc/ca-certificates.conf",
    "/etc/pki/tls/certs",
    "/etc/alternatives",
    "/etc/localtime",
    "/etc/os-release",
    "/etc/protocols",
    "/etc/services",
];

/// Devices. The terminal is the role's own, if it ever has one.
const DEVICES: [&str; 6] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// What kind of thing a source is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Asked for by the caller: it exists, or the build fails.
    Asked,
    /// Of the system: left out where it is missing or not for everybody.
    System,
    /// A device node.
    Device,
}

/// A thing to mount.
#[derive(Debug)]
pub(super) struct Source {
    path: PathBuf,
    pub(super) target: PathBuf,
    pub(super) access: BindAccess,
    owner: BindOwner,
    kind: Kind,
    seen: Seen,
    tree: Option<OwnedFd>,
}

/// Everything to mount, and the links to make.
#[derive(Debug)]
pub(super) struct Gathered {
    pub(super) sources: Vec<Source>,
    /// (where, what it holds)
    pub(super) links: Vec<(PathBuf, PathBuf)>,
    /// To be finished by the process that gathered.
    pub(super) owner_maps: Vec<OwnerMap>,
}

/// Opens and checks every source; on a root host clones it.
pub(super) fn gather(spec: &FenceSpec) -> Result<Gathered, FenceError> {
    let mut gathering =
        Gathering { spec, owner_maps: HashMap::new(), sources: Vec::new(), links: Vec::new() };
    for bind in &spec.binds {
        let wanted = Wanted {
            path: &bind.source,
            target: &bind.target,
            access: bind.access,
            owner: bind.owner,
            kind: Kind::Asked,
        };
        gathering.take(&wanted).map_err(|e| asked_for(e, &bind.source))?;
    }
    for path in FOLDERS.into_iter().chain(ETC).map(Path::new) {
        gathering.take_system(path)?;
    }
    for path in DEVICES.map(Path::new) {
        gathering.take(&Wanted::as_is(path, path, Kind::Device))?;
    }
    if spec.own_binary == OwnBinary::Bound {
        gathering.take_own_binary()?;
    }
    let owner_maps = gathering.owner_maps.into_values().collect();
    Ok(Gathered { sources: gathering.sources, links: gathering.links, owner_maps })
}

/// A source the caller named is the caller's to mend.
fn asked_for(error: FenceError, path: &Path) -> FenceError {
    let mendable = error.kind() == FenceErrorKind::Refused && matches!(error.step(), "openat2" | "fstat");
    if mendable { error.of_kind(FenceErrorKind::Source) } else { error }.on(path)
}

/// A source before it is opened.
struct Wanted<'a> {
    path: &'a Path,
    target: &'a Path,
    access: BindAccess,
    owner: BindOwner,
    kind: Kind,
}

impl<'a> Wanted<'a> {
    fn as_is(path: &'a Path, target: &'a Path, kind: Kind) -> Self {
        Self { path, target, access: BindAccess::ReadOnly, owner: BindOwner::Host, kind }
    }
}

struct Gathering<'a> {
    spec: &'a FenceSpec,
    /// A namespace for each pair of disk owner and kernel owner: making one costs a process.
    owner_maps: HashMap<(Ids, Ids), OwnerMap>,
    sources: Vec<Source>,
    links: Vec<(PathBuf, PathBuf)>,
}

impl Gathering<'_> {
    fn take(&mut self, wanted: &Wanted<'_>) -> Result<(), FenceError> {
        let fd = files::open_strict(wanted.path)?;
        self.take_opened(wanted, &fd)
    }

    fn take_system(&mut self, path: &Path) -> Result<(), FenceError> {
        if self.spec.binds.iter().any(|b| b.target == path) {
            return Ok(());
        }
        match rustix::fs::readlinkat(CWD, path, Vec::new()) {
            Ok(content) => {
                use std::os::unix::ffi::OsStringExt;
                let content = std::ffi::OsString::from_vec(content.into_bytes());
                self.links.push((path.to_path_buf(), content.into()));
                return Ok(());
            }
            // EINVAL: it is there and no link.
            Err(Errno::INVAL) => {}
            Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => return Ok(()),
            Err(e) => return Err(e).step_on("readlink", path),
        }
        match files::open_strict(path) {
            Ok(fd) => self.take_opened(&Wanted::as_is(path, path, Kind::System), &fd),
            // A link further up (/etc/ssl somewhere else) or not for this user: it does not exist inside.
            Err(e) if matches!(e.errno(), libc::ENOENT | libc::ELOOP | libc::EACCES) => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// The executable that runs now, found by its descriptor and, where it has to be opened again, checked against it.
    fn take_own_binary(&mut self) -> Result<(), FenceError> {
        let executable =
            rustix::fs::open("/proc/self/exe", rustix::fs::OFlags::PATH, rustix::fs::Mode::empty())
                .step_on("open", "/proc/self/exe")?;
        let path = std::fs::read_link("/proc/self/exe").step_on("readlink", "/proc/self/exe")?;
        self.take_opened(&Wanted::as_is(&path, Path::new(OWN_BINARY), Kind::Asked), &executable)
    }

    fn take_opened(&mut self, wanted: &Wanted<'_>, fd: &OwnedFd) -> Result<(), FenceError> {
        let seen = Seen::of(fd).map_err(|e| e.on(wanted.path))?;
        check_type(wanted, &seen)?;
        if wanted.kind == Kind::System && !seen.is_world_readable() {
            return Ok(());
        }
        let mut source = Source {
            path: wanted.path.to_path_buf(),
            target: wanted.target.to_path_buf(),
            access: wanted.access,
            owner: wanted.owner,
            kind: wanted.kind,
            seen,
            tree: None,
        };
        if self.spec.is_root_host() {
            source.tree = Some(self.clone_now(&source, fd).map_err(|e| e.on(wanted.path))?);
        }
        self.sources.push(source);
        Ok(())
    }

    fn clone_now(&mut self, source: &Source, fd: &OwnedFd) -> Result<OwnedFd, FenceError> {
        let Some((on_disk, kernel)) = source.owner_map(self.spec.identity) else {
            return source.clone_tree(fd);
        };
        let tree = mounts::clone_tree(fd, Reach::Mount)?;
        let map = match self.owner_maps.entry((on_disk, kernel)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(OwnerMap::new(on_disk, kernel)?),
        };
        mounts::map_owners(&tree, map.namespace(), source.attributes())?;
        Ok(tree)
    }
}

fn check_type(wanted: &Wanted<'_>, seen: &Seen) -> Result<(), FenceError> {
    let right = match wanted.kind {
        Kind::Asked | Kind::System => matches!(seen.file_type(), FileType::Directory | FileType::RegularFile),
        Kind::Device => seen.file_type() == FileType::CharacterDevice,
    };
    if right {
        return Ok(());
    }
    let error = FenceError::new(FenceErrorKind::Source, "neither a folder nor a file", Errno::INVAL);
    Err(error.on(wanted.path))
}

impl Source {
    pub(super) fn is_directory(&self) -> bool {
        self.seen.file_type() == FileType::Directory
    }

    pub(super) fn is_device(&self) -> bool {
        self.kind == Kind::Device
    }

    /// The path on the host.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// What it was when it was checked.
    pub(super) fn seen(&self) -> Seen {
        self.seen
    }

    /// The map of owners this source needs, where it needs one: (on disk, in the kernel).
    fn owner_map(&self, identity: Identity) -> Option<(Ids, Ids)> {
        let Identity::Kernel { uid, gid } = identity else { return None };
        let to_payload = match self.owner {
            BindOwner::Payload => true,
            BindOwner::Host => self.kind == Kind::Asked && !self.seen.is_world_readable(),
        };
        (to_payload && self.seen.owner.0 != uid).then_some((self.seen.owner, (uid, gid)))
    }

    fn attributes(&self) -> Attributes {
        let mut attributes = Attributes::NO_SETUID;
        if self.kind != Kind::Device {
            attributes = attributes.with(Attributes::NO_DEVICES);
            if self.access == BindAccess::ReadOnly {
                attributes = attributes.with(Attributes::READ_ONLY);
            }
        }
        attributes
    }

    fn clone_tree(&self, fd: &OwnedFd) -> Result<OwnedFd, FenceError> {
        // A tree, so that mounts below come along and get the same attributes. A device has none below.
        let reach = if self.kind == Kind::Device { Reach::Mount } else { Reach::Tree };
        let tree = mounts::clone_tree(fd, reach)?;
        mounts::set_attributes_private(tree.as_fd(), reach, self.attributes())?;
        Ok(tree)
    }

    /// The detached mount of this source: the one cloned before, or one of the path opened again and compared.
    pub(super) fn into_tree(self) -> Result<(OwnedFd, PathBuf), FenceError> {
        if let Some(tree) = self.tree {
            return Ok((tree, self.target));
        }
        let fd = files::open_strict(&self.path).map_err(|e| self.swapped(e))?;
        if !self.seen.is_same(&Seen::of(&fd)?) {
            return Err(self.swapped(FenceError::new(
                FenceErrorKind::Changed,
                "compare with the check",
                Errno::STALE,
            )));
        }
        let tree = self.clone_tree(&fd).map_err(|e| e.on(&self.path))?;
        Ok((tree, self.target))
    }

    /// It was there a moment ago: whoever made it go or become a link did so in between.
    fn swapped(&self, error: FenceError) -> FenceError {
        match error.errno() {
            libc::ENOENT | libc::ELOOP | libc::ENOTDIR | libc::ESTALE => {
                error.of_kind(FenceErrorKind::Changed)
            }
            _ => error,
        }
        .on(&self.path)
    }
}

#[cfg(test)]
mod tests;
