//! Plays a completion: what is sent, when, and how it ends.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::body::{Aborted, Output};
use super::{Stage, wait};
use crate::scenario::{Completion, Ending};
use crate::wire::{Api, Form, Naming, UsageEvent, Words};

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
    pub(crate) api: Api,
    pub(crate) naming: Naming,
    pub(crate) form: Form,
}

/// The reader of the body is gone.
struct Gone;

impl Play {
    /// Writes the answer. The end of the future is the end of the body.
    pub(crate) async fn run(self, record: Record, output: Output) {
        let outlet = Outlet { output, byte_pause: self.completion.byte_pause };
        let status = self.status();
        let played = match self.form {
            Form::Stream { usage } => self.stream(usage, &record, &outlet).await,
            Form::Whole => self.whole(&record, &outlet).await,
        };
        if played.is_ok() {
            record.complete(Some(status));
        }
    }

    /// The HTTP status: an answer in one piece cannot state an error beside what it says.
    pub(crate) fn status(&self) -> u16 {
        match (self.completion.ending, self.form) {
            (Ending::Fault(fault), Form::Whole) => Words::of(self.api, fault).status,
            _ => 200,
        }
    }

    async fn stream(&self, usage: UsageEvent, record: &Record, outlet: &Outlet) -> Result<(), Gone> {
        let Self { completion, api, naming, .. } = self;
        let stream = api.stream(naming, completion, usage);
        let says_nothing =
            completion.think.is_empty() && completion.text.is_empty() && completion.tools.is_empty();
        if !(says_nothing && completion.ending == Ending::Hang) {
            outlet.send(stream.open).await?;
        }
        for piece in stream.pieces {
            outlet.send(piece).await?;
            wait(completion.gap).await;
        }
        self.hold(record, outlet).await?;
        for call in stream.calls {
            outlet.send(call).await?;
        }
        match completion.ending {
            Ending::Finish => outlet.send(stream.finish).await,
            Ending::Malformed => outlet.send(api.malformed()).await,
            Ending::Fault(fault) => outlet.send(api.stated(naming, fault)).await,
            Ending::Cut => Ok(()),
            Ending::Abort => outlet.abort().await,
            Ending::Hang => std::future::pending().await,
        }
    }

    async fn whole(&self, record: &Record, outlet: &Outlet) -> Result<(), Gone> {
        let Self { completion, api, naming, .. } = self;
        self.hold(record, outlet).await?;
        let object = Bytes::from(api.whole(naming, completion).to_string());
        let half = object.slice(..object.len() / 2);
        match completion.ending {
            Ending::Finish => outlet.send(object).await,
            Ending::Malformed => outlet.send(api.malformed()).await,
            Ending::Fault(fault) => outlet.send(api.error(&Words::of(*api, fault)).to_string().into()).await,
            Ending::Hang => std::future::pending().await,
            Ending::Cut => outlet.send(half).await,
            Ending::Abort => {
                outlet.send(half).await?;
                outlet.abort().await
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
