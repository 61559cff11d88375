//! Landlock as a second lock: what may be written is said once more, and signals and abstract sockets end at the role.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};
use rustix::io::Errno;

use crate::error::{FenceError, FenceErrorKind, Step};
use crate::sys::process;

/// The least that is of use here: from ABI 6 on (Linux 6.12) signals and abstract sockets can be confined. Asked for
/// in full and never in part.
const NEEDED: ABI = ABI::V6;

/// Devices that may be written. Terminals also take their ioctls.
const DEVICES: [&str; 4] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/tty"];

/// Makes the ruleset of every role of a fence. Reading is allowed everywhere: what must not be read is not there.
pub(crate) fn ruleset(writable: &[PathBuf]) -> Result<RulesetCreated, FenceError> {
    require_abi()?;
    let everything = AccessFs::from_all(NEEDED);
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(everything)
        .and_then(|r| r.scope(Scope::AbstractUnixSocket | Scope::Signal))
        .and_then(Ruleset::create)
        .map_err(|e| refused("landlock_create_ruleset", e))?;
    rules = allow(rules, Path::new("/"), AccessFs::from_read(NEEDED))?;
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
    for path in DEVICES.map(Path::new) {
        if path.exists() {
            rules = allow(rules, path, device)?;
        }
    }
    rules = allow(rules, Path::new("/dev/pts"), device | AccessFs::ReadDir)?;
    for path in writable {
        let of_a_file = AccessFs::from_file(NEEDED) & !AccessFs::IoctlDev;
        let of_a_folder = everything & !(AccessFs::MakeBlock | AccessFs::MakeChar | AccessFs::IoctlDev);
        rules = allow(rules, path, if path.is_dir() { of_a_folder } else { of_a_file })?;
    }
    Ok(rules)
}

/// Puts this process into a domain of its own under the ruleset.
pub(crate) fn restrict(ruleset: &RulesetCreated) -> Result<(), FenceError> {
    let own = ruleset.try_clone().step("dup(ruleset)")?;
    let status = own.restrict_self().map_err(|e| refused("landlock_restrict_self", e))?;
    if status.ruleset == RulesetStatus::FullyEnforced {
        return Ok(());
    }
    Err(FenceError::new(FenceErrorKind::Refused, "landlock_restrict_self", Errno::OPNOTSUPP))
}

fn allow(
    rules: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, FenceError> {
    let fd = PathFd::new(path)
        .map_err(|_| FenceError::new(FenceErrorKind::Refused, "open for landlock", Errno::NOENT).on(path))?;
    rules.add_rule(PathBeneath::new(fd, access)).map_err(|e| refused("landlock_add_rule", e).on(path))
}

fn refused(step: &'static str, error: landlock::RulesetError) -> FenceError {
    let errno = *landlock::Errno::from(error);
    FenceError::new(FenceErrorKind::Refused, step, Errno::from_raw_os_error(errno))
}

/// Asks the kernel itself, because the crate does not say why a kernel has no Landlock.
fn require_abi() -> Result<(), FenceError> {
    const VERSION: libc::c_uint = 1;
    // SAFETY: with this flag the call takes no attribute and only answers a number.
    let raw = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, 0_usize, 0_usize, VERSION) };
    let abi = process::answer(raw).step("landlock_create_ruleset")?;
    if abi < i64::from(NEEDED as i32) {
        return Err(Errno::OPNOTSUPP).step("landlock_create_ruleset(ABI 6)");
    }
    Ok(())
}
