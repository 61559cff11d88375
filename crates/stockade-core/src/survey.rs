//! What was measured on this host, as plain data. The fence crate measures; `plan()` decides.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::limits::CgroupFacts;

/// A step that the kernel (or a helper program) refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Refused {
    /// The step, named by its system call and argument: `unshare(NEWUSER)`, `mount(proc)`.
    pub step: String,
    /// The error number, 0 where none applies.
    pub errno: i32,
    /// The symbolic name of the error number: `EPERM`; empty where none applies.
    pub errno_name: String,
}

/// A way to build the fence. Tried in this order; the first that stands and carries the order is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Rung {
    /// Namespaces, seccomp and Landlock.
    Nsl,
    /// Namespaces and seccomp.
    Ns,
    /// As `ns`, but the provider's own sandbox can make namespaces and mounts inside.
    NsNest,
    /// As `ns`, with the host's `/proc`, read-only: a kernel that gives no fresh one.
    NsHostproc,
    /// Through bubblewrap, where namespaces cannot be made directly; with seccomp.
    Bs,
}

impl Rung {
    /// Every rung, best first.
    pub const ALL: [Self; 5] = [Self::Nsl, Self::Ns, Self::NsNest, Self::NsHostproc, Self::Bs];

    /// The id used in flags, receipts and documentation.
    pub const fn id(self) -> &'static str {
        match self {
            Self::Nsl => "nsl",
            Self::Ns => "ns",
            Self::NsNest => "ns-nest",
            Self::NsHostproc => "ns-hostproc",
            Self::Bs => "bs",
        }
    }

    /// Finds a rung by its id.
    pub fn from_id(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|r| r.id() == id)
    }

    /// Whether a sandbox of the provider's can make namespaces and mounts inside.
    pub const fn nests(self) -> bool {
        matches!(self, Self::NsNest)
    }
}

/// One rung, tried once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RungTrial {
    /// The rung.
    pub rung: Rung,
    /// The step that was refused; `None`: the rung stands.
    pub refused: Option<Refused>,
    /// How long the trial took, in microseconds.
    pub elapsed_us: u64,
}

/// Landlock as measured by installing a ruleset in a child and seeing it bite.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LandlockFacts {
    /// The ABI the kernel answers; `None` where the call was refused.
    pub abi: Option<i32>,
    /// Why it cannot be used; `None`: it enforces.
    pub refused: Option<Refused>,
    /// Landlock domains this process is already in (16 minus the layers that could still be stacked).
    pub layers_in_use: u8,
}

/// bubblewrap as found on PATH: providers may need it, and the rung `bs` is built through it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BubblewrapFacts {
    /// The first `bwrap` on PATH.
    pub path: Option<PathBuf>,
    /// Whether that file is setuid.
    pub setuid: bool,
    /// Why it is never run on the host: a folder on its way, or the file itself, that somebody but root can change.
    pub untrusted: Option<String>,
    /// Its version by its own word; `None`: not asked, because `bs` was not tried, or not understood.
    pub version: Option<String>,
}

impl BubblewrapFacts {
    /// Whether a link in a writable tree cannot lead its mounts astray (CVE-2026-87766, mended in 0.12).
    pub fn resists_links(&self) -> bool {
        const MENDED: (u32, u32) = (0, 12);
        let mut numbers = self.version.iter().flat_map(|v| v.split('.')).map_while(|n| n.parse::<u32>().ok());
        matches!((numbers.next(), numbers.next()), (Some(major), Some(minor)) if (major, minor) >= MENDED)
    }
}

/// Signs of somebody else's fence around this process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OuterFence {
    /// Seccomp filters already installed on this process (0 where the kernel does not say).
    pub seccomp_filters: u32,
    /// Harmless bad-argument calls that did not give the kernel's own answer, so something intercepts them.
    pub intercepted_calls: Vec<String>,
    /// Landlock domains already in force.
    pub landlock_layers: u8,
    /// Whether `no_new_privs` is already set.
    pub no_new_privs: bool,
}

impl OuterFence {
    /// Whether a foreign seccomp filter or Landlock domain is in force.
    pub fn is_present(&self) -> bool {
        !self.intercepted_calls.is_empty() || self.landlock_layers > 0
    }
}

/// Who this process is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CallerFacts {
    /// Effective user id.
    pub uid: u32,
    /// Effective group id.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Whether this is the initial user namespace.
    pub initial_user_namespace: bool,
    /// Whether mounts can be made and mapped here (CAP_SYS_ADMIN). The root of most containers cannot.
    pub mount_privilege: bool,
}

impl CallerFacts {
    /// Kernel root with the privilege to mount: only such a host can idmap mounts.
    pub const fn is_root_host(&self) -> bool {
        self.is_kernel_root() && self.mount_privilege
    }

    /// Kernel root: euid 0 in the initial user namespace.
    pub const fn is_kernel_root(&self) -> bool {
        self.uid == 0 && self.initial_user_namespace
    }
}

/// Everything measured about the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Survey {
    /// `uname -r`.
    pub kernel: String,
    /// `uname -m`.
    pub machine: String,
    /// Who asks.
    pub caller: CallerFacts,
    /// Landlock.
    pub landlock: LandlockFacts,
    /// Why seccomp filters cannot be installed; `None`: they can.
    pub seccomp_refused: Option<Refused>,
    /// Every rung that was tried.
    pub rungs: Vec<RungTrial>,
    /// bubblewrap.
    pub bubblewrap: BubblewrapFacts,
    /// The first `socat` on PATH, which a provider's own sandbox may need.
    #[serde(default)]
    pub socat: Option<PathBuf>,
    /// Somebody else's fence.
    pub outer: OuterFence,
    /// Control groups.
    #[serde(default)]
    pub cgroups: CgroupFacts,
    /// The text of /sys/kernel/security/lsm, for diagnosis only; `None`: not readable.
    pub lsm: Option<String>,
}

impl Survey {
    /// The trial of one rung, if it was made.
    pub fn trial(&self, rung: Rung) -> Option<&RungTrial> {
        self.rungs.iter().find(|t| t.rung == rung)
    }

    /// Whether the rung was tried and stands.
    pub fn stands(&self, rung: Rung) -> bool {
        self.trial(rung).is_some_and(|t| t.refused.is_none())
    }
}
