//! Where in the text of a profile a key is.

use std::fmt;

use toml::de::{DeTable, DeValue};

/// A key of a profile, from the root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Path(Vec<Segment>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Key(String),
    Index(usize),
}

impl Path {
    /// A dotted path without indices, such as `launch.argv`.
    pub(super) fn of(dotted: &str) -> Self {
        Self(dotted.split('.').map(|k| Segment::Key(k.to_owned())).collect())
    }

    /// The entry of a list.
    pub(super) fn index(mut self, index: usize) -> Self {
        self.0.push(Segment::Index(index));
        self
    }

    /// A key of a table.
    pub(super) fn key(mut self, key: &str) -> Self {
        self.0.push(Segment::Key(key.to_owned()));
        self
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Key(key) if at == 0 => f.write_str(key)?,
                Segment::Key(key) => write!(f, ".{key}")?,
                Segment::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

/// The offset of the value at `path`, or of the nearest part above that is there.
pub(super) fn find(text: &str, path: &Path) -> usize {
    let Ok(root) = DeTable::parse(text) else { return 0 };
    let mut value: Option<&DeValue<'_>> = None;
    let mut offset = 0;
    for (depth, segment) in path.0.iter().enumerate() {
        let next = match (segment, value) {
            (Segment::Key(key), None) if depth == 0 => root.get_ref().get(key.as_str()),
            (Segment::Key(key), Some(DeValue::Table(table))) => table.get(key.as_str()),
            (Segment::Index(index), Some(DeValue::Array(array))) => array.get(*index),
            _ => None,
        };
        let Some(next) = next else { break };
        offset = next.span().start;
        value = Some(next.get_ref());
    }
    offset
}

/// The dotted path of the innermost key whose name or value covers `offset`; empty if there is none.
pub(super) fn key_at(text: &str, offset: usize) -> String {
    let mut path = Path::default();
    if let Ok(root) = DeTable::parse(text) {
        in_table(root.get_ref(), offset, &mut path);
    }
    path.to_string()
}

fn in_table(table: &DeTable<'_>, offset: usize, path: &mut Path) -> bool {
    for (key, value) in table {
        let mut inner = path.clone().key(key.get_ref());
        // The span of a table under a header is its header only, so keys are looked into in any case.
        if in_value(value.get_ref(), offset, &mut inner)
            || key.span().contains(&offset)
            || value.span().contains(&offset)
        {
            *path = inner;
            return true;
        }
    }
    false
}

fn in_value(value: &DeValue<'_>, offset: usize, path: &mut Path) -> bool {
    match value {
        DeValue::Table(table) => in_table(table, offset, path),
        DeValue::Array(array) => array.iter().enumerate().any(|(at, item)| {
            let mut inner = path.clone().index(at);
            let found = in_value(item.get_ref(), offset, &mut inner) || item.span().contains(&offset);
            if found {
                *path = inner;
            }
            found
        }),
        _ => false,
    }
}

/// Line and column of an offset, both from 1, the column in characters.
pub(super) fn line_and_column(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..stockade_core::text::floor(text, offset)).unwrap_or_default();
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    let column = before.get(line_start..).unwrap_or_default().chars().count() + 1;
    (before.matches('\n').count() + 1, column)
}
