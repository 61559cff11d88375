//! Signs of somebody else's fence: calls that cannot have an effect, and an answer that is not the kernel's.

use stockade_core::survey::OuterFence;

use crate::errno::errno_name;
use crate::sys::process;

use super::host::{self, ProcessStatus};
use super::steps::Step;
use super::trial::{self, Ending};

/// A call with bad arguments and the answers the kernel itself may give (0: success).
struct Harmless {
    name: &'static str,
    number: libc::c_long,
    arguments: [usize; 3],
    answers: &'static [i32],
}

/// An invalid descriptor, process or flag as an argument.
const NONE: usize = usize::MAX;

/// Each was measured to have no effect and to give these answers without a filter. A kernel that was built
/// without keys or io_uring says ENOSYS itself.
const CALLS: [Harmless; 8] = [
    Harmless { name: "unshare", number: libc::SYS_unshare, arguments: [0, 0, 0], answers: &[0] },
    Harmless { name: "setns", number: libc::SYS_setns, arguments: [NONE, 0, 0], answers: &[libc::EBADF] },
    Harmless { name: "mount", number: libc::SYS_mount, arguments: [0, 0, 0], answers: &[libc::EFAULT] },
    Harmless { name: "clone3", number: libc::SYS_clone3, arguments: [0, 0, 0], answers: &[libc::EINVAL] },
    Harmless {
        name: "keyctl",
        number: libc::SYS_keyctl,
        arguments: [9999, 0, 0],
        answers: &[libc::EOPNOTSUPP, libc::ENOSYS],
    },
    Harmless {
        name: "io_uring_setup",
        number: libc::SYS_io_uring_setup,
        arguments: [0, 0, 0],
        answers: &[libc::EFAULT, libc::EINVAL, libc::ENOSYS],
    },
    Harmless {
        name: "ptrace",
        number: libc::SYS_ptrace,
        arguments: [9999, NONE >> 1, 0],
        answers: &[libc::ESRCH],
    },
    Harmless {
        name: "open_tree",
        number: libc::SYS_open_tree,
        arguments: [NONE, 0, 1 << 20],
        answers: &[libc::EINVAL],
    },
];

/// What is in force around this process.
pub(super) fn outer_fence(status: &ProcessStatus, landlock_layers: u8) -> OuterFence {
    OuterFence {
        seccomp_filters: status.seccomp_filters.unwrap_or(0),
        // Without a filter on this process every answer is the kernel's own, however odd.
        intercepted_calls: if status.seccomp_mode == Some(0) { Vec::new() } else { intercepted_calls() },
        landlock_layers,
        no_new_privs: status.no_new_privs.unwrap_or(false),
    }
}

/// The calls whose answer is not the kernel's: `unshare=EPERM`.
fn intercepted_calls() -> Vec<String> {
    CALLS.iter().filter_map(intercepted).collect()
}

/// Makes the call in a child of its own, because a filter may kill the caller.
fn intercepted(call: &Harmless) -> Option<String> {
    let [a, b, c] = call.arguments;
    let report = trial::in_child(|reporter| {
        reporter.step(Step::BadArguments, || {
            // SAFETY: every argument is invalid or null by construction, so the kernel refuses the call before
            // it reads or writes memory, or (unshare(0)) does nothing.
            let answer = unsafe { libc::syscall(call.number, a, b, c, 0_usize, 0_usize) };
            process::answer(answer).map(|_| ())
        })
    });
    let answer = match report.ending {
        Ending::Stood => 0,
        Ending::Refused(Step::BadArguments, errno) => errno,
        Ending::Killed(..) => return Some(format!("{}=killed", call.name)),
        // No child could be made or it hung: nothing is known about this call.
        Ending::Refused(..) | Ending::Stuck(_) => return None,
    };
    let of_the_kernel = call.answers.contains(&answer)
        || (call.number == libc::SYS_io_uring_setup && answer == libc::EPERM && host::io_uring_is_disabled());
    (!of_the_kernel).then(|| format!("{}={}", call.name, if answer == 0 { "0" } else { errno_name(answer) }))
}

#[cfg(test)]
mod tests {
    use super::intercepted_calls;

    #[test]
    fn the_kernel_itself_gives_every_expected_answer() {
        assert_eq!(intercepted_calls(), Vec::<String>::new());
    }
}
