//! Kinds of repositories that do not work in a fence, or would lose something, each by name.

use std::path::Path;

use super::{Repository, unreadable};
use crate::{
    files,
    obstacle::{Extent, Obstacle},
};

/// Extensions of the repository format that change nothing for a fence. See gitrepository-layout(5).
const HARMLESS: [&str; 6] =
    ["noop", "noop-v1", "preciousobjects", "worktreeconfig", "objectformat", "relativeworktrees"];
/// An attributes file is a few lines.
const ATTRIBUTES_LIMIT_BYTES: usize = 1024 * 1024;

pub(super) fn obstacles(repository: &Repository) -> Result<Vec<Obstacle>, Obstacle> {
    let mut found = Vec::new();
    found.extend(format(repository));
    found.extend(extensions(repository));
    found.extend(elsewhere(repository));
    found.extend(partial(repository));
    found.extend(submodules(repository)?);
    found.extend(filters(repository)?);
    if repository.base.is_none() {
        found.push(Obstacle::new(
            "git-no-commit",
            Extent::Working,
            "the repository has no commit yet for work to begin at",
            "make a first commit, or say `--in-place`",
        ));
    }
    Ok(found)
}

fn serving(code: &'static str, message: String, remedy: &'static str) -> Obstacle {
    Obstacle::new(code, Extent::Serving, message, remedy)
}

fn format(repository: &Repository) -> Option<Obstacle> {
    let version = repository.setting("core", "repositoryformatversion").unwrap_or("0");
    (!matches!(version, "0" | "1")).then(|| {
        serving(
            "git-format",
            format!("the repository has format version `{version}`, which is not known"),
            "use a newer Stockade, or a clone in an older format",
        )
    })
}

fn extensions(repository: &Repository) -> Option<Obstacle> {
    repository.settings.iter().filter(|s| s.section == "extensions" && s.subsection.is_none()).find_map(|s| {
        match &*s.key {
            "partialclone" => Some(partial_clone(&s.value)),
            "refstorage" if s.value != "files" => Some(serving(
                "git-reftable",
                format!("the repository keeps its references as `{}`", s.value),
                "convert it (`git refs migrate --ref-format=files`), or use a clone with files",
            )),
            "refstorage" => None,
            "objectformat" if !matches!(&*s.value, "sha1" | "sha256") => Some(serving(
                "git-object-format",
                format!("the repository names objects by `{}`", s.value),
                "use a repository with SHA-1 or SHA-256",
            )),
            key if HARMLESS.contains(&key) => None,
            key => Some(serving(
                "git-extension",
                format!("the repository uses the extension `{key}`, which is not known"),
                "use a newer Stockade, or a clone without it",
            )),
        }
    })
}

/// A repository whose files lie in another folder than this one.
fn elsewhere(repository: &Repository) -> Option<Obstacle> {
    let named = repository.setting("core", "worktree")?;
    let there = std::fs::canonicalize(repository.git_dir.join(named)).ok();
    (repository.is_main() && there.as_deref() != Some(&*repository.worktree)).then(|| {
        Obstacle::new(
            "git-core-worktree",
            Extent::Every,
            format!("the repository says that its files are in `{named}`, not in this folder"),
            "run there, or unset `core.worktree`",
        )
        .seen_in(repository.common.join("config").display().to_string())
    })
}

fn partial(repository: &Repository) -> Option<Obstacle> {
    let promisor = repository.settings.iter().find(|s| {
        s.section == "remote" && s.key == "promisor" && !matches!(&*s.value, "false" | "no" | "0")
    })?;
    Some(partial_clone(promisor.subsection.as_deref().unwrap_or_default()))
}

fn partial_clone(remote: &str) -> Obstacle {
    Obstacle::new(
        "git-partial-clone",
        Extent::Working,
        format!(
            "the repository is a partial clone: missing objects would have to be fetched from `{remote}`"
        ),
        "make it whole (`git fetch --refetch` without a filter, then unset `remote.NAME.promisor` and \
         `extensions.partialClone`), or use a full clone",
    )
}

fn submodules(repository: &Repository) -> Result<Option<Obstacle>, Obstacle> {
    let modules = repository.common.join("modules");
    let listed = repository.worktree.join(".gitmodules");
    let kept = std::fs::read_dir(&modules).is_ok_and(|mut entries| entries.next().is_some());
    let is_listed = files::kind(&listed).map_err(|e| unreadable(&listed, e))?.is_some();
    Ok((kept || is_listed).then(|| {
        Obstacle::new(
            "git-submodules",
            Extent::Working,
            "the repository has submodules, whose work could not be taken out of the fence",
            "run in a repository of the submodule itself, or say `--in-place`",
        )
        .seen_in(if is_listed { listed.display() } else { modules.display() }.to_string())
    }))
}

/// Contents that are not what is committed: Git LFS, git-crypt and other filters. Their programs and keys are not inside.
fn filters(repository: &Repository) -> Result<Option<Obstacle>, Obstacle> {
    for path in [repository.worktree.join(".gitattributes"), repository.common.join("info/attributes")] {
        if uses_filter(&path)? {
            return Ok(Some(filtered(&path)));
        }
    }
    let lfs = repository.common.join("lfs");
    let has_lfs = files::kind(&lfs).map_err(|e| unreadable(&lfs, e))?.is_some();
    Ok(has_lfs.then(|| filtered(&lfs)))
}

fn filtered(path: &Path) -> Obstacle {
    Obstacle::new(
        "git-filters",
        Extent::Working,
        "the repository converts files by a filter such as Git LFS, which does not run in the fence",
        "say `--in-place`, or work in a clone without the filter",
    )
    .seen_in(path.display().to_string())
}

/// Whether an attributes file sets a filter for anything.
pub(crate) fn uses_filter(path: &Path) -> Result<bool, Obstacle> {
    let bytes =
        files::read(path, ATTRIBUTES_LIMIT_BYTES).map_err(|e| unreadable(path, e))?.unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    Ok(text
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'))
        .flat_map(|line| line.split_whitespace().skip(1))
        .any(|attribute| attribute.starts_with("filter=")))
}
