//! What a fence is made of, said by the caller.

use std::path::{Component, Path, PathBuf};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use stockade_core::survey::Rung;

use crate::error::{FenceError, FenceErrorKind};
use crate::group::GroupSpec;

/// The user and group id of everything inside: fixed, so that nothing inside depends on who started the fence.
pub const INNER_ID: u32 = 1000;
/// The home of the payload: a bind of the caller, or a private temporary folder where none is given.
pub const INNER_HOME: &str = "/home/agent";
/// The port of the model listener on 127.0.0.1.
pub const MODEL_PORT: u16 = 8080;
/// The port of the egress listener on 127.0.0.1.
pub const EGRESS_PORT: u16 = stockade_core::network::EGRESS_PORT;
/// The port of the names listener on 127.0.0.1 (UDP).
pub const NAMES_PORT: u16 = 53;
/// Where Stockade's own executable lies inside, for the probe role.
pub const OWN_BINARY: &str = "/run/stockade/stockade";

/// Most binds a fence takes.
const MAX_BINDS: usize = 256;

/// As whom the payload runs, seen from the kernel. Inside it is always [`INNER_ID`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Identity {
    /// The caller's own kernel id: hosts without root, and root of a nested user namespace.
    Caller,
    /// A kernel id that is not root's, on a root host: the owner of the workspace, or an id private to the run. Files
    /// of other owners are shown as its own by an id-mapped mount, and land on disk owned as the folder is.
    Kernel {
        /// The user id.
        uid: u32,
        /// The group id.
        gid: u32,
    },
    /// Kernel uid 0 without capabilities, on a root host whose file system cannot map owners.
    KernelRoot,
}

/// What the payload may do with something bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BindAccess {
    /// Look at it.
    ReadOnly,
    /// Change it.
    ReadWrite,
}

/// Whom something bound belongs to, seen from inside. Matters only with [`Identity::Kernel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BindOwner {
    /// To the payload: workspace, home, git folder. Whoever owns the folder on disk is the payload inside; submounts are
    /// not carried over and files of other owners cannot be written, so the caller looks for both before.
    Payload,
    /// As on the host, with its submounts: the payload sees what everybody may see. A folder or file that is not
    /// readable by everybody is treated as [`BindOwner::Payload`], because it would be useless otherwise.
    Host,
}

/// A folder or file of the host that exists inside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Bind {
    /// The path on the host: absolute, without any symbolic link in it.
    pub source: PathBuf,
    /// The path inside: absolute. Inside another bind it must exist there and be a direct child of that bind's target.
    pub target: PathBuf,
    /// What the payload may do with it.
    pub access: BindAccess,
    /// Whom it belongs to inside.
    pub owner: BindOwner,
}

/// Which network exists inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FenceNetwork {
    /// An empty network with two listeners that are passed out: the model's and the one for names.
    Gateway,
    /// The same with a third, for egress.
    GatewayWithEgress,
    /// An empty network and nobody who listens.
    Empty,
    /// The host's network. Gives up the guarantee `network`.
    Host,
}

/// Whether Stockade's own executable exists inside, at [`OWN_BINARY`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OwnBinary {
    /// No.
    Absent,
    /// Yes, read-only: the probe role runs it.
    Bound,
}

/// A fence to build.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FenceSpec {
    /// Which mechanisms. Exactly these, or the build fails.
    pub rung: Rung,
    /// The bubblewrap that [`Rung::Bs`] is built through. Every part of its path has to be root's alone.
    pub bubblewrap: Option<PathBuf>,
    /// As whom the payload runs.
    pub identity: Identity,
    /// Everything of the host that exists inside, beside the system's own folders.
    pub binds: Vec<Bind>,
    /// Which network exists inside.
    pub network: FenceNetwork,
    /// Whether Stockade's own executable exists inside.
    pub own_binary: OwnBinary,
    /// The size of /tmp, and of /var/tmp, in bytes.
    pub temp_bytes: u64,
    /// Most processes and threads at a time; the kernel takes no limit below 301. Enforced where the kernel has a limit per PID namespace (6.14 and later);
    /// [`BuildFacts::max_processes`](crate::BuildFacts) says whether it is.
    pub max_processes: Option<u32>,
    /// Control groups made for the fence; `None`: it stays in the caller's.
    pub group: Option<GroupSpec>,
}

impl FenceSpec {
    /// Whether this is a root host: sources are cloned before the namespaces are made, where Stockade makes them itself.
    pub(crate) fn is_root_host(&self) -> bool {
        !matches!(self.identity, Identity::Caller) && self.rung != Rung::Bs
    }

    /// Refuses what can be seen to be wrong without asking the kernel.
    pub(crate) fn check(&self) -> Result<(), FenceError> {
        if self.rung.nests() && self.identity == Identity::KernelRoot {
            return Err(request("a fence that nests never runs as kernel root"));
        }
        if self.rung == Rung::Bs
            && (self.bubblewrap.is_none() || matches!(self.identity, Identity::Kernel { .. }))
        {
            return Err(request("through bubblewrap needs its path, and maps no owners"));
        }
        if let Identity::Kernel { uid, gid } = self.identity
            && (uid == 0 || gid == 0)
        {
            return Err(request("a kernel id of 0 is named KernelRoot"));
        }
        if self.binds.len() > MAX_BINDS {
            return Err(request("more than 256 binds"));
        }
        for bind in &self.binds {
            plain(&bind.source)?;
            plain(&bind.target)?;
            if RESERVED.iter().any(|r| bind.target == Path::new(r)) {
                return Err(request("this path is the fence's own").on(&bind.target));
            }
            if ["/proc", "/dev"].iter().any(|r| bind.target.starts_with(r))
                && !bind.target.starts_with("/dev/shm")
            {
                return Err(request("nothing can be bound below this path").on(&bind.target));
            }
            self.check_nesting(bind)?;
        }
        Ok(())
    }

    /// A mount point deep inside a writable folder could be carried away with its parent and replaced.
    fn check_nesting(&self, bind: &Bind) -> Result<(), FenceError> {
        for other in &self.binds {
            if std::ptr::eq(other, bind) {
                continue;
            }
            if other.target == bind.target {
                return Err(request("bound twice").on(&bind.target));
            }
            let inside = bind.target.starts_with(&other.target);
            if inside
                && other.access == BindAccess::ReadWrite
                && bind.target.parent() != Some(other.target.as_path())
            {
                return Err(request("a bind inside a writable one must be its direct child").on(&bind.target));
            }
        }
        Ok(())
    }
}

/// Paths the fence makes itself.
const RESERVED: [&str; 9] = ["/", "/etc", "/home", "/var", "/tmp", "/var/tmp", "/run", "/dev/shm", "/usr"];

/// Absolute, in UTF-8, without `.` and `..`.
fn plain(path: &Path) -> Result<(), FenceError> {
    let normal = path.components().all(|c| matches!(c, Component::RootDir | Component::Normal(_)));
    if !path.is_absolute() || !normal || path.to_str().is_none_or(|p| p.contains("/./") || p.contains('\0')) {
        return Err(request("a bind needs an absolute, plain path in UTF-8").on(path));
    }
    Ok(())
}

fn request(step: &'static str) -> FenceError {
    FenceError::new(FenceErrorKind::Request, step, Errno::INVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bind(target: &str, access: BindAccess) -> Bind {
        Bind { source: "/srv/x".into(), target: target.into(), access, owner: BindOwner::Payload }
    }

    fn spec(binds: Vec<Bind>) -> FenceSpec {
        FenceSpec {
            rung: Rung::Ns,
            bubblewrap: None,
            identity: Identity::Caller,
            binds,
            network: FenceNetwork::Empty,
            own_binary: OwnBinary::Absent,
            temp_bytes: 1 << 20,
            max_processes: None,
            group: None,
        }
    }

    #[test]
    fn a_git_folder_inside_the_workspace_is_accepted_and_a_deeper_one_is_not() {
        let workspace = bind("/srv/ws", BindAccess::ReadWrite);
        let git = bind("/srv/ws/.git", BindAccess::ReadOnly);
        assert_eq!(spec(vec![workspace.clone(), git]).check(), Ok(()));
        let deep = spec(vec![workspace, bind("/srv/ws/sub/.git", BindAccess::ReadOnly)]).check().unwrap_err();
        assert_eq!(deep.kind(), FenceErrorKind::Request);
        assert_eq!(deep.path(), Some(Path::new("/srv/ws/sub/.git")));
    }

    #[test]
    fn odd_paths_and_the_fences_own_are_refused() {
        for target in ["relative", "/a/../b", "/", "/etc", "/tmp", "/proc/sys", "/dev/null", "/a\0b"] {
            assert!(spec(vec![bind(target, BindAccess::ReadOnly)]).check().is_err(), "{target:?}");
        }
        for target in ["/tmp/ws", "/dev/shm/x/ws", "/run/user/1000/ws", "/home/agent", "/etc/ssl"] {
            assert_eq!(spec(vec![bind(target, BindAccess::ReadOnly)]).check(), Ok(()), "{target:?}");
        }
        let twice = spec(vec![bind("/x", BindAccess::ReadOnly), bind("/x", BindAccess::ReadWrite)]);
        assert!(twice.check().is_err());
    }

    #[test]
    fn kernel_id_zero_has_its_own_name() {
        let mut spec = spec(Vec::new());
        spec.identity = Identity::Kernel { uid: 0, gid: 7 };
        assert!(spec.check().is_err());
    }

    #[test]
    fn a_fence_that_nests_is_never_kernel_roots_and_one_through_bubblewrap_has_its_path() {
        let nests = FenceSpec { rung: Rung::NsNest, ..spec(Vec::new()) };
        assert_eq!(nests.check(), Ok(()));
        assert!(FenceSpec { identity: Identity::KernelRoot, ..nests }.check().is_err());
        let through = FenceSpec { rung: Rung::Bs, ..spec(Vec::new()) };
        assert!(through.check().is_err());
        let through = FenceSpec { bubblewrap: Some("/usr/bin/bwrap".into()), ..through };
        assert_eq!(through.check(), Ok(()));
        assert!(FenceSpec { identity: Identity::Kernel { uid: 7, gid: 7 }, ..through }.check().is_err());
    }
}
