//! A rehearsal from beginning to end.

use stockade_core::mode::AccessMode;
use stockade_lane::StopRequest;
use tokio::sync::mpsc;

use crate::{
    error::RehearsalError,
    report::{Check, RehearsalOutcome},
    request::RehearsalRequest,
};

/// Rehearses each mode in turn. `progress` is told every check as it is judged; `stops` ends the rehearsal early.
pub async fn rehearse(
    request: &RehearsalRequest,
    _progress: &mut dyn FnMut(AccessMode, &Check),
    _stops: &mut mpsc::Receiver<StopRequest>,
) -> Result<RehearsalOutcome, RehearsalError> {
    Err(RehearsalError::NoScenario { provider: request.lane.provider.clone() })
}
