//! S: signalling, tracing and reprioritising processes of others.

use rustix::process::{Pid, Resource, Rlimit, Signal};
use stockade_core::guarantee::Guarantee::{Privileges, ProcessVisibility};

use super::acts::{Denial, Outcome, worked};
use super::fixture::FixtureFacts;
use super::raw;
use super::table::{Expected, Probe};
use crate::sys::process::{self, Side, Wait};

/// The seccomp filter's own answer: the process exists and has the same user, so nothing else would say it.
const BY_SECCOMP: Expected = Expected::DeniedWith(libc::EPERM);

pub(super) const PROBES: &[Probe] = &[
    Probe::new("S01", ProcessVisibility, "kill(VICTIM, 0)", |f| {
        Ok(rustix::process::test_kill_process(pid(f.victim)?)?)
    }),
    Probe::new("S02", ProcessVisibility, "kill(VICTIM, SIGCONT)", |f| {
        Ok(rustix::process::kill_process(pid(f.victim)?, Signal::CONT)?)
    }),
    Probe::new("S03", ProcessVisibility, "kill PID 1 of the fence", |f| {
        // SAFETY: numbers only; signal 0 is never delivered.
        unsafe { raw::call(libc::SYS_kill, [raw::signed(f.init), 0]) }.map(drop)
    })
    .expecting(BY_SECCOMP),
    Probe::new("S04", ProcessVisibility, "ptrace the victim", |f| seize(f.victim)),
    Probe::new("S05", ProcessVisibility, "read the victim's memory by process_vm_readv", read_memory),
    Probe::new("S06", ProcessVisibility, "take a descriptor of the victim by pidfd_getfd", |f| {
        let pidfd = rustix::process::pidfd_open(pid(f.victim)?, rustix::process::PidfdFlags::empty())?;
        let flags = rustix::process::PidfdGetfdFlags::empty();
        worked(rustix::process::pidfd_getfd(pidfd, 0, flags))
    }),
    Probe::new("S07", ProcessVisibility, "set the victim's priority", |f| {
        let victim = Some(pid(f.victim)?);
        Ok(rustix::process::setpriority_process(victim, rustix::process::getpriority_process(victim)?)?)
    }),
    Probe::new("S08", ProcessVisibility, "read the victim's limits by prlimit", |f| {
        limits_of(f.victim).map(drop)
    }),
    Probe::new("S09", Privileges, "ptrace its own child", trace_own_child),
    Probe::new("S10", ProcessVisibility, "set the victim's limits by prlimit", |f| {
        let core = limits_of(f.victim)?;
        let same = Rlimit { current: finite(core.rlim_cur), maximum: finite(core.rlim_max) };
        rustix::process::prlimit(Some(pid(f.victim)?), Resource::Core, same)?;
        Ok(())
    }),
    Probe::new("S11", ProcessVisibility, "set the victim's processors", |f| {
        let victim = Some(pid(f.victim)?);
        let set = rustix::thread::sched_getaffinity(victim)?;
        Ok(rustix::thread::sched_setaffinity(victim, &set)?)
    }),
    Probe::new("S12", ProcessVisibility, "set the victim's disk priority", set_disk_priority),
    Probe::new("S13", ProcessVisibility, "tkill PID 1 of the fence", |f| {
        // SAFETY: numbers only; signal 0 is never delivered.
        unsafe { raw::call(libc::SYS_tkill, [raw::signed(f.init), 0]) }.map(drop)
    })
    .expecting(BY_SECCOMP),
    Probe::new("S14", ProcessVisibility, "tgkill PID 1 of the fence", |f| {
        // SAFETY: numbers only; signal 0 is never delivered.
        unsafe { raw::call(libc::SYS_tgkill, [raw::signed(f.init), raw::signed(f.init), 0]) }.map(drop)
    })
    .expecting(BY_SECCOMP),
    Probe::new("S15", ProcessVisibility, "rt_sigqueueinfo to PID 1 of the fence", |f| {
        let info = queued();
        // SAFETY: the information is readable; signal 0 is never delivered.
        unsafe { raw::call(libc::SYS_rt_sigqueueinfo, [raw::signed(f.init), 0, raw::address(&info)]) }
            .map(drop)
    })
    .expecting(BY_SECCOMP),
    Probe::new("S16", ProcessVisibility, "rt_tgsigqueueinfo to PID 1 of the fence", |f| {
        let info = queued();
        let init = raw::signed(f.init);
        // SAFETY: the information is readable; signal 0 is never delivered.
        unsafe { raw::call(libc::SYS_rt_tgsigqueueinfo, [init, init, 0, raw::address(&info)]) }.map(drop)
    })
    .expecting(BY_SECCOMP),
    Probe::new("S17", ProcessVisibility, "pidfd_open PID 1 of the fence", |f| {
        worked(rustix::process::pidfd_open(pid(f.init)?, rustix::process::PidfdFlags::empty()))
    })
    .expecting(BY_SECCOMP),
    Probe::new("S18", ProcessVisibility, "stop PID 1 of the fence", |f| {
        // SAFETY: numbers only.
        unsafe { raw::call(libc::SYS_kill, [raw::signed(f.init), raw::signed(libc::SIGSTOP)]) }?;
        // SAFETY: numbers only.
        unsafe { raw::call(libc::SYS_kill, [raw::signed(f.init), raw::signed(libc::SIGCONT)]) }.map(drop)
    })
    .expecting(BY_SECCOMP),
];

fn pid(number: i32) -> Result<Pid, Denial> {
    Pid::from_raw(number).ok_or_else(|| Denial::new(0))
}

/// A signal as one process queues it to another: with any other code the kernel refuses.
fn queued() -> libc::siginfo_t {
    // SAFETY: siginfo_t is plain data, for which all zeroes is a value.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    info.si_code = libc::SI_QUEUE;
    info
}

fn seize(target: i32) -> Outcome {
    let seize = usize::try_from(libc::PTRACE_SEIZE).map_err(|_| Denial::new(0))?;
    // SAFETY: SEIZE uses neither address nor data. The tracer's end, a moment later, detaches.
    unsafe { raw::call(libc::SYS_ptrace, [seize, raw::signed(target), 0, 0]) }.map(drop)
}

/// Where the map cannot be read the call is made all the same, with an address that is never mapped.
fn read_memory(facts: &FixtureFacts) -> Outcome {
    let map = std::fs::read_to_string(format!("/proc/{}/maps", facts.victim)).unwrap_or_default();
    let start = map.split('-').next().and_then(|hex| usize::from_str_radix(hex, 16).ok()).unwrap_or(0x1000);
    let mut bytes = [0_u8; 8];
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let remote = [start, bytes.len()];
    let victim = raw::signed(facts.victim);
    let arguments = [victim, raw::address(&local), 1, raw::address(&remote), 1, 0];
    // SAFETY: `local` names a writable buffer; `remote` has the layout of an iovec and is an address elsewhere.
    unsafe { raw::call(libc::SYS_process_vm_readv, arguments) }.map(drop)
}

fn limits_of(target: i32) -> Result<libc::rlimit64, Denial> {
    let mut limits = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    let resource = usize::try_from(libc::RLIMIT_CORE).map_err(|_| Denial::new(0))?;
    let arguments = [raw::signed(target), resource, 0, raw::address_mut(&mut limits)];
    // SAFETY: a null pointer sets nothing; the old limits are written to a structure of that layout.
    unsafe { raw::call(libc::SYS_prlimit64, arguments) }?;
    Ok(limits)
}

fn finite(limit: u64) -> Option<u64> {
    (limit != libc::RLIM64_INFINITY).then_some(limit)
}

fn trace_own_child(_facts: &FixtureFacts) -> Outcome {
    // SAFETY: the child makes one system call and ends by a signal.
    let child = match unsafe { process::fork() }.map_err(|error| Denial::new(error.errno()))? {
        Side::Child => loop {
            rustix::event::pause();
        },
        Side::Parent(child) => child,
    };
    let outcome = seize(child.as_raw_pid());
    process::signal(child, libc::SIGKILL)?;
    process::reap(Some(child), Wait::Block)?;
    outcome
}

fn set_disk_priority(facts: &FixtureFacts) -> Outcome {
    /// `IOPRIO_WHO_PROCESS` of linux/ioprio.h.
    const PROCESS: usize = 1;
    let victim = raw::signed(facts.victim);
    // SAFETY: numbers only.
    let now = unsafe { raw::call(libc::SYS_ioprio_get, [PROCESS, victim]) }?;
    let now = usize::try_from(now).map_err(|_| Denial::new(libc::EINVAL))?;
    // SAFETY: numbers only.
    unsafe { raw::call(libc::SYS_ioprio_set, [PROCESS, victim, now]) }.map(drop)
}
