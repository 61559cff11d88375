//! P: gaining privileges, making namespaces and mounts, talking to a terminal.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::mount::{MountFlags, UnmountFlags};
use rustix::pty::OpenptFlags;
use rustix::thread::UnshareFlags;
use stockade_core::guarantee::Guarantee::{NoNesting, Privileges, Secrets};
use stockade_core::survey::Rung;

use super::acts::{Denial, Outcome, append, open_for_writing, read_secret, worked};
use super::fixture::FixtureFacts;
use super::raw;
use super::table::{Control, Exception, Expected, Probe};

const ROOT_ONLY: Control = Control::AllowedForRoot;
const LOCKED_AROUND: Control = Control::NotHere("a sandbox around Stockade may have taken it away already");
const NEEDS_USER_NAMESPACES: Control = Control::NotHere("the administrator may have shut user namespaces");

/// What can be done as root of such a namespace is tried by P05 to P08, P25 and H12.
const NESTS: &[Exception] = &[Exception::on(
    &[Rung::NsNest],
    Expected::Price("so a sandbox inside begins; it gives nothing outside"),
)];

pub(super) const PROBES: &[Probe] = &[
    Probe::new("P01", Privileges, "gain privileges by exec (no_new_privs is missing)", |_| {
        if rustix::thread::no_new_privs()? { Err(Denial::new(libc::EPERM)) } else { Ok(()) }
    })
    .outside(LOCKED_AROUND),
    Probe::new("P02", Privileges, "have a capability, in the bounding set too", any_capability)
        .outside(LOCKED_AROUND),
    Probe::new("P03", NoNesting, "make a user namespace by unshare", |_| unshare(UnshareFlags::NEWUSER))
        .outside(NEEDS_USER_NAMESPACES)
        .except(NESTS),
    Probe::new("P04", NoNesting, "make a user namespace by clone3", |_| make_namespace_by_clone3())
        .outside(NEEDS_USER_NAMESPACES),
    Probe::new("P05", NoNesting, "mount a tmpfs in a namespace of its own", |f| {
        enter_namespace()?;
        mount_over_home(f)
    })
    .outside(NEEDS_USER_NAMESPACES),
    Probe::new("P06", NoNesting, "make / writable in a namespace of its own and write ~", |f| {
        enter_namespace()?;
        rustix::mount::mount_remount("/", MountFlags::BIND, "")?;
        append(f.at("home/.bashrc"))
    })
    .outside(Control::NotHere("outside / cannot be remounted that way either")),
    Probe::new("P07", NoNesting, "take a cover off in a namespace of its own", |f| {
        enter_namespace()?;
        rustix::mount::unmount(f.at("home/.ssh"), UnmountFlags::DETACH)?;
        read_secret(f.at("home/.ssh/id_ed25519"))
    })
    .outside(Control::NotHere("outside nothing is covered")),
    Probe::new("P08", NoNesting, "bind / elsewhere in a namespace of its own", |f| {
        enter_namespace()?;
        Ok(rustix::mount::mount_bind("/", f.at("home"))?)
    })
    .outside(Control::NotHere("outside the mounts of / are locked together")),
    Probe::new("P09", NoNesting, "mount a tmpfs", |f| {
        mount_over_home(f)?;
        Ok(rustix::mount::unmount(f.at("home"), UnmountFlags::DETACH)?)
    })
    .outside(ROOT_ONLY),
    Probe::new("P10", NoNesting, "change the root", |_| Ok(rustix::process::chroot("/")?)).outside(ROOT_ONLY),
    Probe::new("P11", NoNesting, "enter the victim's mount namespace", |f| {
        let namespace = File::open(format!("/proc/{}/ns/mnt", f.victim))?;
        // SAFETY: numbers only; this process has one thread and ends after the probe.
        unsafe { raw::call(libc::SYS_setns, [raw::signed(namespace.as_raw_fd()), 0]) }.map(drop)
    })
    .outside(ROOT_ONLY),
    Probe::new("P12", Privileges, "type into its terminal (TIOCSTI)", |_| type_into_terminal(TIOCSTI))
        .outside(Control::NotHere("newer kernels refuse it by a setting")),
    Probe::new("P13", Privileges, "type into its terminal, by a command with high bits", |_| {
        type_into_terminal(TIOCSTI | 1 << 32)
    })
    .outside(Control::NotHere("newer kernels refuse it by a setting")),
    Probe::new("P14", Privileges, "open the controlling terminal", |_| {
        worked(OpenOptions::new().read(true).write(true).open("/dev/tty"))
    })
    .outside(Control::NotHere("whoever runs this may have no terminal")),
    Probe::new("P15", Privileges, "call bpf", |_| bpf())
        .outside(Control::NotHere("the administrator may have shut bpf for users")),
    Probe::new("P16", Privileges, "open a performance counter", |_| perf_event())
        .outside(Control::NotHere("the machine may have no counters")),
    Probe::new("P17", Privileges, "handle page faults (userfaultfd)", |_| {
        /// `UFFD_USER_MODE_ONLY` of linux/userfaultfd.h.
        const USER_MODE_ONLY: usize = 1;
        // SAFETY: numbers only.
        let descriptor = unsafe { raw::call(libc::SYS_userfaultfd, [USER_MODE_ONLY]) }?;
        // SAFETY: the kernel has just made the descriptor.
        unsafe { raw::own(descriptor) }.map(drop)
    })
    .outside(Control::NotHere("the kernel may have no userfaultfd")),
    Probe::new("P18", Secrets, "add a key", |_| {
        /// `KEY_SPEC_PROCESS_KEYRING` of linux/keyctl.h.
        const PROCESS_KEYRING: i32 = -2;
        let (kind, name, payload) = (c"user", c"stockade-probe", b"x");
        let arguments = [
            kind.as_ptr().expose_provenance(),
            name.as_ptr().expose_provenance(),
            payload.as_ptr().expose_provenance(),
            payload.len(),
            raw::signed(PROCESS_KEYRING),
        ];
        // SAFETY: the strings end with NUL and the payload is readable for its length.
        unsafe { raw::call(libc::SYS_add_key, arguments) }.map(drop)
    }),
    Probe::new("P19", Privileges, "set the host name", |_| {
        let name = rustix::system::uname();
        Ok(rustix::system::sethostname(name.nodename().to_bytes())?)
    })
    .outside(ROOT_ONLY),
    Probe::new("P21", NoNesting, "prepare a file system by the newer interface (fsopen)", |_| {
        worked(rustix::mount::fsopen("tmpfs", rustix::mount::FsOpenFlags::FSOPEN_CLOEXEC))
    })
    .outside(ROOT_ONLY),
    Probe::new("P22", NoNesting, "exchange the root by pivot_root", |_| {
        Ok(rustix::process::pivot_root(".", ".")?)
    })
    .outside(Control::NotHere("outside the workspace is no mount")),
    Probe::new("P23", NoNesting, "make a user namespace by clone", |_| make_namespace_by_clone())
        .outside(NEEDS_USER_NAMESPACES)
        .except(NESTS),
    Probe::new("P24", NoNesting, "make a network of its own", |_| unshare(UnshareFlags::NEWNET))
        .outside(ROOT_ONLY),
    Probe::new("P25", Privileges, "open core_pattern for writing as root of a namespace of its own", |_| {
        enter_namespace()?;
        open_for_writing("/proc/sys/kernel/core_pattern")
    })
    .outside(ROOT_ONLY),
];

fn any_capability(_facts: &FixtureFacts) -> Outcome {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let sets = status.lines().filter(|line| line.starts_with("Cap"));
    let mut seen = 0;
    for set in sets {
        seen += 1;
        let hex = set.split_whitespace().nth(1).unwrap_or_default();
        if u64::from_str_radix(hex, 16).map_err(|_| Denial::new(0))? != 0 {
            return Ok(());
        }
    }
    // CapInh, CapPrm, CapEff, CapBnd and CapAmb: a status without them proves nothing.
    Err(Denial::new(if seen == 5 { libc::EPERM } else { 0 }))
}

fn unshare(flags: UnshareFlags) -> Outcome {
    // SAFETY: this process has one thread, shares no descriptor table and ends after the probe.
    Ok(unsafe { rustix::thread::unshare_unsafe(flags) }?)
}

/// A user namespace in which this process is root, with mounts of its own.
pub(super) fn enter_namespace() -> Outcome {
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNS)?;
    let write = |file: &str, text: String| -> Outcome {
        let path = format!("/proc/self/{file}");
        Ok(OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes())?)
    };
    write("setgroups", "deny".to_owned())?;
    write("uid_map", format!("0 {uid} 1"))?;
    write("gid_map", format!("0 {gid} 1"))
}

fn mount_over_home(facts: &FixtureFacts) -> Outcome {
    Ok(rustix::mount::mount("none", facts.at("home"), "tmpfs", MountFlags::empty(), None)?)
}

fn make_namespace_by_clone3() -> Outcome {
    /// `struct clone_args` of linux/sched.h, first version: 64 bytes.
    #[repr(C)]
    #[derive(Default)]
    struct CloneArguments {
        flags: u64,
        pidfd: u64,
        child_tid: u64,
        parent_tid: u64,
        exit_signal: u64,
        stack: u64,
        stack_size: u64,
        tls: u64,
    }
    let arguments = CloneArguments {
        flags: u64::from(libc::CLONE_NEWUSER.cast_unsigned()),
        exit_signal: u64::from(libc::SIGCHLD.cast_unsigned()),
        ..CloneArguments::default()
    };
    let size = size_of::<CloneArguments>();
    // SAFETY: the structure is complete; without CLONE_VM and with a null stack this is a fork.
    let child = unsafe { raw::call(libc::SYS_clone3, [raw::address(&arguments), size]) }?;
    if child == 0 {
        crate::sys::process::exit_now(0);
    }
    Ok(())
}

/// clone(2), whose flags a filter can see.
fn make_namespace_by_clone() -> Outcome {
    let flags = raw::signed(libc::CLONE_NEWUSER | libc::SIGCHLD);
    // SAFETY: without CLONE_VM and with a null stack this is a fork.
    let child = unsafe { raw::call(libc::SYS_clone, [flags, 0, 0, 0, 0]) }?;
    if child == 0 {
        crate::sys::process::exit_now(0);
    }
    Ok(())
}

/// `TIOCSTI` of asm-generic/ioctls.h.
const TIOCSTI: usize = 0x5412;

/// Makes a terminal, takes it for its own and types a letter into it.
fn type_into_terminal(command: usize) -> Outcome {
    // Open until the probe ends: closing it would hang up on this process before it has answered.
    let master = ManuallyDrop::new(rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?);
    rustix::pty::grantpt(&*master)?;
    rustix::pty::unlockpt(&*master)?;
    let name = rustix::pty::ptsname(&*master, Vec::new())?;
    become_session_leader()?;
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY;
    let terminal: OwnedFd = rustix::fs::open(name, flags, rustix::fs::Mode::empty())?;
    rustix::process::ioctl_tiocsctty(&terminal)?;
    let letter = b'x';
    let arguments = [raw::signed(terminal.as_raw_fd()), command, raw::address(&letter)];
    // SAFETY: TIOCSTI reads one byte.
    unsafe { raw::call(libc::SYS_ioctl, arguments) }.map(drop)
}

/// A probe's process leads its group and so cannot make a session: it goes back into its parent's group first.
fn become_session_leader() -> Outcome {
    let group = rustix::process::getpgid(rustix::process::getppid())?;
    rustix::process::setpgid(None, Some(group))?;
    Ok(rustix::process::setsid().map(drop)?)
}

fn bpf() -> Outcome {
    let attributes = [0_u64; 16];
    // SAFETY: the attributes are readable for the length that is passed; command 0 with zeroes makes nothing.
    match unsafe { raw::call(libc::SYS_bpf, [0, raw::address(&attributes), 48]) } {
        // Refused for its arguments: the call itself is open.
        Err(denial) if [libc::EINVAL, libc::E2BIG].contains(&denial.errno) => Ok(()),
        other => other.map(drop),
    }
}

fn perf_event() -> Outcome {
    // `struct perf_event_attr`: type 1 (software), size 112.
    let mut attributes = [0_u64; 16];
    if let Some(first) = attributes.first_mut() {
        *first = 112 << 32 | 1;
    }
    let arguments = [raw::address(&attributes), 0, raw::signed(-1), raw::signed(-1), 0];
    // SAFETY: the attributes are readable for the size they state.
    let counter = unsafe { raw::call(libc::SYS_perf_event_open, arguments) }?;
    // SAFETY: the kernel has just made the descriptor.
    unsafe { raw::own(counter) }.map(drop)
}
