//! Plays a completion: what is sent, when, and how it ends.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::body::{Aborted, Output};
use super::{Stage, wait};
use crate::scenario::{Completion, Ending};
use crate::wire::Form;
use crate::wire::chat::Encoder;

/// The entry in the log about one answer. Dropped before it is complete, it says that the client went away.
#[derive(Debug)]
pub(crate) struct Record {
    stage: Arc<Stage>,
    sequence: u64,
    open: bool,
}

impl Record {
    pub(crate) fn new(stage: Arc<Stage>, sequence: u64) -> Self {
        Self { stage, sequence, open: true }
    }

    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The answer was given as it was meant.
    pub(crate) fn complete(mut self, status: Option<u16>) {
        self.open = false;
        self.stage.log.answered(self.sequence, status, true);
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if self.open {
            self.stage.log.answered(self.sequence, None, false);
        }
    }
}

/// One completion, ready to be played.
#[derive(Debug)]
pub(crate) struct Play {
    pub(crate) completion: Completion,
    pub(crate) encoder: Encoder,
    pub(crate) form: Form,
}

/// The reader of the body is gone.
struct Gone;

impl Play {
    /// Writes the answer. The end of the future is the end of the body.
    pub(crate) async fn run(self, record: Record, output: Output) {
        let outlet = Outlet { output, byte_pause: self.completion.byte_pause };
        let played = match self.form {
            Form::Stream { .. } => self.stream(&record, &outlet).await,
            Form::Whole => self.whole(&record, &outlet).await,
        };
        if played.is_ok() {
            record.complete(Some(200));
        }
    }

    async fn stream(&self, record: &Record, outlet: &Outlet) -> Result<(), Gone> {
        let Self { completion, encoder, form } = self;
        let says_nothing =
            completion.think.is_empty() && completion.text.is_empty() && completion.tools.is_empty();
        if !(says_nothing && completion.ending == Ending::Hang) {
            outlet.send(encoder.open()).await?;
        }
        for piece in &completion.think {
            outlet.send(encoder.think(piece)).await?;
            wait(completion.gap).await;
        }
        for piece in &completion.text {
            outlet.send(encoder.text(piece)).await?;
            wait(completion.gap).await;
        }
        self.hold(record, outlet).await?;
        for (index, call) in completion.tools.iter().enumerate() {
            outlet.send(encoder.tool(index, call)).await?;
        }
        match (completion.ending, form) {
            (Ending::Finish, Form::Stream { usage }) => outlet.send(encoder.finish(completion, *usage)).await,
            (Ending::Malformed, _) => outlet.send(Encoder::malformed()).await,
            (ending, _) => end(ending, outlet).await,
        }
    }

    async fn whole(&self, record: &Record, outlet: &Outlet) -> Result<(), Gone> {
        let Self { completion, encoder, .. } = self;
        self.hold(record, outlet).await?;
        let object = encoder.whole(completion);
        let half = object.slice(..object.len() / 2);
        match completion.ending {
            Ending::Finish => outlet.send(object).await,
            Ending::Malformed => outlet.send(Encoder::malformed()).await,
            Ending::Hang => end(Ending::Hang, outlet).await,
            ending @ (Ending::Cut | Ending::Abort) => {
                outlet.send(half).await?;
                end(ending, outlet).await
            }
        }
    }

    async fn hold(&self, record: &Record, outlet: &Outlet) -> Result<(), Gone> {
        let Some(name) = &self.completion.hold else { return Ok(()) };
        outlet.flush().await?;
        record.stage.log.held(name);
        record.stage.holds.wait(name).await;
        record.stage.log.released(name);
        Ok(())
    }
}

/// The endings that send nothing more.
async fn end(ending: Ending, outlet: &Outlet) -> Result<(), Gone> {
    match ending {
        Ending::Finish | Ending::Malformed | Ending::Cut => Ok(()),
        Ending::Abort => outlet.abort().await,
        Ending::Hang => std::future::pending().await,
    }
}

struct Outlet {
    output: Output,
    byte_pause: Option<Duration>,
}

impl Outlet {
    async fn send(&self, bytes: Bytes) -> Result<(), Gone> {
        let Some(pause) = self.byte_pause else {
            return self.output.send(Ok(bytes)).await.map_err(|_| Gone);
        };
        for index in 0..bytes.len() {
            let byte = bytes.slice(index..=index);
            self.output.send(Ok(byte)).await.map_err(|_| Gone)?;
            wait(pause).await;
        }
        Ok(())
    }

    /// Waits until everything sent has been taken over by the connection, and then for it to have had nothing else to
    /// do but write.
    async fn flush(&self) -> Result<(), Gone> {
        self.output.reserve().await.map(drop).map_err(|_| Gone)?;
        tokio::task::yield_now().await;
        Ok(())
    }

    /// Drops the connection. What was sent before shall arrive, and a connection that fails does not write any more.
    async fn abort(&self) -> Result<(), Gone> {
        self.flush().await?;
        self.output.send(Err(Aborted)).await.map_err(|_| Gone)
    }
}
