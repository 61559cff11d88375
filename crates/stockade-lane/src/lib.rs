//! One lane: from an order to a receipt.

mod admit;
mod clock;
mod conclude;
mod doctor;
mod exposure;
pub mod fault;
mod fence_check;
pub mod git;
mod growth;
mod home;
mod idle;
mod limits;
mod listener;
mod pace;
mod pin;
mod place;
mod preflight;
mod probe_host;
mod question;
mod recorder;
mod repository;
mod request;
mod reserved;
mod run;
mod sandbox_probe;
pub mod scratch;
mod settings;
mod stopping;
mod storage;
mod streams;
mod watch;
mod writable;

pub use clock::wall_time;
pub use doctor::{DiagnosedGuarantee, DiagnosedPin, Diagnosis, diagnose};
pub use fence_check::{
    Checked, CheckedGuarantee, CheckedProbe, FenceCheck, FenceCheckRequest, FoundOutside, Part, Progress,
    check_fence,
};
pub use preflight::{PREFLIGHT_ASKED_AGAIN, PREFLIGHT_WAITS};
pub use probe_host::probe_host;
pub use recorder::{Observer, Unwatched};
pub use request::{LaneRequest, PromptSource, StopRequest, WorktreeChoice};
pub use run::{LaneOutcome, preview, run};
