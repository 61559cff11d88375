//! Wire formats: how a request is understood and how an answer is put into bytes. One module per API; what a step
//! means does not depend on it.

pub(crate) mod chat;

use crate::log::RequestClass;

/// What a request asks for, whatever the API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) class: RequestClass,
    pub(crate) model: Option<String>,
    /// The names of the tools offered, in their order.
    pub(crate) tools: Vec<String>,
    pub(crate) form: Form,
    /// How often the model has already answered since the last prompt.
    pub(crate) answered: usize,
}

/// How the answer shall come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// As events, with a last one for usage or without.
    Stream {
        /// Whether usage was asked for.
        usage: UsageEvent,
    },
    /// As one object.
    Whole,
}

/// Whether a stream tells usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UsageEvent {
    Wanted,
    Unwanted,
}
