//! What kind of working tree a folder is, read from its files alone. Git itself is not run: it would believe whatever the
//! folder says.

mod features;
mod objects;
mod pointer;

use std::path::{Path, PathBuf};

use rustix::{fs::FileType, io::Errno};
use stockade_core::git_config::{self, Setting};

use crate::{
    files,
    obstacle::{Extent, Obstacle},
    refs::{self, Loose},
};

/// A configuration with everything in it is a few kilobytes.
const CONFIG_LIMIT_BYTES: usize = 1024 * 1024;

/// A repository and one of its working trees.
#[derive(Clone, Debug)]
pub struct Repository {
    /// The working tree, canonical.
    pub worktree: PathBuf,
    /// The folder that all its working trees share, canonical.
    pub common: PathBuf,
    /// The folder of this working tree alone: the common one, or one of its `worktrees/`.
    pub git_dir: PathBuf,
    /// What is checked out.
    pub head: Head,
    /// The commit that is checked out; `None`: there is none yet.
    pub base: Option<String>,
    /// The owner of the common folder.
    pub owner: (u32, u32),
    /// What keeps git from working in a fence, the worst first.
    pub obstacles: Vec<Obstacle>,
    /// Settings of the repository, then of this working tree.
    pub(crate) settings: Vec<Setting>,
}

/// What is checked out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Head {
    /// A branch, by its full name.
    Branch(String),
    /// A commit.
    Detached(String),
}

impl Head {
    /// The content of a `HEAD` file.
    pub(crate) fn to_file(&self) -> String {
        match self {
            Self::Branch(name) => format!("ref: {name}\n"),
            Self::Detached(object) => format!("{object}\n"),
        }
    }
}

impl Repository {
    /// Whether this is the working tree that came with the repository.
    pub fn is_main(&self) -> bool {
        self.git_dir == self.common
    }

    /// The folder of its objects.
    pub fn objects(&self) -> PathBuf {
        self.common.join("objects")
    }

    /// The last value of a setting without a subsection.
    pub(crate) fn setting(&self, section: &str, key: &str) -> Option<&str> {
        self.settings
            .iter()
            .rev()
            .find(|s| s.section == section && s.subsection.is_none() && s.key == key)
            .map(|s| s.value.as_str())
    }
}

/// Finds the repository of a canonical folder; `None`: the folder is none's working tree.
///
/// A pointer is believed only where the repository itself names this working tree: whoever could write the folder alone
/// cannot lead to a repository of somebody else's.
pub fn discover(worktree: &Path) -> Result<Option<Repository>, Obstacle> {
    let entry = worktree.join(".git");
    let odd = |e: Errno| unreadable(&entry, e);
    let (common, git_dir) = match files::kind(&entry).map_err(odd)? {
        None => return Ok(None),
        Some(FileType::Directory) => (entry.clone(), entry),
        Some(FileType::RegularFile) => pointer::follow(worktree, &entry)?,
        Some(FileType::Symlink) => {
            return Err(Obstacle::new(
                "git-is-link",
                Extent::Every,
                "`.git` is a symbolic link: what it points to could change under the fence",
                "put the repository's folder or pointer file in its place",
            )
            .seen_in(".git"));
        }
        Some(_) => {
            return Err(Obstacle::new(
                "git-entry",
                Extent::Every,
                "`.git` is neither a folder nor a file",
                "put the repository's folder or pointer file in its place",
            )
            .seen_in(".git"));
        }
    };
    objects::check(&common)?;
    let stat = rustix::fs::lstat(&common).map_err(|e| unreadable(&common, e))?;
    let mut settings = config(&common.join("config"))?;
    let has_own = settings.iter().any(|s| {
        s.section == "extensions"
            && s.key == "worktreeconfig"
            && !matches!(&*s.value.to_lowercase(), "false" | "no")
    });
    if has_own {
        settings.extend(config(&git_dir.join("config.worktree"))?);
    }
    let (head, base) = head(&common, &git_dir)?;
    let mut repository = Repository {
        worktree: worktree.to_owned(),
        common,
        git_dir,
        head,
        base,
        owner: (stat.st_uid, stat.st_gid),
        obstacles: Vec::new(),
        settings,
    };
    repository.obstacles = features::obstacles(&repository)?;
    Ok(Some(repository))
}

/// Whether a folder is itself a git folder, bare or not, or lies in one: whoever writes there writes hooks.
pub fn is_git_folder(path: &Path) -> bool {
    let is = |path: PathBuf, wanted| matches!(files::kind(&path), Ok(Some(kind)) if kind == wanted);
    path.ancestors().any(|p| {
        is(p.join("HEAD"), FileType::RegularFile)
            && is(p.join("objects"), FileType::Directory)
            && is(p.join("refs"), FileType::Directory)
    })
}

fn config(path: &Path) -> Result<Vec<Setting>, Obstacle> {
    let bytes = files::read(path, CONFIG_LIMIT_BYTES).map_err(|e| unreadable(path, e))?;
    Ok(git_config::settings(&String::from_utf8_lossy(&bytes.unwrap_or_default())).collect())
}

fn head(common: &Path, git_dir: &Path) -> Result<(Head, Option<String>), Obstacle> {
    let path = git_dir.join("HEAD");
    let odd = |reason: String| {
        Obstacle::new(
            "git-head",
            Extent::Every,
            format!("what is checked out cannot be told: {reason}"),
            "run `git status` in the folder and mend what it reports",
        )
        .seen_in(path.display().to_string())
    };
    match refs::loose(&path).map_err(|e| unreadable(&path, e))? {
        Some(Loose::Object(object)) => Ok((Head::Detached(object.clone()), Some(object))),
        Some(Loose::Symbolic(name)) => {
            let base = refs::resolve(common, &name).map_err(|e| odd(e.to_string()))?;
            Ok((Head::Branch(name), base))
        }
        None => Err(odd("`HEAD` is missing, is a link, or names nothing".to_owned())),
    }
}

/// A part of a repository that cannot be looked at, or is a link where git keeps a file.
pub(crate) fn unreadable(path: &Path, errno: Errno) -> Obstacle {
    let text = std::io::Error::from(errno).to_string();
    let reason = text.split(" (os error").next().unwrap_or(&text).to_lowercase();
    Obstacle::new(
        "git-unreadable",
        Extent::Every,
        format!("`{}` cannot be read as a part of a repository: {reason}", path.display()),
        "check the repository with `git fsck`, and its permissions",
    )
    .seen_in(path.display().to_string())
}

#[cfg(test)]
mod tests;
