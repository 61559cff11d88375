//! Where a log may lie: a path, in parts of which a `*` stands for anything.

use std::{
    os::fd::OwnedFd,
    path::{Component, Path, PathBuf},
};

use super::open;

/// Names looked at in one folder. An agent's own folders hold a handful.
const NAMES_LIMIT: usize = 1_000;

/// A path below the home, part by part.
#[derive(Debug)]
pub(super) struct Pattern(Vec<Part>);

#[derive(Debug)]
enum Part {
    Name(String),
    /// Begins and ends like this.
    Between(String, String),
}

impl Pattern {
    /// Reads a pattern; `None`: it is not relative, leaves the home, or has a part with more than one `*`.
    pub(super) fn parse(path: &Path) -> Option<Self> {
        let parts = path.components().map(|component| {
            let Component::Normal(part) = component else { return None };
            let part = part.to_str()?;
            match part.split_once('*') {
                None => Some(Part::Name(part.to_owned())),
                Some((_, end)) if end.contains('*') => None,
                Some((start, end)) => Some(Part::Between(start.to_owned(), end.to_owned())),
            }
        });
        parts.collect::<Option<Vec<_>>>().filter(|parts| !parts.is_empty()).map(Self)
    }

    /// The first path below the home that fits, in the order of names; `None`: there is none. A path without `*` fits
    /// whether it is there or not.
    pub(super) fn first_below(&self, home: &OwnedFd) -> Option<PathBuf> {
        self.0.iter().try_fold(PathBuf::new(), |folder, part| match part {
            Part::Name(name) => Some(folder.join(name)),
            Part::Between(start, end) => {
                let shown = if folder.as_os_str().is_empty() { Path::new(".") } else { &folder };
                let names = open::names(home, shown, NAMES_LIMIT);
                let fits = |name: &String| {
                    name.strip_prefix(start.as_str()).is_some_and(|rest| rest.ends_with(end.as_str()))
                };
                names.into_iter().find(fits).map(|name| folder.join(name))
            }
        })
    }
}
