//! Lines of a byte stream, split at `\n` only, in bounded memory.

use memchr::memchr;
use stockade_core::event::LINE_LIMIT_BYTES;

/// Room kept between lines; what a long line took beyond it is given back.
const KEPT_BYTES: usize = 64 * 1024;

/// A line as it is handed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    /// A whole line without its end.
    Whole(&'a [u8]),
    /// A line over the limit. Its bytes are gone.
    TooLong {
        /// Its length without its end.
        bytes: u64,
    },
    /// What came after the last line end.
    Unterminated(&'a [u8]),
}

/// Cuts a stream into lines. Any split of the stream gives the same lines.
#[derive(Debug)]
pub(crate) struct Lines {
    /// The unfinished line, unless it is too long.
    pending: Vec<u8>,
    /// Bytes of the unfinished line.
    length: u64,
    limit: usize,
}

impl Lines {
    pub(crate) fn new() -> Self {
        Self::with_limit(LINE_LIMIT_BYTES)
    }

    fn with_limit(limit: usize) -> Self {
        Self { pending: Vec::new(), length: 0, limit }
    }

    /// Takes the next bytes and hands on every line that they finish.
    pub(crate) fn push(&mut self, mut bytes: &[u8], mut take: impl FnMut(Line<'_>)) {
        while let Some(at) = memchr(b'\n', bytes) {
            let (head, rest) = bytes.split_at(at);
            bytes = rest.get(1..).unwrap_or_default();
            if self.length == 0 && head.len() <= self.limit {
                take(Line::Whole(head));
                continue;
            }
            self.keep(head);
            if self.is_too_long() {
                take(Line::TooLong { bytes: self.length });
            } else {
                take(Line::Whole(&self.pending));
            }
            self.forget();
        }
        if !bytes.is_empty() {
            self.keep(bytes);
        }
    }

    /// Ends the stream and hands on what is left.
    pub(crate) fn finish(&mut self, mut take: impl FnMut(Line<'_>)) {
        if self.is_too_long() {
            take(Line::TooLong { bytes: self.length });
        } else if self.length > 0 {
            take(Line::Unterminated(&self.pending));
        }
        self.forget();
    }

    fn is_too_long(&self) -> bool {
        self.length > self.limit as u64
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.length += bytes.len() as u64;
        if self.is_too_long() {
            self.pending = Vec::new();
        } else {
            self.pending.extend_from_slice(bytes);
        }
    }

    fn forget(&mut self) {
        self.pending.clear();
        self.pending.shrink_to(KEPT_BYTES);
        self.length = 0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(chunks: &[&[u8]], limit: usize) -> Vec<String> {
        let mut lines = Lines::with_limit(limit);
        let mut out = Vec::new();
        for chunk in chunks {
            lines.push(chunk, |l| out.push(format!("{l:?}")));
            assert!(lines.pending.len() <= limit);
        }
        lines.finish(|l| out.push(format!("{l:?}")));
        out
    }

    #[test]
    fn splits_at_newlines_only_and_marks_long_and_open_lines() {
        let mut lines = Lines::with_limit(4);
        let mut seen = Vec::new();
        let mut take = |line: Line<'_>| {
            seen.push(match line {
                Line::Whole(b) => format!("whole {}", String::from_utf8_lossy(b)),
                Line::TooLong { bytes } => format!("long {bytes}"),
                Line::Unterminated(b) => format!("open {}", String::from_utf8_lossy(b)),
            });
        };
        lines.push("a\u{2028}\n\n12345\n1234\nxy".as_bytes(), &mut take);
        lines.finish(&mut take);
        assert_eq!(seen, ["whole a\u{2028}", "whole ", "long 5", "whole 1234", "open xy"]);
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_lines(
            data in proptest::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..200),
            cuts in proptest::collection::vec(0usize..200, 0..8),
            limit in 0usize..20,
        ) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(data.len())).collect();
            cuts.push(0);
            cuts.push(data.len());
            cuts.sort_unstable();
            let chunks: Vec<&[u8]> = cuts.windows(2).map(|w| &data[w[0]..w[1]]).collect();
            prop_assert_eq!(all(&chunks, limit), all(&[&data], limit));
        }
    }
}
