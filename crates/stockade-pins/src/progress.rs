//! Progress out, the wish to stop in.

use std::ops::ControlFlow;

use crate::error::{PinError, Step};

/// What is being done at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// Another process provisions the same version; waiting for it.
    Waiting,
    /// Connecting to the registry.
    Connecting,
    /// Receiving the tarball.
    Downloading,
    /// Reading the caller's own file.
    Reading,
    /// Unpacking, decompressing, hashing and writing.
    Unpacking,
    /// Writing everything through to the disk and moving it into place.
    Installing,
}

/// One report of progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is being done.
    pub phase: Phase,
    /// Bytes done in this phase.
    pub done: u64,
    /// Bytes there are in this phase, where that is known.
    pub total: Option<u64>,
}

/// The caller's eye on a provision: told of progress at least every tenth of a second while waiting for the network or for
/// another process, and asked each time whether to go on.
pub(crate) struct Watch<'a>(pub(crate) &'a mut dyn FnMut(Progress) -> ControlFlow<()>);

impl Watch<'_> {
    pub(crate) fn report(
        &mut self,
        step: Step,
        phase: Phase,
        done: u64,
        total: Option<u64>,
    ) -> Result<(), PinError> {
        match (self.0)(Progress { phase, done, total }) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(PinError::cancelled(step)),
        }
    }
}
