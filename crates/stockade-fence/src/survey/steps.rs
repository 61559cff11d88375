//! The steps of a trial and their names. One byte each, because that is what a child can report safely.

/// A step that a trial takes and the kernel may refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Step {
    /// Nothing was reached: the child could not be made or ended before its first step.
    Start,
    /// The parent denies setgroups in the new user namespace.
    DenySetgroups,
    /// The parent writes the user mapping.
    UidMap,
    /// The parent writes the group mapping.
    GidMap,
    /// Mounts stop propagating.
    MakePrivate,
    /// Supplementary groups are dropped (root hosts).
    Setgroups,
    /// The group id becomes the payload's.
    Setresgid,
    /// The user id becomes the payload's.
    Setresuid,
    /// A proc file system for the new process namespace.
    MountProc,
    /// The tmpfs that becomes the root.
    MountTmpfs,
    /// The tmpfs is attached.
    AttachTmpfs,
    /// The tmpfs becomes the root.
    PivotRoot,
    /// The old root goes.
    DetachOldRoot,
    /// The proc file system is attached in the new root.
    AttachProc,
    /// The loopback interface of the empty network namespace comes up.
    LoopbackUp,
    /// A file to try Landlock on.
    WitnessFile,
    /// `no_new_privs`.
    NoNewPrivs,
    /// A Landlock ruleset is made.
    LandlockCreate,
    /// A Landlock ruleset is put in force.
    LandlockRestrict,
    /// A write that the ruleset must deny.
    LandlockDeniesWrite,
    /// A signal to a process outside the domain, which the ruleset must deny.
    LandlockDeniesSignal,
    /// A seccomp filter is installed.
    SeccompInstall,
    /// A call that the filter must deny.
    SeccompDenies,
    /// A call with bad arguments, to see who answers it.
    BadArguments,
    /// The host's proc is cloned, with what covers parts of it.
    CloneProc,
    /// The clone becomes read-only.
    ShutProc,
    /// Every capability goes.
    DropPrivileges,
    /// A setting of the kernel is opened for writing, which must be denied.
    KernelSettings,
    /// A user namespace inside, with mounts of its own.
    InnerUnshare,
    /// It denies setgroups.
    InnerSetgroups,
    /// Its user mapping.
    InnerUidMap,
    /// Its group mapping.
    InnerGidMap,
    /// Its mounts stop propagating.
    InnerMakePrivate,
    /// A mount in it.
    InnerMount,
}

impl Step {
    const ALL: [Self; 34] = [
        Self::Start,
        Self::DenySetgroups,
        Self::UidMap,
        Self::GidMap,
        Self::MakePrivate,
        Self::Setgroups,
        Self::Setresgid,
        Self::Setresuid,
        Self::MountProc,
        Self::MountTmpfs,
        Self::AttachTmpfs,
        Self::PivotRoot,
        Self::DetachOldRoot,
        Self::AttachProc,
        Self::LoopbackUp,
        Self::WitnessFile,
        Self::NoNewPrivs,
        Self::LandlockCreate,
        Self::LandlockRestrict,
        Self::LandlockDeniesWrite,
        Self::LandlockDeniesSignal,
        Self::SeccompInstall,
        Self::SeccompDenies,
        Self::BadArguments,
        Self::CloneProc,
        Self::ShutProc,
        Self::DropPrivileges,
        Self::KernelSettings,
        Self::InnerUnshare,
        Self::InnerSetgroups,
        Self::InnerUidMap,
        Self::InnerGidMap,
        Self::InnerMakePrivate,
        Self::InnerMount,
    ];

    /// The step of a byte that a child reported; an unknown byte says that nothing is known.
    pub(super) fn from_byte(byte: u8) -> Self {
        Self::ALL.get(usize::from(byte)).copied().unwrap_or(Self::Start)
    }

    /// The name in reports: the system call and its argument.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Start => "fork",
            Self::DenySetgroups => "write(setgroups)",
            Self::UidMap => "write(uid_map)",
            Self::GidMap => "write(gid_map)",
            Self::MakePrivate => "mount(MS_PRIVATE)",
            Self::Setgroups => "setgroups(none)",
            Self::Setresgid => "setresgid",
            Self::Setresuid => "setresuid",
            Self::MountProc => "fsmount(proc)",
            Self::MountTmpfs => "fsmount(tmpfs)",
            Self::AttachTmpfs => "move_mount(tmpfs)",
            Self::PivotRoot => "pivot_root",
            Self::DetachOldRoot => "umount2(old root)",
            Self::AttachProc => "move_mount(proc)",
            Self::LoopbackUp => "ioctl(SIOCSIFFLAGS)",
            Self::WitnessFile => "open(witness)",
            Self::NoNewPrivs => "prctl(NO_NEW_PRIVS)",
            Self::LandlockCreate => "landlock_create_ruleset",
            Self::LandlockRestrict => "landlock_restrict_self",
            Self::LandlockDeniesWrite => "landlock denies a write",
            Self::LandlockDeniesSignal => "landlock denies a signal",
            Self::SeccompInstall => "seccomp(SET_MODE_FILTER)",
            Self::SeccompDenies => "seccomp denies a call",
            Self::BadArguments => "call with bad arguments",
            Self::CloneProc => "open_tree(/proc)",
            Self::ShutProc => "mount_setattr(/proc)",
            Self::DropPrivileges => "capset(none)",
            Self::KernelSettings => "the kernel denies its settings",
            Self::InnerUnshare => "unshare(NEWUSER) inside",
            Self::InnerSetgroups => "write(setgroups) inside",
            Self::InnerUidMap => "write(uid_map) inside",
            Self::InnerGidMap => "write(gid_map) inside",
            Self::InnerMakePrivate => "mount(MS_PRIVATE) inside",
            Self::InnerMount => "mount(tmpfs) inside",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Step;

    #[test]
    fn every_step_survives_the_pipe() {
        for step in Step::ALL {
            assert_eq!(Step::from_byte(step as u8), step);
        }
        assert_eq!(Step::from_byte(200), Step::Start);
    }
}
