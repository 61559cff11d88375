//! A response body that is written by a future.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame};
use tokio::sync::mpsc;

/// Breaks a body off, so that the connection is dropped without its proper end.
#[derive(Debug, thiserror::Error)]
#[error("the scenario drops the connection")]
pub(crate) struct Aborted;

/// Where the pieces of a body go.
pub(crate) type Output = mpsc::Sender<Result<Bytes, Aborted>>;

/// A body and the future that writes it. The future runs only while somebody reads, and is dropped with the body:
/// when the client goes away, so does the rest of the answer.
pub(crate) struct PlayedBody {
    writer: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    pieces: mpsc::Receiver<Result<Bytes, Aborted>>,
}

impl PlayedBody {
    pub(crate) fn new<F>(writer: impl FnOnce(Output) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (output, pieces) = mpsc::channel(1);
        Self { writer: Some(Box::pin(writer(output))), pieces }
    }
}

impl fmt::Debug for PlayedBody {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("PlayedBody").field("written", &self.writer.is_none()).finish_non_exhaustive()
    }
}

impl Body for PlayedBody {
    type Data = Bytes;
    type Error = Aborted;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Aborted>>> {
        let this = self.get_mut();
        if let Some(writer) = &mut this.writer
            && writer.as_mut().poll(context).is_ready()
        {
            this.writer = None;
        }
        this.pieces.poll_recv(context).map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}
