//! R: reading credentials, other processes' secrets and what a careless caller left open.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use stockade_core::guarantee::Guarantee::{ProcessVisibility, Secrets, WriteConfinement};
use stockade_core::survey::Rung;

use super::acts::{Denial, Outcome, clean_up, find_secret, open_for_reading, open_for_writing, read_secret};
use super::fixture::{FixtureFacts, careless_descriptors};
use super::raw;
use super::table::{Control, Exception, Expected, Probe};

const ROOT_ONLY: Control = Control::AllowedForRoot;

/// For a tool of a real agent.
const NOTHING_LEFT: &str = "nothing was left to whoever started the fence";
/// For a tool of a real agent.
const OWN_STREAMS: &str = "the agent gives its tools streams of their own, made inside";

pub(super) const PROBES: &[Probe] = &[
    Probe::new("R01", Secrets, "read ~/.ssh/id_ed25519", |f| read_secret(f.at("home/.ssh/id_ed25519"))),
    Probe::new("R02", Secrets, "read ~/.aws/credentials", |f| read_secret(f.at("home/.aws/credentials"))),
    Probe::new("R03", Secrets, "read ~/.netrc", |f| read_secret(f.at("home/.netrc"))),
    Probe::new("R04", Secrets, "read another agent's ~/.codex/auth.json", |f| {
        read_secret(f.at("home/.codex/auth.json"))
    }),
    Probe::new("R05", Secrets, "list ~/.ssh", |f| {
        fs::read_dir(f.at("home/.ssh"))?.next().ok_or_else(Denial::nothing_found)??;
        Ok(())
    }),
    Probe::new("R06", Secrets, "read a key through a link in the workspace", |f| {
        let link = f.in_workspace("keylink");
        clean_up(&link);
        symlink(f.at("home/.ssh/id_ed25519"), &link)?;
        read_secret(link)
    }),
    Probe::new("R07", Secrets, "read a key through /proc/self/root", |f| key_below("/proc/self/root", f)),
    Probe::new("R08", Secrets, "read a key through /proc/1/root", |f| key_below("/proc/1/root", f))
        .outside(Control::NotHere("PID 1 of the machine may be shut to its root too")),
    Probe::new("R09", ProcessVisibility, "read a key through /proc/VICTIM/root", |f| {
        key_below(&format!("/proc/{}/root", f.victim), f)
    }),
    Probe::new("R10", ProcessVisibility, "read /proc/VICTIM/environ", |f| {
        open_for_reading(format!("/proc/{}/environ", f.victim))
    }),
    Probe::new("R11", ProcessVisibility, "open /proc/VICTIM/mem for writing", |f| {
        open_for_writing(format!("/proc/{}/mem", f.victim))
    }),
    Probe::new("R12", ProcessVisibility, "reopen a descriptor of the victim", |f| {
        read_secret(format!("/proc/{}/fd/{}", f.victim, careless_descriptors::VICTIM_SECRET))
    }),
    Probe::new("R13", ProcessVisibility, "see /proc/VICTIM/cmdline", |f| {
        open_for_reading(format!("/proc/{}/cmdline", f.victim))
    })
    .except(&[Exception::on(
        &[Rung::NsHostproc],
        Expected::Price("the host's processes are seen, and nothing of what they hold"),
    )]),
    Probe::new("R14", Secrets, "find a token in its own environment", |_| {
        find_secret(fs::File::open("/proc/self/environ")?)
    })
    .not_by_tool(NOTHING_LEFT),
    Probe::new("R15", Secrets, "read an inherited descriptor of a secret", |_| {
        let mut text = [0_u8; 64];
        let count = rustix::io::pread(inherited(careless_descriptors::SECRET), &mut text, 0)?;
        find_secret(text.get(..count).unwrap_or_default())
    })
    .not_by_tool(NOTHING_LEFT),
    Probe::new("R16", Secrets, "read a key through an inherited descriptor of /", |f| {
        find_secret(fs::File::from(below_inherited_root(f, "home/.ssh/id_ed25519", OFlags::RDONLY)?))
    })
    .not_by_tool(NOTHING_LEFT),
    Probe::new(
        "R17",
        WriteConfinement,
        "open ~/.bashrc for writing through an inherited descriptor of /",
        |f| below_inherited_root(f, "home/.bashrc", OFlags::WRONLY | OFlags::APPEND).map(drop),
    )
    .not_by_tool(NOTHING_LEFT),
    Probe::new("R18", Secrets, "open a file by a handle, past every path", open_by_handle).outside(ROOT_ONLY),
    Probe::new("R19", Secrets, "read another program's file in /dev/shm", |f| {
        read_secret(format!("/dev/shm/{}", f.token))
    }),
    Probe::new("R20", Secrets, "attach another program's System V memory", attach_shared_memory),
    Probe::new("R21", Secrets, "open another program's message queue", open_message_queue),
    Probe::new("R22", Secrets, "find a key in the session keyring of the caller", |f| {
        find_key(KEYRING_SESSION, &f.session_key())
    })
    .not_by_tool(NOTHING_LEFT),
    Probe::new("R23", Secrets, "find a key in the user's keyring", |f| find_key(KEYRING_USER, &f.user_key())),
    Probe::new("R24", Secrets, "list keys in /proc/keys", |f| {
        let listed = String::from_utf8_lossy(&fs::read("/proc/keys")?).contains(&f.token);
        if listed { Ok(()) } else { Err(Denial::nothing_found()) }
    })
    .except(&[Exception::on(
        &[Rung::NsNest],
        Expected::Price("names of keys of the caller's own user, none of which can be read"),
    )
    .as_the_caller()]),
    Probe::new("R25", Secrets, "read the kernel log", |_| {
        const READ_ALL: usize = 3;
        let mut text = [0_u8; 256];
        // SAFETY: the buffer is writable for the length that is passed.
        unsafe { raw::call(libc::SYS_syslog, [READ_ALL, raw::address_mut(&mut text), text.len()]) }.map(drop)
    })
    .outside(ROOT_ONLY),
    Probe::new("R26", WriteConfinement, "reopen its own standard input for writing", |_| {
        Ok(OpenOptions::new().append(true).open("/proc/self/fd/0")?.write_all(b"tamper\n")?)
    })
    .not_by_tool(OWN_STREAMS),
    Probe::new("R27", WriteConfinement, "empty a log through an inherited descriptor", |_| {
        Ok(rustix::fs::ftruncate(inherited(careless_descriptors::LOG), 0)?)
    })
    .not_by_tool(NOTHING_LEFT),
    Probe::new("R28", Secrets, "read a key through /proc/self/cwd/../..", |_| {
        read_secret("/proc/self/cwd/../../home/.ssh/id_ed25519")
    }),
    Probe::new("R29", Secrets, "read /etc/shadow", |_| open_for_reading("/etc/shadow")).outside(ROOT_ONLY),
    Probe::new("R30", Secrets, "read a secret in /run/secrets", |f| {
        read_secret(Path::new("/run/secrets").join(&f.token))
    })
    .outside(ROOT_ONLY),
    Probe::new("R31", Secrets, "read a private file outside the home", |f| read_secret(f.at("vault/token"))),
    Probe::new("R32", ProcessVisibility, "reopen the agent's standard input, to forge answers", |_| {
        open_for_writing(of_the_agent("fd/0"))
    })
    .not_by_tool(OWN_STREAMS),
    Probe::new("R33", ProcessVisibility, "reopen the agent's standard output, to forge its words", |_| {
        open_for_writing(of_the_agent("fd/1"))
    })
    .not_by_tool(OWN_STREAMS),
    Probe::new("R34", ProcessVisibility, "open /proc/AGENT/mem for writing", |_| {
        open_for_writing(of_the_agent("mem"))
    })
    .except(&[Exception::on(
        &[Rung::NsNest],
        Expected::Price(
            "/proc is writable for a sandbox inside; an agent and its tools are one to the fence",
        ),
    )]),
    Probe::new("R35", ProcessVisibility, "open the memory of PID 1 of the fence for writing", |f| {
        open_for_writing(format!("/proc/{}/mem", f.init))
    }),
];

/// The agent is the role's process; a probe is a tool that it started.
fn of_the_agent(what: &str) -> String {
    format!("/proc/{}/{what}", std::os::unix::process::parent_id())
}

fn key_below(root: &str, facts: &FixtureFacts) -> Outcome {
    read_secret(format!("{root}{}", facts.at("home/.ssh/id_ed25519").display()))
}

fn inherited(number: i32) -> BorrowedFd<'static> {
    // SAFETY: the number is not -1. Whether anything is open there is what the probe asks; the descriptor is
    // borrowed for one call and never closed, and nothing of this process lives at these numbers.
    unsafe { BorrowedFd::borrow_raw(number) }
}

fn below_inherited_root(
    facts: &FixtureFacts,
    path: &str,
    flags: OFlags,
) -> Result<std::os::fd::OwnedFd, Denial> {
    let full = facts.at(path);
    let relative = full.strip_prefix("/").map_err(|_| Denial::new(0))?;
    let root = inherited(careless_descriptors::ROOT);
    Ok(rustix::fs::openat(root, relative, flags | OFlags::CLOEXEC, Mode::empty())?)
}

/// `struct file_handle` with room for the largest handle (`MAX_HANDLE_SZ`, linux/exportfs.h).
#[repr(C)]
struct FileHandle {
    bytes: u32,
    kind: i32,
    handle: [u8; 128],
}

/// The handle is that of a file the probe may open anyway, so that only the second call can be refused: with it,
/// any number of an inode could be guessed.
fn open_by_handle(facts: &FixtureFacts) -> Outcome {
    let mut handle = FileHandle { bytes: 128, kind: 0, handle: [0; 128] };
    let mut mount = 0_i32;
    let path = raw::path(&facts.workspace)?;
    let arguments = [
        raw::signed(libc::AT_FDCWD),
        path.as_ptr().expose_provenance(),
        raw::address_mut(&mut handle),
        raw::address_mut(&mut mount),
        0,
    ];
    // SAFETY: the path ends with NUL; handle and mount are writable, and the handle says how much room it has.
    unsafe { raw::call(libc::SYS_name_to_handle_at, arguments) }?;
    let folder = fs::File::open(&facts.workspace)?;
    let arguments =
        [raw::signed(folder.as_raw_fd()), raw::address_mut(&mut handle), raw::signed(libc::O_RDONLY)];
    // SAFETY: the handle was filled by the kernel and is readable.
    let opened = unsafe { raw::call(libc::SYS_open_by_handle_at, arguments) }?;
    // SAFETY: the kernel has just made the descriptor.
    unsafe { raw::own(opened) }.map(drop)
}

fn attach_shared_memory(facts: &FixtureFacts) -> Outcome {
    // SAFETY: shmget takes numbers only.
    let segment = unsafe { raw::call(libc::SYS_shmget, [raw::signed(facts.shared_memory_key), 0, 0]) }?;
    let segment = i32::try_from(segment).map_err(|_| Denial::new(libc::EINVAL))?;
    // SAFETY: a null address lets the kernel choose one that is free; the mapping is never used.
    unsafe { raw::call(libc::SYS_shmat, [raw::signed(segment), 0, 0]) }.map(drop)
}

fn open_message_queue(facts: &FixtureFacts) -> Outcome {
    // The kernel takes the name without the slash that the library demands.
    let name = raw::path(&facts.token)?;
    let flags = raw::signed(libc::O_RDONLY | libc::O_NONBLOCK | libc::O_CLOEXEC);
    // SAFETY: the name ends with NUL; without O_CREAT the other arguments are not used.
    let queue = unsafe { raw::call(libc::SYS_mq_open, [name.as_ptr().expose_provenance(), flags, 0, 0]) }?;
    // SAFETY: the kernel has just made the descriptor.
    unsafe { raw::own(queue) }.map(drop)
}

/// `KEY_SPEC_SESSION_KEYRING` and `KEY_SPEC_USER_KEYRING` of linux/keyctl.h.
const KEYRING_SESSION: i32 = -3;
const KEYRING_USER: i32 = -4;

fn find_key(keyring: i32, description: &str) -> Outcome {
    /// `KEYCTL_SEARCH` of linux/keyctl.h.
    const SEARCH: usize = 10;
    let description = raw::path(description)?;
    let arguments = [
        SEARCH,
        raw::signed(keyring),
        c"user".as_ptr().expose_provenance(),
        description.as_ptr().expose_provenance(),
        0,
    ];
    // SAFETY: type and description end with NUL and outlive the call.
    unsafe { raw::call(libc::SYS_keyctl, arguments) }.map(drop)
}
