//! How much of an agent's words an event holds.

use stockade_core::text;

/// The text of a message or thought, at most, in bytes.
pub(crate) const TEXT_LIMIT_BYTES: usize = 64 * 1024;
/// Input and output of a tool call, at most, in bytes.
pub(crate) const TOOL_TEXT_LIMIT_BYTES: usize = 4 * 1024;
/// Names, ids and the like, at most, in bytes.
const NAME_LIMIT_BYTES: usize = 200;
/// Entries of a list that an agent fills: tools, models.
pub(crate) const LIST_LIMIT: usize = 200;
/// Tool calls that may be open at once; older ones lose their name.
pub(crate) const OPEN_CALLS_LIMIT: usize = 256;

/// The head of a name.
pub(crate) fn name(whole: &str) -> String {
    text::head(whole, NAME_LIMIT_BYTES)
}

/// The head of a tool call's input or output.
pub(crate) fn tool_text(whole: &str) -> String {
    text::head(whole, TOOL_TEXT_LIMIT_BYTES)
}

/// The head of a text and how many bytes are left out.
pub(crate) fn cut(whole: &str) -> (String, u64) {
    let end = text::floor(whole, TEXT_LIMIT_BYTES);
    (whole.get(..end).unwrap_or_default().to_owned(), (whole.len() - end) as u64)
}
