//! Whether a seccomp filter can be installed and bites.

use seccompiler::{BpfProgram, sock_filter};
use stockade_core::survey::Refused;

use crate::sys::process;

use super::steps::Step;
use super::trial::{self, Fault, Reporter};

/// The error number that the trial filter gives: one that the denied call never gives by itself.
const MARK: i32 = libc::EXDEV;

/// Why filters cannot be installed; `None`: they can, and one was seen to deny a call.
pub(super) fn try_filter() -> Option<Refused> {
    let filter = trial_filter();
    trial::in_child(|reporter| install_and_see(reporter, &filter)).ending.refusal()
}

/// A filter that makes getppid fail with [`MARK`] and allows everything else.
pub(super) fn trial_filter() -> BpfProgram {
    #![expect(
        clippy::cast_possible_truncation,
        reason = "constants of the kernel's ABI, all small and positive"
    )]
    const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    const GETPPID: u32 = libc::SYS_getppid as u32;
    vec![
        // The call's number is the first word of `struct seccomp_data`.
        sock_filter { code: LOAD_WORD, jt: 0, jf: 0, k: 0 },
        sock_filter { code: JUMP_IF_EQUAL, jt: 0, jf: 1, k: GETPPID },
        sock_filter { code: RETURN, jt: 0, jf: 0, k: libc::SECCOMP_RET_ERRNO | MARK as u32 },
        sock_filter { code: RETURN, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW },
    ]
}

/// Installs the filter in this (child) process and sees it deny.
pub(super) fn install_and_see(reporter: &Reporter, filter: &BpfProgram) -> Result<(), Fault> {
    reporter.step(Step::NoNewPrivs, || rustix::thread::set_no_new_privs(true))?;
    reporter.step(Step::SeccompInstall, || seccompiler::apply_filter(filter).map_err(fault_of))?;
    reporter.step(Step::SeccompDenies, || {
        // SAFETY: getppid takes no argument and has no effect.
        let answer = unsafe { libc::syscall(libc::SYS_getppid) };
        match process::answer(answer) {
            Err(errno) if errno.raw_os_error() == MARK => Ok(()),
            Err(errno) => Err(errno.into()),
            Ok(_) => Err(Fault::NO_EFFECT),
        }
    })
}

fn fault_of(error: seccompiler::Error) -> Fault {
    match error {
        seccompiler::Error::Prctl(error) | seccompiler::Error::Seccomp(error) => error.into(),
        _ => Fault(libc::EINVAL),
    }
}
