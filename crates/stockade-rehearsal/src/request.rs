//! What the caller hands to a rehearsal.

use std::path::PathBuf;

use stockade_core::mode::AccessMode;
use stockade_lane::LaneRequest;

/// One rehearsal as the caller asks for it.
#[derive(Clone, Debug)]
pub struct RehearsalRequest {
    /// What every lane of the rehearsal has in common. Mode, workspace, prompt, instructions, endpoint, credential,
    /// network, the caller's files and the name of the rehearsal are put in by the rehearsal itself.
    pub lane: LaneRequest,
    /// The modes to rehearse; empty: all of them.
    pub modes: Vec<AccessMode>,
    /// A scenario of the caller's own in place of the built-in ones. It may name the variable `{{workspace}}`.
    pub scenario: Option<PathBuf>,
    /// The program that serves a scripted model when called as
    /// `PROGRAM scripted-model --scenario FILE --listen 127.0.0.1:0 --log FILE [--var NAME=VALUE]...`.
    pub stockade: PathBuf,
    /// Where the folders for workspaces and decoys are made. Must not lie under the state directory or in a home.
    pub scratch_parent: PathBuf,
}
