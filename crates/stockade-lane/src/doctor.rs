//! Doctor: can this host run this agent? Measured by doing it: the fence is built and proven, only the agent is left out.

use std::path::{Path, PathBuf};

use serde::Serialize;
use stockade_core::{
    guarantee::Guarantee,
    mode::{AccessMode, ProviderSandbox},
    order::{Listener, Order, Pin, PinKind},
    plan::{LoadedProfile, plan},
    status::{Cause, Refusal, Status},
    survey::{Refused, Rung, Survey},
};
use stockade_fence::{OwnBinary, survey::Extent};
use stockade_journal::State;

use crate::{admit, home::PrivateHome, pin, place, request::LaneRequest, scratch, storage};

/// What was found out about this host and one kind of run.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Diagnosis {
    /// The provider.
    pub provider: String,
    /// The mode.
    pub mode: AccessMode,
    /// What happens to the provider's own sandbox.
    pub provider_sandbox: ProviderSandbox,
    /// Whether such a run would start.
    pub ready: bool,
    /// The status it would be refused with.
    pub status: Option<Status>,
    /// Why.
    pub cause: Option<Cause>,
    /// The rung it would stand on.
    pub rung: Option<Rung>,
    /// Every guarantee.
    pub guarantees: Vec<DiagnosedGuarantee>,
    /// The executable.
    pub pin: Option<DiagnosedPin>,
    /// Whether a credential is named and present.
    pub credential: String,
    /// What nothing here can prove about the agent, by its profile.
    pub unproven: Vec<String>,
    /// Everything measured.
    pub survey: Survey,
}

/// A guarantee on this host.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DiagnosedGuarantee {
    /// Which.
    pub id: Guarantee,
    /// Whether the mode requires it.
    pub required: bool,
    /// Whether it holds here.
    pub held: bool,
    /// By what, or why not.
    pub mechanism: String,
    /// The canaries that proved it just now.
    pub proof: Vec<String>,
    /// The step that stands in its way.
    pub refused: Option<Refused>,
    /// What to do about it.
    pub remedy: Option<String>,
}

/// The executable on this host.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DiagnosedPin {
    /// Version.
    pub version: Option<String>,
    /// Path.
    pub path: PathBuf,
    /// SHA-256.
    pub sha256: String,
    /// What vouches for it.
    pub pin: PinKind,
}

/// Diagnoses this host for a request. `Err` is a usage error.
pub fn diagnose(request: &LaneRequest) -> Result<Diagnosis, Refusal> {
    let id = uuid::Uuid::now_v7().to_string();
    let state = State::create(&request.state_root).map_err(|e| storage::refusal(&e))?;
    let folder = scratch::make(scratch_path(&id))?;
    let mut request = request.clone();
    folder.path().clone_into(&mut request.cwd);
    let named_endpoint = request.endpoint.is_some() || request.key_env.is_some();
    let key_present = request.key_env.as_ref().is_some_and(|n| request.environment.contains_key(n));
    // The question is about the host: an endpoint is not part of it, and one on loopback needs no key.
    request.endpoint = Some("http://127.0.0.1:9/v1".to_owned());
    request.key_env = None;
    let measuring = admit::survey(&request, Extent::EveryRung);
    let admitted = admit::admit(&request, &id, Listener::default(), &measuring)?;
    let survey = measuring.finish(&Rung::ALL);
    let pin = pin::verify(state.root(), &request.provider, request.executable.as_deref());
    let asked = plan(
        &admitted.order,
        pin.as_ref().unwrap_or(&stand_in(&request.provider)),
        &survey,
        &admitted.profile,
    );
    let (rung, guarantees, broken) = guarantees(&admitted.order, &survey, &admitted.profile, &state, &id)?;
    let refusal = asked.err().or_else(|| pin.as_ref().err().cloned()).or(broken);
    Ok(Diagnosis {
        provider: request.provider.clone(),
        mode: request.mode,
        provider_sandbox: request.provider_sandbox,
        ready: refusal.is_none(),
        status: refusal.as_ref().and_then(|r| r.status),
        cause: refusal.map(|r| *r.cause),
        rung,
        guarantees,
        pin: pin.ok().map(|p| DiagnosedPin {
            version: p.version,
            path: p.path,
            sha256: p.sha256,
            pin: p.kind,
        }),
        credential: match (named_endpoint, key_present) {
            (_, true) => "a key is named and present".to_owned(),
            (true, false) => "an endpoint or a variable is named, and no key is there".to_owned(),
            (false, false) => {
                "none named: a run needs `--key-env NAME`, or `--endpoint URL` on loopback".to_owned()
            }
        },
        unproven: admitted.profile.profile.unproven.clone(),
        survey,
    })
}

/// Stands in for an executable that is not installed, so that the rest of the host can be told all the same. Nothing
/// runs it: it is only mounted.
pub(crate) fn stand_in(provider: &str) -> Pin {
    Pin {
        provider: provider.to_owned(),
        version: None,
        path: std::fs::canonicalize("/bin/sh").unwrap_or_else(|_| PathBuf::from("/bin/sh")),
        sha256: String::new(),
        kind: PinKind::Unpinned,
    }
}

type Found = (Option<Rung>, Vec<DiagnosedGuarantee>, Option<Refusal>);

fn guarantees(
    order: &Order,
    survey: &Survey,
    profile: &LoadedProfile,
    state: &State,
    id: &str,
) -> Result<Found, Refusal> {
    // Where the provider's own sandbox cannot be kept, what the fence alone would give is told all the same.
    let replaced = Order { provider_sandbox: ProviderSandbox::Replace, ..order.clone() };
    let planned = |order: &Order| plan(order, &stand_in(&order.provider), survey, profile);
    let plan = match planned(order).or_else(|_| planned(&replaced)) {
        Ok(plan) => plan,
        Err(refusal) => return Ok((None, missing(order, &refusal), Some(refusal))),
    };
    let home = PrivateHome::stage(state, &plan, b"doctor", None)?;
    let decoys = scratch::make(scratch_path(&format!("{id}-decoys")))?;
    scratch::note_groups(&decoys, &plan)?;
    let host = place::HostPaths { home: home.path(), decoys: decoys.path(), git: None };
    let proven = place::start_helper()
        .and_then(|helper| place::build(helper, &plan, survey, host, OwnBinary::Absent))
        .and_then(|built| place::prove(built, &plan, survey));
    let (proof, broken) = match proven {
        Ok(proven) => {
            proven.fence.close(std::time::Duration::from_secs(5));
            (Some(proven.proof), None)
        }
        Err(refusal) => (None, Some(refusal)),
    };
    // A home that cannot be removed is found by `stockade gc`.
    drop(home.remove());
    let rows = plan
        .guarantees
        .iter()
        .map(|g| DiagnosedGuarantee {
            id: g.id,
            required: g.required,
            held: g.held && broken.is_none(),
            mechanism: g.mechanism.clone(),
            proof: proof.as_ref().map(|p| place::proofs(p, g.id)).unwrap_or_default(),
            refused: broken.as_ref().map(refused_step),
            remedy: broken.as_ref().and_then(|r| r.cause.remedy.clone()),
        })
        .collect();
    Ok((Some(plan.rung), rows, broken))
}

fn missing(order: &Order, refusal: &Refusal) -> Vec<DiagnosedGuarantee> {
    Guarantee::ALL
        .into_iter()
        .filter(|g| *g != Guarantee::WorkspaceReadonly || order.mode == AccessMode::ReadOnly)
        .map(|id| DiagnosedGuarantee {
            id,
            required: id.required_in(order.mode),
            held: false,
            mechanism: refusal.cause.message.clone(),
            proof: Vec::new(),
            refused: Some(refused_step(refusal)),
            remedy: refusal.cause.remedy.clone(),
        })
        .collect()
}

fn refused_step(refusal: &Refusal) -> Refused {
    let errno = refusal.cause.errno.unwrap_or(0);
    Refused {
        step: refusal.cause.step.clone(),
        errno,
        errno_name: stockade_fence::errno_name(errno).to_owned(),
    }
}

fn scratch_path(name: &str) -> PathBuf {
    Path::new("/tmp").join(format!("stockade-doctor-{name}"))
}
