//! The body of an answer on its way to the agent.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use thiserror::Error;
use tokio::sync::mpsc;

/// A part of an answer that passes through.
#[derive(Debug)]
pub(crate) enum Piece {
    /// Bytes, as they arrived.
    Data(Bytes),
    /// The answer is whole.
    End,
}

/// The endpoint's answer broke off; the agent's connection has to break off too.
#[derive(Debug, Error)]
#[error("the answer of the endpoint broke off")]
pub(crate) struct BrokenOff;

/// The body of an answer.
#[derive(Debug)]
pub(crate) enum AgentBody {
    /// Made here.
    Whole(Option<Bytes>),
    /// Passing through. A channel that closes without [`Piece::End`] is an answer that broke off.
    Passing(mpsc::Receiver<Piece>),
    /// Broken off; what was passed before still has to be written.
    Breaking,
    /// Passed through to its end.
    Passed,
}

impl From<Bytes> for AgentBody {
    fn from(bytes: Bytes) -> Self {
        Self::Whole(Some(bytes).filter(|b| !b.is_empty()))
    }
}

impl Body for AgentBody {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        let next = match &mut *self {
            Self::Whole(bytes) => return Poll::Ready(bytes.take().map(|b| Ok(Frame::data(b)))),
            Self::Passed => return Poll::Ready(None),
            Self::Breaking => return Poll::Ready(Some(Err(BrokenOff))),
            Self::Passing(pieces) => std::task::ready!(pieces.poll_recv(context)),
        };
        match next {
            Some(Piece::Data(bytes)) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            Some(Piece::End) => {
                *self = Self::Passed;
                Poll::Ready(None)
            }
            None => {
                // An error drops what the server has not written; a wait makes it write.
                *self = Self::Breaking;
                context.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_none(),
            Self::Passing(_) | Self::Breaking => false,
            Self::Passed => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64)),
            Self::Passing(_) | Self::Breaking => SizeHint::default(),
            Self::Passed => SizeHint::with_exact(0),
        }
    }
}
