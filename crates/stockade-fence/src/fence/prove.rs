//! Proving a fence: canaries inside, controls outside.

use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use stockade_core::survey::Rung;

use crate::canary::{self, CanaryPlan, Decoys, NetworkIs, Proof, ProofError, ProofRequest};
use crate::error::{FenceError, FenceErrorKind, Step};
use crate::fence::{Fence, Notice};
use crate::frames::wait_readable;
use crate::message::Work;
use crate::role::{Role, RoleId, SpawnLimits};
use crate::spec::{FenceNetwork, Identity};
use crate::stdio;

/// How long the canaries may take; they take 1 to 2 ms.
const PROOF_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest answer of the canaries.
const MAX_ANSWER: usize = 64 * 1024;

/// Decoys in place, with what the canaries are to try with them.
#[derive(Debug)]
pub struct PlacedDecoys {
    decoys: Decoys,
    plan: CanaryPlan,
    took: Duration,
}

impl PlacedDecoys {
    pub(super) fn place(
        request: &ProofRequest,
        network: FenceNetwork,
        rung: Rung,
    ) -> Result<Self, ProofError> {
        let start = Instant::now();
        let network = if network == FenceNetwork::Host { NetworkIs::Hosts } else { NetworkIs::Own };
        let (decoys, plan) = Decoys::place(request, network, rung)?;
        Ok(Self { decoys, plan, took: start.elapsed() })
    }
}

impl Fence {
    /// Proves the fence with canaries from inside, each with a positive control outside. One that does not do what it
    /// must is the error, and says nothing about another rung.
    pub fn prove(&mut self, request: &ProofRequest) -> Result<Proof, ProofError> {
        let placed = PlacedDecoys::place(request, self.network, self.rung)?;
        self.prove_with(placed)
    }

    /// The same with decoys that were placed while this fence was built.
    pub fn prove_with(&mut self, placed: PlacedDecoys) -> Result<Proof, ProofError> {
        let start = Instant::now();
        let PlacedDecoys { decoys, plan, took } = placed;
        let tried = self.try_canaries(&plan, start + PROOF_TIMEOUT)?;
        let canaries = canary::judge(&plan, &tried)?;
        if decoys.was_written() {
            return Err(
                FenceError::new(FenceErrorKind::Refused, "a canary wrote outside", Errno::EXIST).into()
            );
        }
        let kernel_uid = self.kernel_uid()?;
        Ok(Proof { canaries, kernel_uid, elapsed: took + start.elapsed() })
    }

    fn try_canaries(&mut self, plan: &CanaryPlan, end: Instant) -> Result<Vec<(String, i32)>, FenceError> {
        let (theirs, ours) = stdio::sockets()?;
        let role = self.start(Role::Canary, Work::Canaries(plan.clone()), SpawnLimits::default(), theirs)?;
        let text = read_to_end(ours.stdout, end)?;
        self.wait_for(role, end)?;
        serde_json::from_slice(&text)
            .map_err(|_| FenceError::bare(FenceErrorKind::Helper, "the canaries gave no answer"))
    }

    /// Waits for the end of a role and takes its notice; others stay for the caller.
    fn wait_for(&mut self, role: RoleId, end: Instant) -> Result<(), FenceError> {
        let mut others = Vec::new();
        let result = loop {
            match self.next_notice() {
                Ok(Some(Notice::Exited(exited))) if exited.role == role => break Ok(()),
                Ok(Some(other @ Notice::Exited(_))) => others.push(other),
                Ok(Some(Notice::Closed)) => {
                    others.push(Notice::Closed);
                    break Err(FenceError::bare(FenceErrorKind::Helper, "the helper ended"));
                }
                Ok(None) => {
                    let left = end.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        break Err(late());
                    }
                    if let Err(error) = wait_readable(self.control(), left) {
                        break Err(error);
                    }
                }
                Err(error) => break Err(error),
            }
        };
        self.notices.extend(others);
        result
    }

    /// The kernel uid of PID 1, which every role shares, as the host's /proc shows it. Its group and groups are compared, too.
    fn kernel_uid(&self) -> Result<u32, ProofError> {
        let path = format!("/proc/{}/status", self.pid.as_raw_pid());
        let status = std::fs::read_to_string(&path).step_on("read", &path)?;
        let ids = |key: &str| -> Result<Vec<u32>, FenceError> {
            let line = status.lines().find_map(|line| line.strip_prefix(key));
            line.and_then(|rest| rest.split_whitespace().map(|id| id.parse().ok()).collect())
                .ok_or_else(|| FenceError::new(FenceErrorKind::Refused, "read the kernel ids", Errno::NODATA))
        };
        let (uids, gids, groups) = (ids("Uid:")?, ids("Gid:")?, ids("Groups:")?);
        let planned = match self.identity {
            Identity::Caller => (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()),
            Identity::Kernel { uid, gid } => (uid, gid),
            Identity::KernelRoot => (0, 0),
        };
        for (planned, seen) in [(planned.0, uids), (planned.1, gids)] {
            if let Some(seen) = seen.into_iter().find(|seen| *seen != planned) {
                return Err(ProofError::KernelId { planned, seen });
            }
        }
        // A caller without privileges keeps what groups it has.
        match groups.first() {
            Some(group) if self.identity != Identity::Caller && self.rung != Rung::Bs => {
                Err(ProofError::KernelGroup { seen: *group })
            }
            _ => Ok(planned.0),
        }
    }
}

fn read_to_end(stream: OwnedFd, end: Instant) -> Result<Vec<u8>, FenceError> {
    let mut file = std::fs::File::from(stream);
    let mut bytes = Vec::new();
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || bytes.len() > MAX_ANSWER {
            return Err(late());
        }
        wait_readable(file.as_fd(), left)?;
        let mut chunk = [0; 4096];
        match file.read(&mut chunk).step("read")? {
            0 => return Ok(bytes),
            n => bytes.extend(chunk.iter().take(n)),
        }
    }
}

fn late() -> FenceError {
    FenceError::new(FenceErrorKind::Helper, "wait for the canaries", Errno::TIMEDOUT)
}
