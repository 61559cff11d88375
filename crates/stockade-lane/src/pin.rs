//! Verify: the pinned executable, or the one that the caller named.

use std::path::Path;

use stockade_core::{
    order::{Pin, PinKind},
    status::{Boundary, Cause, Refusal, Status},
};
use stockade_pins::{PinError, PinErrorKind, PinList, Store, Verified};

/// Finds and proves the executable of a provider.
pub(crate) fn verify(state: &Path, provider: &str, executable: Option<&Path>) -> Result<Pin, Refusal> {
    let verified = match executable {
        Some(path) => stockade_pins::executable_file(provider, path),
        None => PinList::shipped().and_then(|pins| {
            let store = Store::new(state, pins);
            store.resolve(provider, None).and_then(|installed| store.verify(&installed))
        }),
    };
    verified.map(pin_of).map_err(|e| refused(&e))
}

/// Refuses what Stockade's own pin list does not name, where a config file says so.
pub(crate) fn require_listed(pin: &Pin, forbidden_by: Option<&str>) -> Result<(), Refusal> {
    match forbidden_by {
        Some(file) if pin.kind != PinKind::Stockade => Err(Refusal::new(
            Status::ExecutableRefused,
            Cause::new(
                "pin-not-listed",
                Boundary::Executable,
                "pin",
                format!("`{file}` lets only versions of Stockade's own pin list run"),
            )
            .with_evidence(pin.path.display().to_string())
            .with_remedy(format!("install a listed version: `stockade provision {}`", pin.provider)),
        )),
        _ => Ok(()),
    }
}

fn pin_of(v: Verified) -> Pin {
    Pin {
        provider: v.provider,
        version: v.version,
        path: v.path,
        sha256: v.sha256.to_string(),
        kind: match v.pin {
            stockade_pins::PinKind::Stockade => PinKind::Stockade,
            stockade_pins::PinKind::User => PinKind::User,
            stockade_pins::PinKind::Retired => PinKind::Retired,
            stockade_pins::PinKind::Unpinned => PinKind::Unpinned,
        },
    }
}

/// A failure to prove an executable, as the ending of a run.
pub(crate) fn refused(e: &PinError) -> Refusal {
    let cause = |code: &str, boundary| {
        let mut cause = Cause::new(code, boundary, e.step().to_string(), e.to_string())
            .with_errno(e.errno().unwrap_or(0));
        if let Some(path) = e.path() {
            cause = cause.with_evidence(path.display().to_string());
        }
        match e.hint() {
            Some(hint) => cause.with_remedy(hint),
            None => cause,
        }
    };
    let refusal = match e.kind() {
        PinErrorKind::Usage => Refusal::usage(cause("executable", Boundary::Order)),
        PinErrorKind::Unavailable | PinErrorKind::Unreachable => {
            Refusal::new(Status::UnavailableCli, cause("not-provisioned", Boundary::Executable))
        }
        PinErrorKind::Storage => Refusal::new(Status::StorageFailed, cause("storage", Boundary::Storage)),
        _ => Refusal::new(Status::ExecutableRefused, cause("executable-refused", Boundary::Executable)),
    };
    match e.path() {
        Some(path) => refusal.with_path(path),
        None => refusal,
    }
}
