//! What the scripts report.

use std::collections::BTreeMap;

use crate::refs::{is_object, is_ref_name};

/// What the first script found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prepared {
    /// The commit that changes are measured from.
    pub start: String,
    /// Paths with changes of the caller's that did not come along; `None`: not asked.
    pub dirty: Option<u64>,
}

/// What there is at the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Captured {
    /// What is checked out; `None`: nothing that is a commit.
    pub head: Option<String>,
    /// The commit that holds what the files hold.
    pub result: String,
    /// References by name.
    pub refs: BTreeMap<String, String>,
    /// References whose names are none.
    pub misnamed: u64,
    /// Whether files could not be read.
    pub missed: bool,
    /// Whether nothing changed, and yet ignored files are there.
    pub ignored: bool,
}

/// Reads the first script's report.
pub fn prepared(text: &[u8]) -> Option<Prepared> {
    let text = String::from_utf8_lossy(text);
    let mut found = Prepared::default();
    for (word, value) in text.lines().filter_map(|l| l.split_once(' ')) {
        match word {
            "start" if is_object(value) => value.clone_into(&mut found.start),
            "dirty" => found.dirty = value.trim().parse().ok(),
            _ => {}
        }
    }
    (!found.start.is_empty()).then_some(found)
}

/// Reads the second script's report.
pub fn captured(text: &[u8]) -> Option<Captured> {
    let text = String::from_utf8_lossy(text);
    let mut found = Captured::default();
    for line in text.lines() {
        let (word, value) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "head" if is_object(value) => found.head = Some(value.to_owned()),
            "result" if is_object(value) => value.clone_into(&mut found.result),
            "missed" => found.missed = true,
            "ignored" => found.ignored = true,
            "ref" => match value.split_once(' ') {
                Some((object, name)) if is_object(object) && is_ref_name(name) => {
                    found.refs.insert(name.to_owned(), object.to_owned());
                }
                _ => found.misnamed += 1,
            },
            _ => {}
        }
    }
    (!found.result.is_empty()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_objects_and_references_are_read() {
        let (a, b) = ("a".repeat(40), "b".repeat(40));
        assert_eq!(prepared(b"start nonsense\ndirty 3\n"), None);
        let text = format!("start {a}\ndirty      7\n");
        assert_eq!(prepared(text.as_bytes()), Some(Prepared { start: a.clone(), dirty: Some(7) }));
        let text =
            format!("missed\nhead {a}\nresult {b}\nref {a} refs/heads/m\nref {a} ../x\nref x refs/heads/y\n");
        let expected = Captured {
            head: Some(a.clone()),
            result: b,
            refs: [("refs/heads/m".to_owned(), a)].into(),
            misnamed: 2,
            missed: true,
            ignored: false,
        };
        assert_eq!(captured(text.as_bytes()), Some(expected));
        assert_eq!(captured(b""), None);
    }
}
