//! The system call filter: everything is allowed but what is named here, which is answered with an error.
//!
//! It cannot see paths, addresses or names; those are the work of namespaces and mounts. What is here takes kernel
//! surface away, closes ways past the other mechanisms, and keeps privileged files from appearing on disk.

use rustix::io::Errno;
use seccompiler::BpfProgram;

use crate::confine::bpf::{Assembler, Deny};
use crate::error::{FenceError, FenceErrorKind};

/// A compiled filter.
#[derive(Debug)]
pub(crate) struct Filter(BpfProgram);

/// Calls newer than the `libc` crate knows (arch/x86/entry/syscalls/syscall_64.tbl).
mod number {
    pub(super) const FCHMODAT2: i64 = 452;
    pub(super) const SETXATTRAT: i64 = 463;
    pub(super) const OPEN_TREE_ATTR: i64 = 467;
}

/// The highest bit of a call number marks the x32 ABI, whose calls would walk past a filter written for x86-64.
const X32_BIT: u32 = 0x4000_0000;

/// Whether a sandbox of the provider's may make namespaces and mounts inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nesting {
    /// No.
    Denied,
    /// Yes, by the calls that bubblewrap makes.
    Allowed,
}

/// Never answered.
const DENIED: [i64; 48] = [
    // Other processes' memory, descriptors and state.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_process_madvise,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    // A second way to make every other call.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Keys of the user.
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    // Kernel surface that no agent needs.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_lookup_dcookie,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_acct,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_reboot,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    // Other namespaces, roots and mounts.
    libc::SYS_setns,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    number::OPEN_TREE_ATTR,
    libc::SYS_fsopen,
    libc::SYS_fsmount,
    libc::SYS_fsconfig,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_nfsservctl,
];

/// Denied unless a sandbox nests, and clone(2) with a flag of [`NAMESPACE_FLAGS`] too.
const NESTS: [i64; 4] = [libc::SYS_unshare, libc::SYS_pivot_root, libc::SYS_mount, libc::SYS_umount2];

/// Not supported where a sandbox nests: whoever is root of a namespace made inside may set file capabilities, and through
/// an id-mapped mount they are root's on the host. Copying tools go on without attributes that no file system here has.
const SETS_ATTRIBUTES: [i64; 4] =
    [libc::SYS_setxattr, libc::SYS_lsetxattr, libc::SYS_fsetxattr, number::SETXATTRAT];

/// Answered with ENOSYS, so that callers fall back: their flags and modes are behind a pointer, where no filter sees them.
const ABSENT: [i64; 2] = [libc::SYS_clone3, libc::SYS_openat2];

/// Calls that take a process id, the argument it is in: PID 1 is not for the payload.
const AIMED_AT_A_PROCESS: [(i64, u8); 6] = [
    (libc::SYS_kill, 0),
    (libc::SYS_tkill, 0),
    (libc::SYS_tgkill, 0),
    (libc::SYS_rt_sigqueueinfo, 0),
    (libc::SYS_rt_tgsigqueueinfo, 0),
    (libc::SYS_pidfd_open, 0),
];

/// Calls that set a mode, and the argument it is in.
const SETS_A_MODE: [(i64, u8); 9] = [
    (libc::SYS_chmod, 1),
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (number::FCHMODAT2, 2),
    (libc::SYS_creat, 1),
    (libc::SYS_mknod, 1),
    (libc::SYS_mknodat, 2),
    (libc::SYS_mkdir, 1),
    (libc::SYS_mkdirat, 2),
];

/// Calls that set a mode when their flags say that they create: (call, flags, mode).
const CREATES_BY_FLAG: [(i64, u8, u8); 2] = [(libc::SYS_open, 1, 2), (libc::SYS_openat, 2, 3)];
/// `O_CREAT`, and the bit of `O_TMPFILE` that `O_DIRECTORY` does not share.
const CREATING: u32 = 0o100 | 0o20_000_000;

/// Setuid and setgid. On an id-mapped folder of root's, a setuid file made inside is a setuid-root file on the host.
const PRIVILEGED_MODES: u32 = 0o4000 | 0o2000;

/// Calls that send, and the argument their flags are in: `MSG_FASTOPEN` connects without connect().
const SENDS: [(i64, u8); 3] = [(libc::SYS_sendto, 3), (libc::SYS_sendmsg, 2), (libc::SYS_sendmmsg, 3)];
const MSG_FASTOPEN: u32 = 0x2000_0000;

/// `TIOCSTI` types into the terminal of somebody else, `TIOCLINUX` pastes into a console. Compared as 32 bits, as the
/// kernel does.
const TERMINAL_INJECTION: [u32; 2] = [0x5412, 0x541C];

/// Families UNIX, INET, INET6 and NETLINK (route only); of the internet protocols the default, TCP and UDP.
const SOCKETS: [Deny; 4] = [
    Deny::Unless { argument: 0, allowed: &[UNIX, INET, INET6, NETLINK] },
    Deny::UnlessWhile { argument: 0, value: INET, then: 2, allowed: &INTERNET_PROTOCOLS },
    Deny::UnlessWhile { argument: 0, value: INET6, then: 2, allowed: &INTERNET_PROTOCOLS },
    Deny::UnlessWhile {
        argument: 0,
        value: NETLINK,
        then: 2,
        allowed: &[libc::NETLINK_ROUTE.cast_unsigned()],
    },
];
const UNIX: u32 = libc::AF_UNIX.cast_unsigned();
const INET: u32 = libc::AF_INET.cast_unsigned();
const INET6: u32 = libc::AF_INET6.cast_unsigned();
const NETLINK: u32 = libc::AF_NETLINK.cast_unsigned();
const INTERNET_PROTOCOLS: [u32; 3] =
    [0, libc::IPPROTO_TCP.cast_unsigned(), libc::IPPROTO_UDP.cast_unsigned()];

/// CLONE_NEWTIME is not among them: clone(2) cannot ask for it.
const NAMESPACE_FLAGS: [i32; 7] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
];

/// Compiles the filter.
pub(crate) fn compile(nesting: Nesting) -> Filter {
    let mut program = Assembler::new();
    program.require_abi();
    program.deny_from(X32_BIT, Errno::PERM);
    program.answer(&ABSENT, Errno::NOSYS);
    program.answer(&DENIED, Errno::PERM);
    match nesting {
        Nesting::Denied => {
            program.answer(&NESTS, Errno::PERM);
            program.call(libc::SYS_clone, &[Deny::Any { argument: 0, bits: bits(&NAMESPACE_FLAGS) }]);
        }
        Nesting::Allowed => program.answer(&SETS_ATTRIBUTES, Errno::OPNOTSUPP),
    }
    program.call(
        libc::SYS_ioctl,
        &TERMINAL_INJECTION.map(|request| Deny::Equal { argument: 1, value: request }),
    );
    program.call(libc::SYS_prlimit64, &[Deny::Unless { argument: 0, allowed: &[0] }]);
    program.call(libc::SYS_socket, &SOCKETS);
    for (call, argument) in AIMED_AT_A_PROCESS {
        program.call(call, &[Deny::Equal { argument, value: 1 }]);
    }
    for (call, argument) in SETS_A_MODE {
        program.call(call, &[Deny::Any { argument, bits: PRIVILEGED_MODES }]);
    }
    for (call, flags, mode) in CREATES_BY_FLAG {
        program
            .call(call, &[Deny::AnyWhile { flags, set: CREATING, argument: mode, bits: PRIVILEGED_MODES }]);
    }
    for (call, argument) in SENDS {
        program.call(call, &[Deny::Any { argument, bits: MSG_FASTOPEN }]);
    }
    Filter(program.finish())
}

/// Installs the filter on this process. It cannot be taken off again.
pub(crate) fn install(filter: &Filter) -> Result<(), FenceError> {
    seccompiler::apply_filter(&filter.0).map_err(|e| {
        let errno = match e {
            seccompiler::Error::Seccomp(e) | seccompiler::Error::Prctl(e) => Errno::from_io_error(&e),
            _ => None,
        };
        FenceError::new(FenceErrorKind::Refused, "seccomp(SET_MODE_FILTER)", errno.unwrap_or(Errno::INVAL))
    })
}

fn bits(flags: &[i32]) -> u32 {
    flags.iter().fold(0, |bits, flag| bits | flag.cast_unsigned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::sys::child;

    /// Makes a raw call under the filter, in a child, and returns its error number.
    fn under_filter(call: i64, arguments: [u64; 5]) -> i32 {
        under(Nesting::Denied, call, arguments)
    }

    fn under(nesting: Nesting, call: i64, arguments: [u64; 5]) -> i32 {
        child::run(Duration::from_secs(5), || {
            install(&compile(nesting))?;
            let [first, second, third, fourth, fifth] = arguments;
            // SAFETY: every call of the tests is either denied by the filter or harmless with these arguments.
            let raw = unsafe { libc::syscall(call, first, second, third, fourth, fifth) };
            Ok(if raw < 0 { std::io::Error::last_os_error().raw_os_error().unwrap_or(-1) } else { 0 })
        })
        .unwrap()
    }

    #[test]
    fn pid_1_cannot_be_aimed_at_and_others_can() {
        for (call, _) in AIMED_AT_A_PROCESS {
            assert_eq!(under_filter(call, [1, 0, 0, 0, 0]), libc::EPERM, "{call}");
        }
        let me = u64::from(std::process::id());
        assert_eq!(under_filter(libc::SYS_kill, [me, 0, 0, 0, 0]), 0);
    }

    #[test]
    fn privileged_modes_are_refused_in_every_call_that_sets_one() {
        let path = c"/nonexistent/x".as_ptr() as u64;
        let at = i64::from(libc::AT_FDCWD).cast_unsigned();
        for mode in [0o4755, 0o2755, 0o6755] {
            for (call, arguments) in [
                (libc::SYS_chmod, [path, mode, 0, 0, 0]),
                (libc::SYS_fchmod, [99, mode, 0, 0, 0]),
                (libc::SYS_fchmodat, [at, path, mode, 0, 0]),
                (number::FCHMODAT2, [at, path, mode, 0, 0]),
                (libc::SYS_creat, [path, mode, 0, 0, 0]),
                (libc::SYS_mknod, [path, mode, 0, 0, 0]),
                (libc::SYS_mknodat, [at, path, mode, 0, 0]),
                (libc::SYS_mkdir, [path, mode, 0, 0, 0]),
                (libc::SYS_mkdirat, [at, path, mode, 0, 0]),
                (libc::SYS_open, [path, 0o101, mode, 0, 0]),
                (libc::SYS_openat, [at, path, 0o101, mode, 0]),
                (libc::SYS_openat, [at, path, 0o20_200_002, mode, 0]),
            ] {
                assert_eq!(under_filter(call, arguments), libc::EPERM, "call {call} mode {mode:o}");
            }
        }
        assert_eq!(under_filter(libc::SYS_chmod, [path, 0o1755, 0, 0, 0]), libc::ENOENT);
        // Opening without creating does not look at the mode: a register may hold anything there.
        assert_eq!(under_filter(libc::SYS_openat, [at, path, 0, 0o4755, 0]), libc::ENOENT);
    }

    #[test]
    fn calls_with_flags_behind_a_pointer_are_absent_and_x32_is_denied() {
        for call in ABSENT {
            assert_eq!(under_filter(call, [0; 5]), libc::ENOSYS);
        }
        assert_eq!(under_filter(i64::from(X32_BIT) | libc::SYS_getpid, [0; 5]), libc::EPERM);
    }

    #[test]
    fn sockets_of_other_families_and_protocols_are_denied() {
        let socket = |family: i32, kind: i32, protocol: i32| {
            let [f, k, p] = [family, kind, protocol].map(|n| i64::from(n).cast_unsigned());
            under_filter(libc::SYS_socket, [f, k, p, 0, 0])
        };
        for (family, kind, protocol) in [
            (libc::AF_VSOCK, libc::SOCK_STREAM, 0),
            (libc::AF_PACKET, libc::SOCK_RAW, 0),
            (libc::AF_ALG, libc::SOCK_SEQPACKET, 0),
            (libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_MPTCP),
            (libc::AF_INET, libc::SOCK_DGRAM, libc::IPPROTO_ICMP),
            (libc::AF_INET6, libc::SOCK_STREAM, libc::IPPROTO_SCTP),
            (libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_AUDIT),
        ] {
            assert_eq!(socket(family, kind, protocol), libc::EPERM, "{family} {kind} {protocol}");
        }
        for (family, kind, protocol) in [
            (libc::AF_UNIX, libc::SOCK_STREAM, 0),
            (libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_TCP),
            (libc::AF_INET6, libc::SOCK_DGRAM, libc::IPPROTO_UDP),
            (libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE),
        ] {
            assert_eq!(socket(family, kind, protocol), 0, "{family} {kind} {protocol}");
        }
    }

    #[test]
    fn namespaces_by_clone_are_denied_and_plain_forks_are_not() {
        for flag in NAMESPACE_FLAGS {
            let flags = i64::from(flag | libc::SIGCHLD).cast_unsigned();
            assert_eq!(under_filter(libc::SYS_clone, [flags, 0, 0, 0, 0]), libc::EPERM, "{flag:x}");
        }
        let forked = child::run(Duration::from_secs(5), || {
            install(&compile(Nesting::Denied))?;
            child::run(Duration::from_secs(5), || Ok(7))
        });
        assert_eq!(forked, Ok(7));
    }

    #[test]
    fn every_denied_call_is_denied() {
        for call in DENIED {
            assert_eq!(under_filter(call, [0; 5]), libc::EPERM, "{call}");
        }
        for (call, argument) in SENDS {
            let mut arguments = [99, 0, 0, 0, 0];
            arguments[usize::from(argument)] = u64::from(MSG_FASTOPEN);
            assert_eq!(under_filter(call, arguments), libc::EPERM, "{call}");
        }
        assert_eq!(under_filter(libc::SYS_ioctl, [0, 0x1_0000_5412, 0, 0, 0]), libc::EPERM);
        assert_eq!(under_filter(libc::SYS_prlimit64, [1, 7, 0, 0, 0]), libc::EPERM);
    }

    #[test]
    fn a_nesting_filter_opens_what_bubblewrap_calls_and_shuts_every_attribute() {
        let path = c"/nonexistent/x".as_ptr() as u64;
        for call in NESTS {
            assert_eq!(under(Nesting::Denied, call, [0; 5]), libc::EPERM, "{call}");
        }
        // The kernel itself answers: nothing is asked for, or nothing is there.
        assert_eq!(under(Nesting::Allowed, libc::SYS_unshare, [0; 5]), 0);
        assert_eq!(under(Nesting::Allowed, libc::SYS_mount, [0; 5]), libc::EFAULT);
        for call in SETS_ATTRIBUTES {
            assert_eq!(under(Nesting::Allowed, call, [path, path, path, 1, 0]), libc::EOPNOTSUPP, "{call}");
        }
        for call in
            [libc::SYS_setns, libc::SYS_chroot, libc::SYS_move_mount, libc::SYS_fsopen, libc::SYS_open_tree]
        {
            assert_eq!(under(Nesting::Allowed, call, [path, 0, 0, 0, 0]), libc::EPERM, "{call}");
        }
        assert_eq!(under(Nesting::Allowed, libc::SYS_clone3, [0; 5]), libc::ENOSYS);
        assert_eq!(under(Nesting::Allowed, libc::SYS_chmod, [path, 0o4755, 0, 0, 0]), libc::EPERM);
    }
}
