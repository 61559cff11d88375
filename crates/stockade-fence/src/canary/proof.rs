//! What the canaries showed.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stockade_core::guarantee::Guarantee;

use crate::canary::{Canary, CanaryPlan};
use crate::errno::errno_name;
use crate::error::FenceError;
use crate::spec::BindAccess;

/// What a proof needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProofRequest {
    /// A folder of the host that is private to the run and is not bound into the fence.
    pub decoys: PathBuf,
    /// The workspace; `None`: the fence has none.
    pub workspace: Option<WorkspaceProof>,
    /// Paths inside that must not be writable although the workspace around them is: its git folder.
    pub protected: Vec<PathBuf>,
}

/// A workspace and what has to be true of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceProof {
    /// Its path inside.
    pub path: PathBuf,
    /// Whether it must be writable or must not be.
    pub access: BindAccess,
}

/// What has to come of a canary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Expectation {
    /// It fails.
    Denied,
    /// It works.
    Works,
}

/// One canary, tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CanaryResult {
    /// Its name.
    pub name: String,
    /// The guarantee it stands for.
    pub guarantee: Guarantee,
    /// What has to come of it.
    pub expected: Expectation,
    /// The error number inside, 0 where it worked; `None`: it was not tried.
    pub inside: Option<i32>,
    /// The name of that error number.
    pub inside_name: String,
    /// What was shown outside at the same moment.
    pub control: String,
}

impl CanaryResult {
    fn holds(&self, denials: &[i32]) -> bool {
        match (self.expected, self.inside) {
            (Expectation::Works, Some(0)) => true,
            (Expectation::Denied, Some(errno)) => denials.contains(&errno),
            _ => false,
        }
    }
}

/// A fence whose canaries all did what they must.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// Every canary that applies.
    pub canaries: Vec<CanaryResult>,
    /// The payload's kernel uid, as the host's /proc shows it.
    pub kernel_uid: u32,
    /// How long it took.
    pub elapsed: Duration,
}

/// Why a fence is not proven.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    /// A canary did not do what it must.
    #[error("canary `{}` {}", .0.name, outcome(.0))]
    Canary(Box<CanaryResult>),
    /// A positive control failed: what must be reachable outside is not, so that a denial inside would prove nothing.
    #[error("positive control of canary `{name}` failed outside: {}", errno_name(*errno))]
    Control {
        /// The canary.
        name: &'static str,
        /// The error number.
        errno: i32,
    },
    /// The payload has another kernel id, of a user or a group, than planned.
    #[error("the payload runs as kernel id {seen} instead of {planned}")]
    KernelId {
        /// As planned.
        planned: u32,
        /// As seen in the host's /proc.
        seen: u32,
    },
    /// The payload is in a group that it should have left.
    #[error("the payload is in kernel group {seen}, which it should have left")]
    KernelGroup {
        /// As seen in the host's /proc.
        seen: u32,
    },
    /// The canaries could not be run.
    #[error(transparent)]
    Fence(#[from] FenceError),
}

fn outcome(result: &CanaryResult) -> String {
    match (result.expected, result.inside) {
        (_, None) => "was not tried".to_owned(),
        (Expectation::Denied, Some(0)) => "worked inside and must not".to_owned(),
        (Expectation::Denied, Some(_)) => {
            format!("failed inside in an unexpected way: {}", result.inside_name)
        }
        (Expectation::Works, Some(_)) => format!("must work inside and failed: {}", result.inside_name),
    }
}

/// Compares what came of the canaries with what must. The first that differs is the error.
pub(crate) fn judge(plan: &CanaryPlan, tried: &[(String, i32)]) -> Result<Vec<CanaryResult>, ProofError> {
    let tried: HashMap<&str, i32> = tried.iter().map(|(name, errno)| (name.as_str(), *errno)).collect();
    let mut results = Vec::new();
    for canary in Canary::ALL.into_iter().filter(|c| c.applies(plan)) {
        let inside = tried.get(canary.name()).copied();
        let result = CanaryResult {
            name: canary.name().to_owned(),
            guarantee: canary.guarantee(plan),
            expected: canary.expectation(plan),
            inside,
            inside_name: inside.map(errno_name).unwrap_or_default().to_owned(),
            control: shown_outside(canary).to_owned(),
        };
        if !result.holds(canary.denials()) {
            return Err(ProofError::Canary(Box::new(result)));
        }
        results.push(result);
    }
    Ok(results)
}

/// The positive control of each canary, in words.
const fn shown_outside(canary: Canary) -> &'static str {
    match canary {
        Canary::SecretFile => "the file was read outside",
        Canary::ShadowFile => "the file exists outside",
        Canary::WriteOutside => "a file was made in that folder outside",
        Canary::TcpDecoy | Canary::AbstractDecoy => "a connection was made outside",
        Canary::ProcessDecoy => "the process was seen outside",
        Canary::ProcessSecrets => "the process was opened outside",
        Canary::SecondLock => "the same call worked outside",
        Canary::UserNamespace | Canary::Mount => "the fence itself was made by such calls",
        Canary::SetuidInWorkspace
        | Canary::SetuidInHome
        | Canary::FileCapability
        | Canary::NestedCapability => "a plain file was made in the home inside",
        Canary::NestedRemount | Canary::NestedSetting => "a file system was mounted in that namespace",
        Canary::WorkspaceWrite | Canary::ProtectedWrite => "a file was made in /tmp inside",
        Canary::KernelSetting | Canary::Privileges | Canary::StdinReopen => "none: a state, not a place",
        Canary::HomeWrite | Canary::TempWrite => "none needed: it has to work",
    }
}

#[cfg(test)]
mod tests {
    use stockade_core::survey::Rung;

    use super::*;
    use crate::canary::ProcessMark;

    fn plan(access: BindAccess) -> CanaryPlan {
        CanaryPlan {
            secret: "/d/secret".into(),
            outside: "/d/written".into(),
            shadow_exists: true,
            tcp_port: Some(1),
            abstract_name: Some("x".into()),
            process: ProcessMark { pid: 5, started: 7 },
            workspace: Some(WorkspaceProof { path: "/ws".into(), access }),
            protected: Vec::new(),
            rung: Rung::Ns,
        }
    }

    /// On a rung that nests more is tried, and one thing must work.
    fn nesting() -> CanaryPlan {
        CanaryPlan { rung: Rung::NsNest, ..plan(BindAccess::ReadWrite) }
    }

    fn good(plan: &CanaryPlan) -> Vec<(String, i32)> {
        let good = |c: Canary| match c.expectation(plan) {
            Expectation::Works => 0,
            Expectation::Denied => c.denials()[0],
        };
        Canary::ALL.into_iter().filter(|c| c.applies(plan)).map(|c| (c.name().to_owned(), good(c))).collect()
    }

    #[test]
    fn a_fence_is_proven_only_by_every_canary() {
        let plan = plan(BindAccess::ReadWrite);
        let good = good(&plan);
        assert_eq!(judge(&plan, &good).unwrap().len(), good.len());
        for missing in 0..good.len() {
            let mut tried = good.clone();
            let (name, _) = tried.remove(missing);
            let ProofError::Canary(result) = judge(&plan, &tried).unwrap_err() else { panic!("{name}") };
            assert_eq!(result.name, name);
        }
    }

    #[test]
    fn a_canary_that_lives_is_named_and_so_is_one_that_dies_oddly() {
        let plan = plan(BindAccess::ReadOnly);
        for (errno, words) in [(0, "worked inside and must not"), (libc::EMFILE, "unexpected way: EMFILE")] {
            let mut tried = good(&plan);
            tried.iter_mut().filter(|(name, _)| name == "workspace-write").for_each(|(_, e)| *e = errno);
            let error = judge(&plan, &tried).unwrap_err();
            assert!(error.to_string().contains("`workspace-write`"), "{error}");
            assert!(error.to_string().contains(words), "{error}");
        }
    }

    #[test]
    fn a_rung_that_nests_is_proven_only_if_a_sandbox_can_be_made_and_holds() {
        let plan = nesting();
        let good = good(&plan);
        assert_eq!(judge(&plan, &good).unwrap().len(), good.len());
        for (name, errno) in [
            ("user-namespace", libc::EPERM),
            ("nested-remount", 0),
            ("nested-setting", 0),
            ("nested-capability", 0),
            ("kernel-setting", 0),
        ] {
            let mut tried = good.clone();
            tried.iter_mut().filter(|(n, _)| n == name).for_each(|(_, e)| *e = errno);
            let ProofError::Canary(result) = judge(&plan, &tried).unwrap_err() else { panic!("{name}") };
            assert_eq!(result.name, name);
        }
    }

    #[test]
    fn a_write_that_must_work_and_does_not_is_an_error() {
        let plan = plan(BindAccess::ReadWrite);
        let mut tried = good(&plan);
        tried.iter_mut().filter(|(name, _)| name == "workspace-write").for_each(|(_, e)| *e = libc::EROFS);
        let error = judge(&plan, &tried).unwrap_err().to_string();
        assert_eq!(error, "canary `workspace-write` must work inside and failed: EROFS");
    }
}
