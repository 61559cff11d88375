//! The ids seen last, so that a fact told by both the stream and the session log counts once.

use std::collections::VecDeque;

/// How many ids are remembered: far more than calls are open at once.
const CAPACITY: usize = 256;
/// An id longer than this is compared by its head.
const ID_LIMIT_BYTES: usize = 200;

/// A bounded memory of ids, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct RecentIds(VecDeque<String>);

impl RecentIds {
    /// Remembers an id; gives whether it was new.
    pub(super) fn is_new(&mut self, id: &str) -> bool {
        let id = id.get(..crate::text::floor(id, ID_LIMIT_BYTES)).unwrap_or_default();
        if self.0.iter().any(|known| known == id) {
            return false;
        }
        if self.0.len() == CAPACITY {
            self.0.pop_front();
        }
        self.0.push_back(id.to_owned());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgets_the_oldest_and_compares_long_ids_by_their_head() {
        let mut ids = RecentIds::default();
        assert!(ids.is_new("0"));
        assert!(!ids.is_new("0"));
        for n in 1..=CAPACITY {
            assert!(ids.is_new(&n.to_string()));
        }
        assert_eq!(ids.0.len(), CAPACITY);
        assert!(ids.is_new("0"), "the oldest was forgotten");
        let long = "é".repeat(ID_LIMIT_BYTES);
        assert!(ids.is_new(&long));
        assert!(!ids.is_new(&format!("{long}x")));
    }
}
