//! A rehearsal from beginning to end.

use std::{fs::File, io::Read, path::Path};

use stockade_core::{mode::AccessMode, status::Refusal};
use stockade_lane::StopRequest;
use stockade_model::Scenario;
use tokio::sync::mpsc;

use crate::{
    error::RehearsalError,
    mode::{self, Ended},
    report::{Check, CheckStatus, RehearsalOutcome, RehearsalReport, ReportStatus},
    request::RehearsalRequest,
    script::Script,
};

/// What a rehearsal plays.
#[derive(Clone, Debug)]
pub(crate) enum Programme {
    /// The built-in scenarios, with all checks.
    Script(&'static Script),
    /// The text of a scenario of the caller's own, with one check.
    Given(String),
}

/// Rehearses each mode in turn. `progress` is told every check as it is judged; what comes over `stops` ends the
/// rehearsal early. An error says nothing about the agent: the rehearsal itself could not be held.
pub async fn rehearse(
    request: &RehearsalRequest,
    progress: &mut dyn FnMut(AccessMode, &Check),
    stops: &mut mpsc::Receiver<StopRequest>,
) -> Result<RehearsalOutcome, RehearsalError> {
    let programme = programme(request)?;
    let modes = if request.modes.is_empty() { &AccessMode::ALL[..] } else { &request.modes };
    let mut reports = Vec::new();
    let mut refusal: Option<Refusal> = None;
    let mut cancelled = false;
    for mode in modes {
        let mut checks = Vec::new();
        let mut told = |check: Check| {
            progress(*mode, &check);
            checks.push(check);
        };
        let ended = mode::rehearse(request, *mode, &programme, &mut told, stops).await?;
        let passed = checks.iter().all(|check| check.status == CheckStatus::Passed);
        let status = match &ended {
            Ended::Refused(_) => ReportStatus::Refused,
            Ended::Played { .. } if passed => ReportStatus::Passed,
            Ended::Played { .. } | Ended::Stopped => ReportStatus::Failed,
        };
        let unproven = match &ended {
            Ended::Played { unproven } => unproven.clone(),
            Ended::Refused(_) | Ended::Stopped => Vec::new(),
        };
        reports.push(RehearsalReport {
            provider: request.lane.provider.clone(),
            mode: *mode,
            status,
            checks,
            unproven,
        });
        match ended {
            Ended::Refused(why) => refusal = refusal.or(Some(why)),
            Ended::Played { .. } => {}
            Ended::Stopped => {
                cancelled = true;
                break;
            }
        }
    }
    Ok(RehearsalOutcome { reports, refusal, cancelled })
}

fn programme(request: &RehearsalRequest) -> Result<Programme, RehearsalError> {
    if let Some(path) = &request.scenario {
        return read(path).map(Programme::Given);
    }
    match Script::of(&request.lane.provider) {
        Some(script) => Ok(Programme::Script(script)),
        None => Err(RehearsalError::NoScenario { provider: request.lane.provider.clone() }),
    }
}

fn read(path: &Path) -> Result<String, RehearsalError> {
    let failed = |source| RehearsalError::ScenarioFile { path: path.to_owned(), source };
    let limit = u64::try_from(Scenario::MAX_BYTES).unwrap_or(u64::MAX);
    let mut text = String::new();
    // One byte more, so that the parser sees a file that is too long.
    let file = File::open(path).map_err(failed)?;
    file.take(limit.saturating_add(1)).read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}
