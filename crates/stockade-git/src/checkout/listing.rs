//! What a commit holds, as `git ls-tree` tells it, where every name is one that git would write.

/// Folders below each other: one descriptor is open for each.
const MOST_DEPTH: usize = 100;
/// The longest name that file systems take.
const MOST_NAME_BYTES: usize = 255;

/// What is to be made at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Executable,
    Link,
}

/// A file or link.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) path: Box<[u8]>,
    /// The object's name.
    pub(super) object: String,
    pub(super) kind: Kind,
}

/// A folder below the top.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Folder {
    pub(super) path: Box<[u8]>,
    pub(super) object: String,
}

/// Everything in the order of an index.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Listing {
    pub(super) items: Vec<Item>,
    /// Each before those in it.
    pub(super) folders: Vec<Folder>,
}

impl Listing {
    /// Reads `git ls-tree -r -t -z`. `None`: there is something in it that is left to git, be it another repository's
    /// commit or a name that git might refuse.
    pub(super) fn read(answer: &[u8]) -> Option<Self> {
        let mut listing = Self::default();
        for line in answer.split(|b| *b == 0).filter(|line| !line.is_empty()) {
            let tab = line.iter().position(|b| *b == b'\t')?;
            let (head, path) = (std::str::from_utf8(line.get(..tab)?).ok()?, line.get(tab + 1..)?);
            let mut words = head.split(' ');
            let (mode, object) = (words.next()?, words.nth(1)?.to_owned());
            let kind = match mode {
                "100644" => Some(Kind::File),
                "100755" => Some(Kind::Executable),
                "120000" => Some(Kind::Link),
                "040000" => None,
                _ => return None,
            };
            if !is_plain(path, kind) {
                return None;
            }
            let path = path.into();
            match kind {
                Some(kind) => listing.items.push(Item { path, object, kind }),
                None => listing.folders.push(Folder { path, object }),
            }
        }
        let ascends = listing.items.is_sorted_by(|a, b| a.path < b.path);
        ascends.then_some(listing)
    }

    /// The files that say how others are converted.
    pub(super) fn attributes(&self) -> impl Iterator<Item = &Item> {
        self.items.iter().filter(|item| name_of(&item.path).eq_ignore_ascii_case(b".gitattributes"))
    }
}

/// The last part of a path.
fn name_of(path: &[u8]) -> &[u8] {
    path.rsplit(|b| *b == b'/').next().unwrap_or_default()
}

/// Whether git would write this path, whatever file systems it protects: it refuses what Windows or macOS would take for
/// `.git`. Of odd names more are left to git than it refuses.
fn is_plain(path: &[u8], kind: Option<Kind>) -> bool {
    let parts = || path.split(|b| *b == b'/');
    parts().count() <= MOST_DEPTH
        && parts().all(|part| {
            let reserved = part.to_ascii_lowercase();
            !(part.is_empty()
                || part == b"."
                || part == b".."
                || part.len() > MOST_NAME_BYTES
                || part.contains(&b'\\')
                || reserved.starts_with(b"git~")
                || is_dot_git(&reserved))
        })
        // A link would be followed where git reads its own files.
        && !(kind == Some(Kind::Link) && name_of(path).to_ascii_lowercase().starts_with(b".git"))
}

/// `.git`, also with what Windows leaves out.
fn is_dot_git(name: &[u8]) -> bool {
    name.strip_prefix(b".git").is_some_and(|rest| {
        !rest.first().is_some_and(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&str]) -> Option<Listing> {
        Listing::read((lines.join("\0") + "\0").as_bytes())
    }

    #[test]
    fn every_kind_is_read_in_its_order() {
        let listing = read(&[
            "100644 blob aa\t.gitattributes",
            "040000 tree bb\ta\tb",
            "100755 blob cc\ta\tb/\n",
            "120000 blob dd\ta\tb/l",
        ])
        .unwrap();
        let item = |path: &str, object: &str, kind| Item {
            path: path.as_bytes().into(),
            object: object.to_owned(),
            kind,
        };
        let items = [
            item(".gitattributes", "aa", Kind::File),
            item("a\tb/\n", "cc", Kind::Executable),
            item("a\tb/l", "dd", Kind::Link),
        ];
        assert_eq!(listing.items, items);
        assert_eq!(listing.folders, [Folder { path: (*b"a\tb").into(), object: "bb".to_owned() }]);
        let attributes: Vec<_> = listing.attributes().collect();
        assert_eq!(attributes, [&listing.items[0]]);
        assert_eq!(read(&[]), Some(Listing::default()));
    }

    #[test]
    fn odd_names_and_kinds_are_left_to_git() {
        let deep = "a/".repeat(MOST_DEPTH) + "a";
        let long = "a".repeat(MOST_NAME_BYTES + 1);
        for path in [
            "",
            "..",
            "a/../b",
            "/a",
            "a//b",
            "a/",
            "./a",
            ".git",
            ".GIT/config",
            "a/.git/x",
            ".git ",
            ".git.",
            ".git:x",
            "git~1",
            "a/Git~2/x",
            "a\\b",
            &deep,
            &long,
        ] {
            assert_eq!(read(&[&format!("100644 blob aa\t{path}")]), None, "{path:?}");
        }
        for path in
            [".gitignore", ".github/x", ".git-blame-ignore-revs", ".gitattributes", "gitk", "a.git", "..a"]
        {
            assert!(read(&[&format!("100644 blob aa\t{path}")]).is_some(), "{path:?}");
        }
        for line in
            ["160000 commit aa\ta", "100664 blob aa\ta", "120000 blob aa\t.gitmodules", "100644 blob aa", "x"]
        {
            assert_eq!(read(&[line]), None, "{line:?}");
        }
        assert_eq!(read(&["100644 blob aa\tb", "100644 blob aa\ta"]), None, "out of order");
        assert_eq!(read(&["100644 blob aa\ta", "120000 blob bb\ta"]), None, "twice");
    }
}
