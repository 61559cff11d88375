//! H: what was found to get past a fence that is a place: privileged files that land on the host's disk through
//! an id-mapped mount, and a mount point whose parent is swapped.

use std::fs;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, XattrFlags};
use stockade_core::guarantee::Guarantee::{Privileges, WriteConfinement};

use super::acts::{Denial, Outcome, clean_up, create, worked};
use super::fixture::FixtureFacts;
use super::privilege::enter_namespace;
use super::raw;
use super::table::{Control, Probe};

const SETUID: Mode = Mode::from_raw_mode(0o4755);
const SETGID: Mode = Mode::from_raw_mode(0o2755);

pub(super) const PROBES: &[Probe] = &[
    Probe::new("H01", Privileges, "make a file setuid by chmod", |f| {
        with_file(f, |path| chmod(path, SETUID))
    }),
    Probe::new("H02", Privileges, "make a file setgid by chmod", |f| {
        with_file(f, |path| chmod(path, SETGID))
    }),
    Probe::new("H03", Privileges, "make a file setuid by fchmod", |f| {
        with_file(f, |path| Ok(rustix::fs::fchmod(fs::File::open(path)?, SETUID)?))
    }),
    Probe::new("H04", Privileges, "make a file setuid by fchmodat2", |f| {
        with_file(f, |path| {
            let path = raw::path(path)?;
            let arguments = [raw::signed(libc::AT_FDCWD), path.as_ptr().expose_provenance(), 0o4755, 0];
            // SAFETY: the path ends with NUL and outlives the call.
            unsafe { raw::call(libc::SYS_fchmodat2, arguments) }.map(drop)
        })
    })
    .outside(Control::NotHere("the call came with Linux 6.6")),
    Probe::new("H05", Privileges, "create a setuid file by openat2", |f| {
        without_file(f, |path| {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
            worked(rustix::fs::openat2(CWD, path, flags, SETUID, ResolveFlags::empty()))
        })
    }),
    Probe::new("H06", Privileges, "create a setuid file by creat", |f| {
        without_file(f, |path| {
            let path = raw::path(path)?;
            // SAFETY: the path ends with NUL and outlives the call.
            let made = unsafe { raw::call(libc::SYS_creat, [path.as_ptr().expose_provenance(), 0o4755]) }?;
            // SAFETY: the kernel has just made the descriptor.
            unsafe { raw::own(made) }.map(drop)
        })
    }),
    Probe::new("H07", Privileges, "create a setuid file by mknod", |f| {
        without_file(f, |path| Ok(rustix::fs::mknodat(CWD, path, FileType::RegularFile, SETUID, 0)?))
    }),
    Probe::new("H08", Privileges, "create a setuid file by O_TMPFILE and link it", |f| {
        without_file(f, |path| link_nameless_file(f, path))
    }),
    Probe::new("H09", Privileges, "give a file capabilities by an attribute", |f| {
        with_file(f, set_capabilities)
    })
    .outside(Control::AllowedForRoot),
    Probe::new("H10", WriteConfinement, "swap the folder above the workspace", swap_parent),
    Probe::new("H11", Privileges, "make a file in memory setuid, to run it by its descriptor", |_| {
        let file = rustix::fs::memfd_create("stockade-probe", rustix::fs::MemfdFlags::CLOEXEC)?;
        Ok(rustix::fs::fchmod(file, SETUID)?)
    }),
    Probe::new("H12", Privileges, "give a file capabilities as root of a namespace of its own", |f| {
        with_file(f, |path| {
            enter_namespace()?;
            set_capabilities(path)
        })
    })
    .outside(Control::NotHere("the administrator may have shut user namespaces")),
];

/// Sets cap_setuid and cap_setgid.
fn set_capabilities(path: &Path) -> Outcome {
    // VFS_CAP_REVISION_2 with the effective bit and both permitted (linux/capability.h).
    const SETUID_AND_SETGID: [u8; 20] = [1, 0, 0, 2, 0xC0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    Ok(rustix::fs::setxattr(path, "security.capability", &SETUID_AND_SETGID, XattrFlags::empty())?)
}

fn victim_file(facts: &FixtureFacts) -> PathBuf {
    facts.in_workspace("privileged")
}

/// Makes an ordinary file, does something to it and checks that it took.
fn with_file(facts: &FixtureFacts, act: impl Fn(&Path) -> Outcome) -> Outcome {
    let path = victim_file(facts);
    create(&path)?;
    let outcome = act(&path);
    clean_up(path);
    outcome
}

/// Lets a file be made where there is none. The umask does not take the bits away.
fn without_file(facts: &FixtureFacts, act: impl Fn(&Path) -> Outcome) -> Outcome {
    let path = victim_file(facts);
    clean_up(&path);
    let outcome = act(&path);
    clean_up(path);
    outcome
}

fn chmod(path: &Path, mode: Mode) -> Outcome {
    Ok(rustix::fs::chmod(path, mode)?)
}

fn link_nameless_file(facts: &FixtureFacts, path: &Path) -> Outcome {
    let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
    let file = rustix::fs::open(&facts.workspace, flags, SETUID)?;
    let name = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(rustix::fs::linkat(CWD, name, CWD, path, rustix::fs::AtFlags::SYMLINK_FOLLOW)?)
}

/// If the first folder of the workspace's path that lies in a writable temporary one can be renamed, an export by
/// path would take whatever is put in its place.
fn swap_parent(facts: &FixtureFacts) -> Outcome {
    let writable = ["/dev/shm", "/var/tmp", "/tmp", "/run"];
    let below = writable.iter().find_map(|top| {
        let first = facts.workspace.strip_prefix(top).ok()?.components().next()?;
        Some(Path::new(top).join(first))
    });
    let parent = match below {
        Some(first) if first != facts.workspace => first,
        _ => facts.workspace.parent().ok_or_else(|| Denial::new(0))?.to_owned(),
    };
    let mut aside = parent.clone().into_os_string();
    aside.push("-aside");
    fs::rename(&parent, &aside)?;
    Ok(fs::rename(aside, parent)?)
}
