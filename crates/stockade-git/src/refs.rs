//! References as files: loose ones, packed ones, and what they may be called.

use std::{
    collections::BTreeMap,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use rustix::{fs::FileType, io::Errno};

use crate::{error::GitError, files};

/// Kinds of references that are of use inside: branches, tags, what was fetched, notes. Results of other runs, a stash
/// and replacements are not among them.
const KINDS: [&str; 4] = ["refs/heads", "refs/tags", "refs/remotes", "refs/notes"];
/// A hundred thousand references take about ten megabytes.
const PACKED_LIMIT_BYTES: usize = 64 * 1024 * 1024;
/// A reference is one line.
pub(crate) const LOOSE_LIMIT_BYTES: usize = 4096;
/// Loose references that are read.
const MOST_LOOSE: usize = 200_000;
/// Folders below each other.
const MOST_DEPTH: usize = 32;
/// How often a symbolic reference may name another.
const MOST_HOPS: usize = 5;

/// References by name, with what they name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refs {
    /// Object names by reference.
    pub objects: BTreeMap<String, String>,
    /// Symbolic references below `refs/`, such as `refs/remotes/origin/HEAD`.
    pub symbolic: BTreeMap<String, String>,
}

/// What a loose reference holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Loose {
    /// An object's name.
    Object(String),
    /// Another reference's name.
    Symbolic(String),
}

impl Refs {
    /// Reads the references of a common folder.
    pub(crate) fn read(common: &Path) -> Result<Self, GitError> {
        let mut refs = Self::default();
        for (name, object) in packed(common)? {
            if KINDS.iter().any(|kind| name.starts_with(kind)) {
                refs.objects.insert(name, object);
            }
        }
        let mut room = MOST_LOOSE;
        for kind in KINDS {
            refs.walk(common, kind, MOST_DEPTH, &mut room)?;
        }
        Ok(refs)
    }

    fn walk(&mut self, common: &Path, name: &str, depth: usize, room: &mut usize) -> Result<(), GitError> {
        let folder = common.join(name);
        let entries = match std::fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(GitError::io("list", &folder, &e)),
        };
        for entry in entries {
            let entry = entry.map_err(|e| GitError::io("list", &folder, &e))?;
            let Ok(part) = std::str::from_utf8(entry.file_name().as_bytes()).map(str::to_owned) else {
                continue;
            };
            let name = format!("{name}/{part}");
            let kind = entry.file_type().map_err(|e| GitError::io("stat", &entry.path(), &e))?;
            if kind.is_dir() && depth > 0 {
                self.walk(common, &name, depth - 1, room)?;
            }
            // A lock, and what git itself would call broken.
            if !kind.is_file() || !is_ref_name(&name) {
                continue;
            }
            *room = room
                .checked_sub(1)
                .ok_or_else(|| GitError::new("list", &folder, "more than 200,000 references"))?;
            match loose(&entry.path()) {
                Ok(Some(Loose::Object(object))) => {
                    self.symbolic.remove(&name);
                    self.objects.insert(name, object);
                }
                Ok(Some(Loose::Symbolic(target))) => {
                    self.objects.remove(&name);
                    self.symbolic.insert(name, target);
                }
                // It went in between, or is broken: git leaves it out, too.
                Ok(None) => {}
                Err(e) => return Err(GitError::kernel("read", &entry.path(), e)),
            }
        }
        Ok(())
    }

    /// The same as a `packed-refs` file.
    pub(crate) fn to_packed(&self) -> String {
        let mut text = String::from("# pack-refs with: sorted \n");
        for (name, object) in &self.objects {
            text.push_str(object);
            text.push(' ');
            text.push_str(name);
            text.push('\n');
        }
        text
    }
}

/// What a reference names in the end; `None`: it does not exist, as the branch of a repository without commits.
pub(crate) fn resolve(common: &Path, name: &str) -> Result<Option<String>, GitError> {
    let mut name = name.to_owned();
    for _ in 0..MOST_HOPS {
        let path = common.join(&name);
        match loose(&path).map_err(|e| GitError::kernel("read", &path, e))? {
            Some(Loose::Object(object)) => return Ok(Some(object)),
            Some(Loose::Symbolic(next)) => name = next,
            None => {
                return Ok(packed(common)?.into_iter().find(|(n, _)| *n == name).map(|(_, object)| object));
            }
        }
    }
    Err(GitError::new("resolve", &common.join(&name), "a chain of references that does not end"))
}

/// Reads a loose reference; `None`: it is not there, is a folder, or holds something else.
pub(crate) fn loose(path: &Path) -> Result<Option<Loose>, Errno> {
    match files::kind(path)? {
        Some(FileType::RegularFile) => {}
        _ => return Ok(None),
    }
    let Some(bytes) = files::read(path, LOOSE_LIMIT_BYTES)? else { return Ok(None) };
    Ok(parse_loose(&bytes))
}

pub(crate) fn parse_loose(bytes: &[u8]) -> Option<Loose> {
    let text = std::str::from_utf8(bytes).ok()?.trim_end();
    match text.strip_prefix("ref:") {
        Some(target) => {
            let target = target.trim();
            (target.starts_with("refs/") && is_ref_name(target)).then(|| Loose::Symbolic(target.to_owned()))
        }
        None => is_object(text).then(|| Loose::Object(text.to_owned())),
    }
}

fn packed(common: &Path) -> Result<Vec<(String, String)>, GitError> {
    let path: PathBuf = common.join("packed-refs");
    let bytes = files::read(&path, PACKED_LIMIT_BYTES).map_err(|e| GitError::kernel("read", &path, e))?;
    let text = String::from_utf8(bytes.unwrap_or_default())
        .map_err(|_| GitError::new("read", &path, "references that are no UTF-8"))?;
    // A header begins with a number sign, and what an annotated tag names with a caret.
    Ok(text
        .lines()
        .filter(|line| !line.starts_with(['#', '^']))
        .filter_map(|line| line.split_once(' '))
        .filter(|(object, name)| is_object(object) && is_ref_name(name))
        .map(|(object, name)| (name.to_owned(), object.to_owned()))
        .collect())
}

/// Whether a text is the whole name of an object, by SHA-1 or SHA-256.
pub fn is_object(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// Whether a text may be the name of a reference, by the rules of git-check-ref-format(1).
pub fn is_ref_name(name: &str) -> bool {
    let part = |p: &str| !p.is_empty() && !p.starts_with('.') && p.strip_suffix(".lock").is_none();
    name.starts_with("refs/")
        && name.len() <= 1000
        && name.split('/').all(part)
        && !name.ends_with('.')
        && !name.contains("..")
        && !name.contains("@{")
        && !name.contains(|c: char| c.is_control() || " ~^:?*[\\".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_rules_of_git() {
        for good in ["refs/heads/main", "refs/heads/a/b-c_d.e", "refs/heads/ü", "refs/stockade/x/heads/@"] {
            assert!(is_ref_name(good), "{good}");
        }
        for bad in [
            "HEAD",
            "refs/heads/",
            "refs//x",
            "refs/heads/.a",
            "refs/heads/a.lock",
            "refs/heads/a..b",
            "refs/heads/a b",
            "refs/heads/a:b",
            "refs/heads/a@{1}",
            "refs/heads/a.",
            "refs/heads/a\n",
            "refs/heads/*",
        ] {
            assert!(!is_ref_name(bad), "{bad}");
        }
    }

    #[test]
    fn a_loose_reference_wins_over_a_packed_one() {
        let folder = tempfile::tempdir().unwrap();
        let (old, new) = ("1".repeat(40), "2".repeat(40));
        let packed = format!(
            "# pack-refs with: peeled\n{old} refs/heads/a\n{old} refs/tags/t\n^{new}\n{old} refs/stash\n"
        );
        std::fs::write(folder.path().join("packed-refs"), packed).unwrap();
        std::fs::create_dir_all(folder.path().join("refs/heads/x")).unwrap();
        std::fs::create_dir_all(folder.path().join("refs/remotes/o")).unwrap();
        std::fs::write(folder.path().join("refs/heads/a"), format!("{new}\n")).unwrap();
        std::fs::write(folder.path().join("refs/heads/x/a.lock"), "").unwrap();
        std::fs::write(folder.path().join("refs/remotes/o/HEAD"), "ref: refs/remotes/o/m\n").unwrap();
        let refs = Refs::read(folder.path()).unwrap();
        let names = |map: &BTreeMap<String, String>| map.clone().into_iter().collect::<Vec<_>>();
        assert_eq!(
            names(&refs.objects),
            [("refs/heads/a".to_owned(), new.clone()), ("refs/tags/t".to_owned(), old.clone())]
        );
        assert_eq!(
            names(&refs.symbolic),
            [("refs/remotes/o/HEAD".to_owned(), "refs/remotes/o/m".to_owned())]
        );
        assert_eq!(resolve(folder.path(), "refs/heads/a").unwrap(), Some(new));
        assert_eq!(resolve(folder.path(), "refs/tags/t").unwrap(), Some(old));
        assert_eq!(resolve(folder.path(), "refs/heads/none").unwrap(), None);
    }

    #[test]
    fn a_chain_that_does_not_end_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("refs/heads")).unwrap();
        std::fs::write(folder.path().join("refs/heads/a"), "ref: refs/heads/a\n").unwrap();
        assert!(resolve(folder.path(), "refs/heads/a").is_err());
    }
}
