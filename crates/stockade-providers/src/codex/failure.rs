//! What the text of a failed turn says.

use stockade_core::{event::TurnOutcome, text};

use crate::bounds::TEXT_LIMIT_BYTES;

/// How a turn ended that failed with this text.
pub(super) fn outcome(stated: &str) -> TurnOutcome {
    let text = text::head(stated, TEXT_LIMIT_BYTES);
    if stated.contains("reason: content_filter") {
        return TurnOutcome::Refusal { text };
    }
    if stated.contains("reason: max_output_tokens") {
        return TurnOutcome::Truncated;
    }
    TurnOutcome::Error { http_status: http_status(stated), text }
}

/// The HTTP status in `unexpected status 401 Unauthorized: …` or `exceeded retry limit, last status: 429 …`.
fn http_status(stated: &str) -> Option<u16> {
    ["unexpected status ", "last status: "].into_iter().find_map(|before| {
        let (_, rest) = stated.split_once(before)?;
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse().ok().filter(|status| (100..=599).contains(status))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_statuses_are_found_in_the_words_of_the_agent() {
        for (text, status) in [
            ("unexpected status 401 Unauthorized: no, url: http://x/v1/responses", Some(401)),
            ("unexpected status 529 <unknown status code>: x", Some(529)),
            ("exceeded retry limit, last status: 429 Too Many Requests", Some(429)),
            ("unexpected status 4011", None),
            ("unexpected status é", None),
            ("stream disconnected before completion: 401", None),
        ] {
            assert_eq!(http_status(text), status, "{text}");
        }
    }

    #[test]
    fn an_incomplete_answer_is_told_by_its_reason() {
        let text = "Incomplete response returned, reason: content_filter".to_owned();
        assert_eq!(outcome(&text), TurnOutcome::Refusal { text });
        assert_eq!(
            outcome("Incomplete response returned, reason: max_output_tokens"),
            TurnOutcome::Truncated
        );
    }
}
