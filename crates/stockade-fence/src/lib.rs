//! The fence: kernel survey, namespaces, canaries, PID 1 and the process tree.
//!
//! A fence is a place, not an exec. [`Fence::build`] makes namespaces, a root with nothing in it but what was named,
//! listeners and a PID 1; [`Fence::prove`] shows from inside that it holds; [`Fence::spawn`] starts roles in it, one after
//! another; [`Fence::close`] ends it, and the kernel says when everything is gone. It dies with the process that built it.
//!
//! Programs that use it call [`helper::enter_if_asked`] first in `main`.

#[cfg(not(target_os = "linux"))]
compile_error!("the fence is Linux only");

mod canary;
mod confine;
mod errno;
mod error;
mod fence;
mod frames;
mod group;
pub mod helper;
mod identity;
mod idmap;
mod message;
pub mod probes;
mod role;
mod spec;
mod stat_line;
pub mod stdio;
pub mod survey;
mod sys;

pub use canary::{CanaryResult, Expectation, Proof, ProofError, ProofRequest, WorkspaceProof};
pub use errno::errno_name;
pub use error::{FenceError, FenceErrorKind};
pub use fence::{
    BuildFacts, BuildingFence, Fence, Listeners, Notice, PlacedDecoys, StartedHelper, Stuck, TreeEnd,
};
pub use group::{GroupEnd, GroupSpec, MemoryReading};
pub use identity::private_kernel_id;
pub use message::Exited;
pub use role::{ProcessStat, Role, RoleId, SpawnLimits, SpawnRequest, Target, TreeStat};
pub use spec::{
    Bind, BindAccess, BindOwner, EGRESS_PORT, FenceNetwork, FenceSpec, INNER_HOME, INNER_ID, Identity,
    MODEL_PORT, NAMES_PORT, OWN_BINARY, OwnBinary,
};
