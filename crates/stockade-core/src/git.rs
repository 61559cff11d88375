//! Git: what is known of a workspace's repository, how it is shown inside the fence, and what came of it.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where the real objects of a repository are inside the fence, read-only.
pub const OBJECTS: &str = "/repository/objects";

/// Which files the agent works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WorkTree {
    /// The caller's own, read-only.
    Shown,
    /// A worktree made for the run under the state directory, in the place of the caller's.
    Made,
    /// The linked worktree that the caller named: its files change, its index and its repository do not.
    Named,
}

impl WorkTree {
    /// The name used in flags, receipts and documentation.
    pub const fn id(self) -> &'static str {
        match self {
            Self::Shown => "shown",
            Self::Made => "made",
            Self::Named => "named",
        }
    }
}

/// A repository as it is inside the fence: a private git folder stands in the place of the real one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitWorkspace {
    /// Which files the agent works on.
    pub tree: WorkTree,
    /// The repository's common folder on the host, canonical.
    pub common: PathBuf,
    /// Where the private folder is inside: `.git` of the workspace, or the path of the common folder.
    pub shown_at: PathBuf,
    /// The commit that is checked out; `None`: there is none yet.
    pub base: Option<String>,
    /// Whose name commits carry; `None`: nothing is committed for the agent.
    pub author: Option<GitAuthor>,
    /// Whether the caller's uncommitted changes come along.
    pub include_dirty: bool,
}

impl GitWorkspace {
    /// Whether work is taken out of the fence as commits.
    pub fn is_exported(&self) -> bool {
        self.tree != WorkTree::Shown
    }
}

/// Whose name commits carry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitAuthor {
    /// The name.
    pub name: String,
    /// The mail address.
    pub email: String,
    /// `flag`, `default`, or the configuration file it was read from.
    pub source: String,
}

impl GitAuthor {
    /// Reads `Name <mail>`. Neither part may be empty or hold what git would drop: angle brackets and control
    /// characters.
    pub fn parse(text: &str) -> Option<Self> {
        let (name, rest) = text.split_once('<')?;
        let (name, email) = (name.trim(), rest.trim_end().strip_suffix('>')?);
        let plain = |part: &str| {
            !part.trim().is_empty()
                && part.len() <= 200
                && !part.contains(|c: char| c == '<' || c == '>' || c.is_control())
        };
        (plain(name) && plain(email)).then(|| Self {
            name: name.to_owned(),
            email: email.to_owned(),
            source: "flag".to_owned(),
        })
    }
}

/// What came of a run in a repository.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitRecord {
    /// The repository's common folder.
    pub repository: String,
    /// Which files the agent worked on.
    pub tree: WorkTree,
    /// Where these files are now; null where they were removed because nothing had changed.
    pub worktree: Option<String>,
    /// The commit the work began at.
    pub base: String,
    /// The commit that changes are measured from: the base, or a commit of what was uncommitted at the start.
    pub start: String,
    /// The commit that holds everything the files held at the end; null: not taken out.
    pub result: Option<String>,
    /// References made in the repository, below `refs/stockade/`.
    pub refs: Vec<GitRef>,
    /// Whose name the commits carry that were made for the agent.
    pub author: GitAuthor,
    /// Bytes that were brought into the repository.
    pub bundle_bytes: u64,
}

/// A reference made in the caller's repository.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitRef {
    /// Its name there.
    pub name: String,
    /// Its name inside, or `worktree` for what was not committed, `start` for what was not committed at the start.
    pub inside: String,
    /// The object it names.
    pub object: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_author_is_a_name_and_a_mail_address_and_nothing_else() {
        let author = GitAuthor::parse("Ada Lovelace <ada@example.invalid>").unwrap();
        assert_eq!((&*author.name, &*author.email), ("Ada Lovelace", "ada@example.invalid"));
        for wrong in ["Ada", "<a@b>", "Ada <>", "Ada <a@b", "A\nB <a@b>", "A <a<b>", "A <a@b> x", ""] {
            assert_eq!(GitAuthor::parse(wrong), None, "{wrong:?}");
        }
    }
}
