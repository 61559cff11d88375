//! Lines that only Claude Code prints, read leniently.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{messages::wire::parse, text::Text};

/// `system`/`permission_denied`, and an entry of a result's `permission_denials`.
#[derive(Default, Deserialize)]
pub(super) struct Denied<'a> {
    #[serde(borrow, default)]
    pub(super) tool_use_id: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub(super) tool_name: Option<Text<'a>>,
}

/// `system`/`api_retry`.
#[derive(Default, Deserialize)]
pub(super) struct Retry<'a> {
    #[serde(default)]
    attempt: Option<u64>,
    #[serde(default)]
    max_retries: Option<u64>,
    #[serde(default)]
    error_status: Option<u64>,
    #[serde(borrow, default)]
    error: Option<Text<'a>>,
}

impl Retry<'_> {
    /// In words.
    pub(super) fn text(&self) -> String {
        let number = |n: Option<u64>| n.map_or("?".to_owned(), |n| n.to_string());
        let error = stockade_core::text::head(self.error.as_deref().unwrap_or("unknown"), 100);
        let status = self.error_status.map(|s| format!(", HTTP {s}")).unwrap_or_default();
        format!("retry {} of {}: {error}{status}", number(self.attempt), number(self.max_retries))
    }
}

/// What a `user` line says about its tool results beside them.
#[derive(Default, Deserialize)]
pub(super) struct ResultMeta<'a> {
    #[serde(borrow, default)]
    tool_result_meta: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Meta<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
    #[serde(borrow, default)]
    permission_decision: Option<Decision<'a>>,
}

#[derive(Deserialize)]
struct Decision<'a> {
    #[serde(borrow)]
    decision: Cow<'a, str>,
}

impl ResultMeta<'_> {
    /// Whether it says that this call was refused.
    pub(super) fn rejects(&self, id: &str) -> bool {
        let Some(raw) = self.tool_result_meta else { return false };
        let parts: Vec<&RawValue> = parse(raw).unwrap_or_default();
        parts
            .into_iter()
            .filter_map(parse::<Meta<'_>>)
            .any(|meta| meta.id == id && meta.permission_decision.is_some_and(|d| d.decision == "reject"))
    }
}
