//! The caller's own files, reserved before anything starts.

use std::path::PathBuf;

use stockade_core::{mode::AccessMode, status::Refusal};
use stockade_journal::{Reservation, ReservationRequest, RunDir};

use crate::{
    admit::Admitted,
    conclude::{self, Paths},
    request::LaneRequest,
    storage,
};

/// The caller's files, reserved.
#[derive(Debug)]
pub(crate) struct Reserved {
    pub(crate) output: Option<Reservation>,
    pub(crate) receipt: Option<Reservation>,
}

impl Reserved {
    /// Where they are.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        [&self.output, &self.receipt].into_iter().flatten().map(|r| r.path().to_owned()).collect()
    }

    /// Takes all of them, or none; the run directory's own receipt with them.
    pub(crate) fn take(
        request: &LaneRequest,
        admitted: &Admitted,
        paths: &Paths,
        run: &RunDir,
    ) -> Result<Self, Refusal> {
        let mut writable = admitted.order.writes.clone();
        let workspace = &admitted.order.workspace;
        // A folder that is refused as a workspace is never shown to anybody, and the refusal needs its receipt.
        let is_refused = workspace.objections.iter().any(|o| o.modes.contains(&admitted.order.mode));
        if admitted.order.mode == AccessMode::IsolatedWrite && !is_refused && !workspace.is_replaced() {
            writable.push(workspace.path.clone());
        }
        let bytes = conclude::receipt_bytes(&conclude::interrupted(request, admitted, paths));
        let absolute = |p: &Option<PathBuf>| p.as_deref().map(conclude::absolute);
        let (output, receipt) = (absolute(&request.output), absolute(&request.receipt));
        let mut requests = Vec::new();
        requests.extend(output.as_deref().map(|path| ReservationRequest { path, initial: b"" }));
        requests.extend(receipt.as_deref().map(|path| ReservationRequest { path, initial: &bytes }));
        let mut taken =
            Reservation::make_all(&requests, &writable).map_err(|e| storage::refusal(&e))?.into_iter();
        let reserved = Self {
            output: if output.is_some() { taken.next() } else { None },
            receipt: if receipt.is_some() { taken.next() } else { None },
        };
        if let Err(e) = run.reserve_receipt(&bytes) {
            for taken in [reserved.output, reserved.receipt].into_iter().flatten() {
                // The failure that ends the order is the one to report.
                drop(taken.roll_back());
            }
            return Err(storage::refusal(&e));
        }
        Ok(reserved)
    }
}
