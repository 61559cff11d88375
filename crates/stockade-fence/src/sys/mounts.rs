//! Mounts by descriptor: nothing here walks a path that somebody else can change.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::StatVfsMountFlags;
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags,
    UnmountFlags,
};

use crate::error::{FenceError, FenceErrorKind, Step};
use crate::sys::files;

/// Attributes of a mount (`linux/mount.h`, `MOUNT_ATTR_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attributes(u64);

impl Attributes {
    pub(crate) const READ_ONLY: Self = Self(0x01);
    pub(crate) const NO_SETUID: Self = Self(0x02);
    pub(crate) const NO_DEVICES: Self = Self(0x04);
    pub(crate) const NO_EXEC: Self = Self(0x08);
    const IDMAP: Self = Self(0x0010_0000);

    pub(crate) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    fn for_fsmount(self) -> MountAttrFlags {
        MountAttrFlags::from_bits_truncate(u32::try_from(self.0).unwrap_or(0))
    }
}

/// How far a change or a clone reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// That one mount.
    Mount,
    /// The mount and everything mounted below it.
    Tree,
}

/// `struct mount_attr` of `mount_setattr(2)`.
#[repr(C)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

fn mount_setattr(fd: BorrowedFd<'_>, reach: Reach, attributes: &MountAttr) -> Result<(), Errno> {
    let reach = if reach == Reach::Tree { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the descriptor is borrowed and so open, the path is a NUL-terminated constant, and the structure has the
    // size that is passed.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            fd.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | reach,
            std::ptr::from_ref(attributes),
            size_of::<MountAttr>(),
        )
    };
    super::process::answer(answer)?;
    has_taken(fd, Attributes(attributes.set))
}

/// Whether attributes are there after they were set: a filter in place of the kernel may say so and do nothing. A file
/// system that does not answer is taken at its word.
fn has_taken(fd: BorrowedFd<'_>, set: Attributes) -> Result<(), Errno> {
    let Ok(now) = rustix::fs::fstatvfs(fd) else { return Ok(()) };
    let wanted = [
        (Attributes::READ_ONLY, StatVfsMountFlags::RDONLY),
        (Attributes::NO_SETUID, StatVfsMountFlags::NOSUID),
        (Attributes::NO_DEVICES, StatVfsMountFlags::NODEV),
        (Attributes::NO_EXEC, StatVfsMountFlags::NOEXEC),
    ];
    let lacks = |(attribute, flag): &(Attributes, StatVfsMountFlags)| {
        set.0 & attribute.0 != 0 && !now.f_flag.contains(*flag)
    };
    if wanted.iter().any(lacks) { Err(Errno::PROTO) } else { Ok(()) }
}

/// Sets attributes of a mount.
pub(crate) fn set_attributes(fd: impl AsFd, reach: Reach, set: Attributes) -> Result<(), FenceError> {
    let attributes = MountAttr { set: set.0, clear: 0, propagation: 0, user_namespace: 0 };
    mount_setattr(fd.as_fd(), reach, &attributes).step("mount_setattr")
}

/// Sets attributes of a detached tree and cuts it off from mount events of the place it was cloned from.
pub(crate) fn set_attributes_private(fd: impl AsFd, reach: Reach, set: Attributes) -> Result<(), FenceError> {
    let attributes = MountAttr { set: set.0, clear: 0, propagation: libc::MS_PRIVATE, user_namespace: 0 };
    mount_setattr(fd.as_fd(), reach, &attributes).step("mount_setattr")
}

/// Maps the owners of a detached mount by a user namespace and sets attributes, in one step. A file system that cannot
/// is told from a refusal.
pub(crate) fn map_owners(fd: impl AsFd, namespace: impl AsFd, set: Attributes) -> Result<(), FenceError> {
    let attributes = MountAttr {
        set: set.with(Attributes::IDMAP).0,
        clear: 0,
        propagation: libc::MS_PRIVATE,
        user_namespace: u64::try_from(namespace.as_fd().as_raw_fd()).unwrap_or(u64::MAX),
    };
    mount_setattr(fd.as_fd(), Reach::Mount, &attributes).step("mount_setattr(IDMAP)").map_err(|e| {
        match e.errno() {
            // EINVAL: the file system does not take part. EPERM: its owners are mapped already.
            libc::EINVAL | libc::EPERM | libc::EOPNOTSUPP => e.of_kind(FenceErrorKind::CannotIdmap),
            _ => e,
        }
    })
}

/// Makes every mount of this namespace private: nothing propagates in or out.
pub(crate) fn make_all_private() -> Result<(), FenceError> {
    rustix::mount::mount_change(c"/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .step("mount(MS_PRIVATE)")
}

/// Clones what a descriptor names as a detached mount.
pub(crate) fn clone_tree(fd: impl AsFd, reach: Reach) -> Result<OwnedFd, FenceError> {
    let mut flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    if reach == Reach::Tree {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    rustix::mount::open_tree(fd, c"", flags).step("open_tree(CLONE)")
}

/// Attaches a detached mount at a path of this process's root, refusing every link in it. The descriptor stays usable for
/// [`set_attributes`].
pub(crate) fn attach(tree: impl AsFd, at: &Path) -> Result<(), FenceError> {
    let place = files::open_strict(at)?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    rustix::mount::move_mount(tree, c"", place, c"", flags).step_on("move_mount", at)
}

/// Makes a new file system as a detached mount.
pub(crate) fn new_file_system(
    kind: &'static str,
    options: &[(&str, &str)],
    attributes: Attributes,
) -> Result<OwnedFd, FenceError> {
    let context = rustix::mount::fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC).step(format!("fsopen({kind})"))?;
    for (key, value) in options {
        rustix::mount::fsconfig_set_string(context.as_fd(), *key, *value)
            .step(format!("fsconfig({kind}, {key}={value})"))?;
    }
    rustix::mount::fsconfig_create(context.as_fd()).step(format!("fsconfig({kind})"))?;
    rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes.for_fsmount())
        .step(format!("fsmount({kind})"))
}

/// Makes an attached mount the root of this mount namespace and lets the old root go.
pub(crate) fn pivot_into(root: BorrowedFd<'_>) -> Result<(), FenceError> {
    rustix::process::fchdir(root).step("fchdir(new root)")?;
    rustix::process::pivot_root(c".", c".").step("pivot_root")?;
    rustix::mount::unmount(c".", UnmountFlags::DETACH).step("umount2(old root)")?;
    rustix::process::chdir(c"/").step_on("chdir", "/")?;
    is_root(root).map_err(|errno| FenceError::new(FenceErrorKind::Refused, "leave the old root", errno))
}

/// Whether this is what paths begin at, and nothing lies above it. A root that was not let go would be found by `..`.
pub(crate) fn is_root(root: impl AsFd) -> Result<(), Errno> {
    let root = rustix::fs::fstat(root)?;
    for path in [c"/", c"/.."] {
        let found = rustix::fs::stat(path)?;
        if (found.st_dev, found.st_ino) != (root.st_dev, root.st_ino) {
            return Err(Errno::PROTO);
        }
    }
    Ok(())
}
