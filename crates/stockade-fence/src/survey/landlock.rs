//! Landlock: the ABI, whether a ruleset really bites, and how many domains are already in force.
//!
//! Raw system calls, because the children must not allocate and the crate's builder does.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Pid;
use stockade_core::survey::LandlockFacts;

use crate::sys::process;

use super::refused;
use super::steps::Step;
use super::trial::{self, Ending, Fault, Reporter, expect_error};

/// The first ABI whose scopes shut signals and abstract sockets (Linux 6.12); older ones are not a second lock.
pub(super) const NEEDED_ABI: i32 = 6;

/// Domains that can be stacked (`LANDLOCK_MAX_NUM_LAYERS`, security/landlock/limits.h).
const MOST_LAYERS: u8 = 16;

/// `LANDLOCK_CREATE_RULESET_VERSION` of linux/landlock.h.
const VERSION_FLAG: u32 = 1;
/// `LANDLOCK_ACCESS_FS_WRITE_FILE`.
const WRITE_FILE: u64 = 1 << 1;
/// `LANDLOCK_ACCESS_FS_MAKE_CHAR`, which no trial ever does.
const MAKE_CHAR: u64 = 1 << 6;
/// `LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | LANDLOCK_SCOPE_SIGNAL`.
const SCOPES: u64 = 0b11;

/// `struct landlock_ruleset_attr` as of ABI 6; only the first field where nothing else is asked.
#[repr(C)]
struct RulesetAttributes {
    handled_access_fs: u64,
    handled_access_net: u64,
    scoped: u64,
}

/// Asks the kernel for its ABI only.
pub(super) fn version_only() -> LandlockFacts {
    match version() {
        Ok(abi) => LandlockFacts { abi: Some(abi), refused: None, layers_in_use: 0 },
        Err(Fault(errno)) => {
            let refused = Some(refused(Step::LandlockCreate.name(), errno));
            LandlockFacts { abi: None, refused, layers_in_use: 0 }
        }
    }
}

/// Measures Landlock: whether a ruleset bites, and how many domains are in force.
pub(super) fn measure() -> LandlockFacts {
    let asked = version_only();
    let Some(abi) = asked.abi else { return asked };
    let parent = rustix::process::getpid();
    let enforces = trial::in_child(|reporter| bite(reporter, abi, c"/dev/null", parent)).ending.refusal();
    LandlockFacts { abi: Some(abi), refused: enforces, layers_in_use: layers_in_use() }
}

/// Puts this (child) process into a domain and sees it deny a write, and from ABI 6 on a signal.
///
/// `witness` is a file that can be written before; `outsider` is a process of the same user outside the domain.
fn bite(reporter: &Reporter, abi: i32, witness: &CStr, outsider: Pid) -> Result<(), Fault> {
    bite_files(reporter, abi, witness)?;
    if abi < NEEDED_ABI {
        return Ok(());
    }
    reporter.step(Step::LandlockDeniesSignal, || {
        expect_error(&rustix::process::test_kill_process(outsider), Errno::PERM)
    })
}

/// Puts this (child) process into a domain and sees it deny a write to `witness`, which can be written before.
pub(super) fn bite_files(reporter: &Reporter, abi: i32, witness: &CStr) -> Result<(), Fault> {
    reporter.step(Step::WitnessFile, || open_for_writing(witness))?;
    reporter.step(Step::NoNewPrivs, || rustix::thread::set_no_new_privs(true))?;
    let scoped = if abi >= NEEDED_ABI { SCOPES } else { 0 };
    let ruleset = reporter.step(Step::LandlockCreate, || create(WRITE_FILE, scoped))?;
    reporter.step(Step::LandlockRestrict, || restrict(&ruleset))?;
    reporter.step(Step::LandlockDeniesWrite, || expect_error(&open_for_writing(witness), Errno::ACCESS))
}

/// Whether this process is in a domain.
pub(super) fn is_in_domain() -> bool {
    layers_in_use() > 0
}

/// How many domains this process is in: what is missing to the most that can be stacked.
fn layers_in_use() -> u8 {
    let report = trial::in_child(|reporter| {
        rustix::thread::set_no_new_privs(true)?;
        for _ in 0..MOST_LAYERS {
            let ruleset = create(MAKE_CHAR, 0)?;
            reporter.step(Step::LandlockRestrict, || restrict(&ruleset))?;
        }
        Ok(())
    });
    let begun = u8::try_from(report.begun.len()).unwrap_or(MOST_LAYERS);
    match report.ending {
        Ending::Refused(Step::LandlockRestrict, libc::E2BIG) => (MOST_LAYERS + 1).saturating_sub(begun),
        // All could be stacked, or the trial says nothing about layers.
        Ending::Stood | Ending::Refused(..) | Ending::Killed(..) | Ending::Stuck(_) => 0,
    }
}

fn version() -> Result<i32, Fault> {
    // SAFETY: with the version flag the kernel takes a null pointer and size 0 and only answers a number.
    let answer = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, 0_usize, 0_usize, VERSION_FLAG) };
    i32::try_from(process::answer(answer)?).map_err(|_| Fault(libc::EOVERFLOW))
}

fn create(handled_access_fs: u64, scoped: u64) -> Result<OwnedFd, Fault> {
    let attributes = RulesetAttributes { handled_access_fs, handled_access_net: 0, scoped };
    // A kernel before ABI 6 refuses a longer structure only if the rest of it is not zero.
    let size = size_of::<RulesetAttributes>();
    let at = &raw const attributes;
    // SAFETY: `at` points to `size` readable bytes that live until the call returns.
    let answer = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, at, size, 0_u32) };
    let descriptor = RawFd::try_from(process::answer(answer)?).map_err(|_| Fault(libc::EOVERFLOW))?;
    // SAFETY: the kernel has just made this descriptor and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn restrict(ruleset: &OwnedFd) -> Result<(), Fault> {
    // SAFETY: takes a valid descriptor and flags 0; touches no memory of this process.
    let answer = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0_u32) };
    process::answer(answer)?;
    Ok(())
}

pub(super) fn open_for_writing(path: &CStr) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
}
