//! The attempts, inside. A forked child makes them, without exec, under exactly what the agent will be under.

use std::ffi::CStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::{Path, PathBuf};

use rustix::mount::MountFlags;
use rustix::process::Pid;
use rustix::thread::UnshareFlags;
use stockade_core::survey::Rung;

use crate::canary::{Canary, CanaryPlan, ProcessMark};
use crate::spec::{INNER_HOME, INNER_ID};
use crate::sys::process;

/// A file made and removed again.
const SCRATCH: &str = ".stockade-canary";
/// Version 2 of a file capability (`struct vfs_cap_data`): CAP_SETUID, effective.
const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
/// Asks a random device for its entropy (`RNDGETENTCNT`): harmless, and an ioctl on a device that Landlock denies.
const ASK_ENTROPY: libc::Ioctl = 0x8004_5200;

/// Makes every attempt that applies and writes (name, error number) pairs to standard output.
pub(crate) fn run_inside(plan: &CanaryPlan) -> ! {
    let home = Scratch::make(Path::new(INNER_HOME), "home");
    let workspace = match &plan.workspace {
        Some(workspace) => Scratch::make(&workspace.path, "workspace"),
        None => Err(io::ErrorKind::NotFound.into()),
    };
    let results: Vec<(&str, i32)> = Canary::ALL
        .into_iter()
        .filter(|canary| canary.applies(plan))
        .map(|canary| (canary.name(), number(attempt(canary, plan, &home, &workspace))))
        .collect();
    drop((home, workspace));
    let written = serde_json::to_vec(&results)
        .map_err(io::Error::from)
        .and_then(|text| io::stdout().lock().write_all(&text).and_then(|()| io::stdout().flush()));
    process::exit_now(i32::from(written.is_err()))
}

/// 0: it worked.
fn number(result: io::Result<()>) -> i32 {
    result.err().map_or(0, |e| e.raw_os_error().unwrap_or(libc::EIO))
}

fn attempt(
    canary: Canary,
    plan: &CanaryPlan,
    home: &io::Result<Scratch>,
    workspace: &io::Result<Scratch>,
) -> io::Result<()> {
    match canary {
        Canary::SecretFile => std::fs::read(&plan.secret).map(drop),
        Canary::ShadowFile => std::fs::read("/etc/shadow").map(drop),
        Canary::WriteOutside => std::fs::write(&plan.outside, "canary"),
        Canary::TcpDecoy => connect_tcp(plan.tcp_port.unwrap_or_default()),
        Canary::AbstractDecoy => connect_abstract(plan.abstract_name.as_deref().unwrap_or_default()),
        Canary::ProcessDecoy => see_process(plan.process),
        Canary::ProcessSecrets => open_process(plan.process),
        Canary::KernelSetting | Canary::NestedSetting => {
            open_for_writing(Path::new("/proc/sys/kernel/core_pattern"))
        }
        Canary::Privileges => hold_privileges(plan.rung),
        Canary::SetuidInWorkspace => with(workspace, make_setuid),
        Canary::SetuidInHome => with(home, make_setuid),
        Canary::FileCapability | Canary::NestedCapability => with(home, give_capability),
        Canary::WorkspaceWrite => with(workspace, write_a_word),
        Canary::ProtectedWrite => write_any(&plan.protected),
        Canary::HomeWrite => with(home, write_a_word),
        Canary::TempWrite => with(&Scratch::make(Path::new("/tmp"), "temp"), write_a_word),
        Canary::StdinReopen => open_for_writing(Path::new("/proc/self/fd/0")),
        Canary::SecondLock => ask_a_device(),
        Canary::Mount => {
            Ok(rustix::mount::mount(c"none", c"/tmp", c"tmpfs", MountFlags::empty(), None::<&CStr>)?)
        }
        Canary::UserNamespace => {
            // What is mounted in there may cover the scratch files: their names go while they can be reached.
            for scratch in [home, workspace].into_iter().flatten() {
                scratch.remove();
            }
            nest()
        }
        Canary::NestedRemount => Ok(rustix::mount::mount_remount(
            c"/",
            MountFlags::BIND | MountFlags::NOSUID | MountFlags::NODEV,
            c"",
        )?),
    }
}

/// Becomes root of a new user namespace, as a sandbox that starts here would, and mounts in it.
fn nest() -> io::Result<()> {
    // The id maps belong to whoever may dump the process, and PID 1 has left that off.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::Dumpable)?;
    // SAFETY: new namespaces share nothing with the rest of this process, which has one thread and ends after the canaries.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNS) }?;
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("0 {INNER_ID} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("0 {INNER_ID} 1"))?;
    Ok(rustix::mount::mount(c"none", c"/tmp", c"tmpfs", MountFlags::empty(), None::<&CStr>)?)
}

pub(super) fn connect_tcp(port: u16) -> io::Result<()> {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map(drop)
}

pub(super) fn connect_abstract(name: &str) -> io::Result<()> {
    UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?).map(drop)
}

/// Sees the process, or can signal one with its id that is not another one.
pub(super) fn see_process(mark: ProcessMark) -> io::Result<()> {
    let started = ProcessMark::started(mark.pid);
    if started == Some(mark.started) {
        return Ok(());
    }
    let signalled =
        Pid::from_raw(mark.pid).ok_or(rustix::io::Errno::SRCH).and_then(rustix::process::test_kill_process);
    match (signalled, started) {
        // Somebody inside has the same id.
        (_, Some(_)) => Err(io::Error::from_raw_os_error(libc::ESRCH)),
        (other, None) => Ok(other?),
    }
}

/// Opens anything of the process that tells what it holds.
pub(super) fn open_process(mark: ProcessMark) -> io::Result<()> {
    let mut denied = io::Error::from_raw_os_error(libc::ENOENT);
    for what in ["environ", "mem", "maps", "root", "cwd", "fd/0"] {
        match File::open(format!("/proc/{}/{what}", mark.pid)) {
            Ok(_) => return Ok(()),
            Err(e) => denied = e,
        }
    }
    Err(denied)
}

fn open_for_writing(path: &Path) -> io::Result<()> {
    OpenOptions::new().write(true).open(path).map(drop)
}

/// Works while anything is left that could give rights.
fn hold_privileges(rung: Rung) -> io::Result<()> {
    const NONE: &str = "0000000000000000";
    let status = std::fs::read_to_string("/proc/self/status")?;
    let is = |field: &str, value: &str| {
        status.lines().any(|line| line.strip_prefix(field).is_some_and(|rest| rest.trim() == value))
    };
    // Through bubblewrap a security module may keep PID 1 from emptying the set of what an exec could give; with
    // `no_new_privs` none does.
    let bounded = is("CapBnd:", NONE) || rung == Rung::Bs;
    let none_left = bounded && ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"].iter().all(|set| is(set, NONE));
    if none_left && is("NoNewPrivs:", "1") && is("Seccomp:", "2") {
        return Err(io::Error::from_raw_os_error(libc::EPERM));
    }
    Ok(())
}

/// A file that was not there before, and is removed again.
struct Scratch {
    path: PathBuf,
    file: File,
}

impl Scratch {
    fn make(folder: &Path, purpose: &str) -> io::Result<Self> {
        let path = folder.join(format!("{SCRATCH}-{purpose}-{}", std::process::id()));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        Ok(Self { path, file })
    }

    /// Takes its name away; the open file stays. One that cannot be removed is found by whoever looks at the workspace's
    /// changes.
    fn remove(&self) {
        let _gone = std::fs::remove_file(&self.path);
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Does something with a scratch file; where none could be made, that is the answer.
fn with(scratch: &io::Result<Scratch>, attempt: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
    match scratch {
        Ok(scratch) => attempt(&scratch.file),
        Err(e) => Err(e.raw_os_error().map_or_else(|| e.kind().into(), io::Error::from_raw_os_error)),
    }
}

fn write_a_word(mut file: &File) -> io::Result<()> {
    file.write_all(b"canary\n")
}

fn make_setuid(file: &File) -> io::Result<()> {
    file.set_permissions(std::fs::Permissions::from_mode(0o4755))
}

fn give_capability(file: &File) -> io::Result<()> {
    Ok(rustix::fs::fsetxattr(file, c"security.capability", &CAPABILITY, rustix::fs::XattrFlags::empty())?)
}

/// Works if any of them can be written.
fn write_any(paths: &[PathBuf]) -> io::Result<()> {
    let mut denied = io::Error::from_raw_os_error(libc::EROFS);
    for path in paths {
        let tried =
            if path.is_dir() { Scratch::make(path, "protected").map(drop) } else { open_for_writing(path) };
        match tried {
            Ok(()) => return Ok(()),
            Err(e) => denied = e,
        }
    }
    Err(denied)
}

pub(super) fn ask_a_device() -> io::Result<()> {
    let device = File::open("/dev/urandom")?;
    let mut entropy: libc::c_int = 0;
    // SAFETY: the device is open and the request writes one `int`.
    let raw = unsafe { libc::ioctl(device.as_raw_fd(), ASK_ENTROPY, &raw mut entropy) };
    if raw < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
