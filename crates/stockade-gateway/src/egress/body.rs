//! The body of a plain request or its answer on its way through: counted, and given up when it stands still.

use std::{
    error::Error,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep, sleep};

use super::{
    relay::IDLE_LIMIT,
    state::{Direction, State},
};

/// What the agent gets as a body: made here, or passing through.
pub(super) type ProxyBody = Either<Full<Bytes>, Passing>;

/// A body that passes through.
#[derive(Debug)]
pub(super) struct Passing {
    body: Incoming,
    state: Arc<State>,
    direction: Direction,
    idle: Pin<Box<Sleep>>,
}

impl Passing {
    pub(super) fn new(body: Incoming, state: Arc<State>, direction: Direction) -> Self {
        Self { body, state, direction, idle: Box::pin(sleep(IDLE_LIMIT)) }
    }
}

impl Body for Passing {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) else {
            ready!(self.idle.as_mut().poll(context));
            return Poll::Ready(Some(Err("nothing moved for too long".into())));
        };
        self.idle.as_mut().reset(Instant::now() + IDLE_LIMIT);
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            self.state.carried(self.direction, data.len());
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
