//! What Stockade keeps on disk: the state directory, the directory of each run, the caller's reserved files, receipts,
//! and what is left over; and the walker that sees what changed in a workspace.
//!
//! Nothing here prints, reads the environment or asks the clock: paths and times come in from the caller. Every file is
//! opened relative to a folder and without following links, every buffer and file is bounded.

pub mod copy;
pub mod digest;
mod error;
mod files;
pub mod gc;
pub mod git_config;
pub mod launcher;
pub mod receipts;
pub mod remove;
pub mod reservation;
pub mod residue;
pub mod run_dir;
pub mod scratch;
pub mod state;
#[cfg(test)]
mod testing;
pub mod walk;
pub mod workspace_lock;

pub use copy::{Copied, copy_bounded_nofollow};
pub use error::{ErrorKind, JournalError};
pub use launcher::{is_alive, launcher_record};
pub use remove::remove_tree;
pub use reservation::{Placed, Released, Reservation, ReservationRequest};
pub use residue::Residue;
pub use run_dir::{RunDir, Stream, Transcript, TranscriptRecord};
pub use scratch::Scratch;
pub use state::State;
