//! The three wire formats, read for what they share: model, usage, finish reason, stated errors.
//!
//! Chat completions put them at the top of every chunk; Responses put them into `response`; Messages put the model into
//! `message` and the end into `delta`.

use serde::de::{MapAccess, SeqAccess};
use stockade_core::event::{StatedError, Usage};

use super::{
    ERROR_HEAD_BYTES, Seen, head,
    loose::{Loose, Number, Shape, Taken, Word, members, skip, value},
    tokens::Tokens,
};

/// What was found so far.
#[derive(Debug, Default)]
pub(super) struct Found {
    model: Option<String>,
    finish: Option<String>,
    usage: Option<Usage>,
    error: Option<String>,
    stated: StatedError,
    resets_in_s: Option<u64>,
    done: bool,
}

impl Found {
    /// Whether the stream said that it is over.
    pub(super) fn finished(&self) -> bool {
        self.done || self.finish.is_some() || self.error.is_some()
    }

    pub(super) fn into_seen(self) -> Seen {
        Seen {
            finished: self.finished(),
            served_model: self.model,
            finish_reason: self.finish,
            usage: self.usage,
            error: self.error,
            stated: self.stated,
            resets_in_s: self.resets_in_s,
        }
    }

    /// Reads the data of one event.
    pub(super) fn read_event(&mut self, data: &[u8]) {
        if data.trim_ascii() == b"[DONE]" {
            self.done = true;
        } else {
            self.read(data);
        }
    }

    /// Reads an answer in one piece; returns whether it is a JSON object.
    pub(super) fn read_whole(&mut self, body: &[u8]) -> bool {
        self.read(body)
    }

    fn read(&mut self, data: &[u8]) -> bool {
        let Ok(Loose(top)) = serde_json::from_slice::<Loose<Top>>(data) else { return false };
        if top.part.error.there || top.kind == Kind::Error {
            self.state_error(&top.part.error, data);
        }
        self.done |= top.kind == Kind::MessageStop;
        for part in [top.part, top.inner] {
            self.take(part, data);
        }
        self.finish = top.finish.or(self.finish.take());
        top.is_object
    }

    fn take(&mut self, part: Part, data: &[u8]) {
        self.model = part.model.or(self.model.take());
        if let Some(tokens) = part.usage {
            tokens.merge_into(self.usage.get_or_insert_default());
        }
        self.finish = part.stop_reason.or(self.finish.take());
        // The status of a response: only an ended one is a finish.
        match part.status.as_deref().filter(|_| part.object == Kind::Response) {
            Some("failed") => self.state_error(&part.error, data),
            Some("completed" | "incomplete" | "cancelled") => {
                self.finish = part.incomplete.or(part.status);
            }
            _ => {}
        }
    }

    fn state_error(&mut self, stated: &Stated, data: &[u8]) {
        self.error = Some(head(data, ERROR_HEAD_BYTES));
        self.stated = stated.inner.clone();
        self.resets_in_s = stated.resets_in_s;
    }
}

/// What an event or an object says it is, as far as that matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Other,
    Error,
    MessageStop,
    Response,
}

impl Taken for Kind {
    fn text(&mut self, text: &str) {
        *self = match text {
            "error" => Self::Error,
            "message_stop" => Self::MessageStop,
            "response" => Self::Response,
            _ => Self::Other,
        };
    }
}

/// One event, or an answer in one piece.
#[derive(Debug, Default)]
struct Top {
    is_object: bool,
    kind: Kind,
    part: Part,
    /// What is in `response` or `message`.
    inner: Part,
    finish: Option<String>,
}

impl Taken for Top {
    fn object<'de, A: MapAccess<'de>>(&mut self, map: &mut A) -> Result<(), A::Error> {
        self.is_object = true;
        members(self, map)
    }
}

impl Shape for Top {
    fn member<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "type" => self.kind = value(map)?,
            "response" | "message" => self.inner = value(map)?,
            "choices" => self.finish = value::<Choices, _>(map)?.0.or(self.finish.take()),
            "delta" => self.finish = value::<Ending, _>(map)?.0.or(self.finish.take()),
            _ => self.part.member(key, map)?,
        }
        Ok(())
    }
}

/// What all three formats have somewhere.
#[derive(Debug, Default)]
struct Part {
    model: Option<String>,
    usage: Option<Tokens>,
    stop_reason: Option<String>,
    object: Kind,
    status: Option<String>,
    /// Why a response is incomplete.
    incomplete: Option<String>,
    error: Stated,
}

impl Taken for Part {
    fn object<'de, A: MapAccess<'de>>(&mut self, map: &mut A) -> Result<(), A::Error> {
        members(self, map)
    }
}

impl Shape for Part {
    fn member<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "model" => self.model = value::<Word, _>(map)?.0,
            "usage" => self.usage = Some(value::<Tokens, _>(map)?).filter(|tokens| tokens.is_object),
            "stop_reason" => self.stop_reason = value::<Word, _>(map)?.0,
            "object" => self.object = value(map)?,
            "status" => self.status = value::<Word, _>(map)?.0,
            "incomplete_details" => self.incomplete = value::<Ending, _>(map)?.0,
            "error" => self.error = value(map)?,
            _ => skip(map)?,
        }
        Ok(())
    }
}

/// An object that says why something ended.
#[derive(Debug, Default)]
struct Ending(Option<String>);

impl Taken for Ending {
    fn object<'de, A: MapAccess<'de>>(&mut self, map: &mut A) -> Result<(), A::Error> {
        members(self, map)
    }
}

impl Shape for Ending {
    fn member<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "stop_reason" | "finish_reason" | "reason" => self.0 = value::<Word, _>(map)?.0,
            _ => skip(map)?,
        }
        Ok(())
    }
}

/// The choices of a chat completion: the last that ended counts.
#[derive(Debug, Default)]
struct Choices(Option<String>);

impl Taken for Choices {
    fn list<'de, A: SeqAccess<'de>>(&mut self, seq: &mut A) -> Result<(), A::Error> {
        while let Some(Loose(Ending(reason))) = seq.next_element()? {
            self.0 = reason.or(self.0.take());
        }
        Ok(())
    }
}

/// What an error says of itself.
#[derive(Debug, Default)]
struct Stated {
    there: bool,
    inner: StatedError,
    resets_in_s: Option<u64>,
}

impl Taken for Stated {
    fn there(&mut self) {
        self.there = true;
    }

    fn object<'de, A: MapAccess<'de>>(&mut self, map: &mut A) -> Result<(), A::Error> {
        members(self, map)
    }
}

impl Shape for Stated {
    fn member<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "type" => self.inner.kind = value::<Word, _>(map)?.0,
            "code" => self.inner.code = value::<Word, _>(map)?.0,
            "resets_in_seconds" => self.resets_in_s = value::<Number, _>(map)?.0,
            "resets_at" => self.inner.resets_at_s = value::<Number, _>(map)?.0,
            _ => skip(map)?,
        }
        Ok(())
    }
}
