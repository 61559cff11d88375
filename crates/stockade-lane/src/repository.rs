//! What git has to do with the folder of an order: whether it works in the fence, on which files, and what speaks against
//! it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use stockade_core::{
    git::{GitAuthor, GitWorkspace, WorkTree},
    mode::AccessMode,
    order::WorkspaceObjection,
    status::{Boundary, Cause, Refusal},
};
use stockade_git::{Extent, Obstacle, Repository};

use crate::request::{LaneRequest, WorktreeChoice};

/// Files of a working tree by which git knows that something is under way in it.
const UNDER_WAY: [&str; 6] =
    ["MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge", "rebase-apply", "BISECT_LOG"];

/// A repository that git works with in the fence.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    pub(crate) repository: Repository,
    /// Git, where nobody but root could have put it; needed where work is taken out.
    pub(crate) program: Option<PathBuf>,
}

/// What was found about a folder.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) git: Option<GitWorkspace>,
    pub(crate) served: Option<Served>,
    pub(crate) objections: Vec<WorkspaceObjection>,
    pub(crate) notes: Vec<String>,
}

/// Looks at a canonical folder.
pub(crate) fn look(request: &LaneRequest, path: &Path) -> Result<Found, Refusal> {
    let author = request.git_author.as_deref().map(author).transpose()?;
    let tree = wanted(request);
    let mut found = Found::default();
    if stockade_git::is_git_folder(path) {
        found.objections.push(WorkspaceObjection {
            code: "git-folder".to_owned(),
            modes: AccessMode::ALL.to_vec(),
            message: "the folder is the git folder of a repository, or lies in one".to_owned(),
            evidence: vec![path.display().to_string()],
            remedy: "use a working tree of the repository".to_owned(),
        });
    } else {
        match stockade_git::discover(path) {
            Ok(None) => {}
            Ok(Some(repository)) => serve(request, tree, repository, author, &mut found),
            Err(obstacle) => object(&obstacle, tree, &mut found),
        }
    }
    let has_made = tree == Some(WorkTree::Made) && (found.git.is_some() || !found.objections.is_empty());
    if request.include_dirty && !has_made {
        return Err(usage(
            "include-dirty",
            "`--include-dirty` carries changes into a worktree that Stockade makes, and this run has none",
            "use it with `--mode isolated-write` in a repository, without `--in-place` and `--worktree named`",
        ));
    }
    if request.worktree.is_some() && found.git.is_none() && found.objections.is_empty() {
        return Err(usage(
            "worktree",
            "`--worktree` is for `--mode isolated-write` in a repository",
            "leave it out, or name the working tree of a repository with `--cwd`",
        ));
    }
    Ok(found)
}

fn usage(code: &str, message: &str, remedy: &str) -> Refusal {
    Refusal::usage(Cause::new(code, Boundary::Order, code, message).with_remedy(remedy))
}

fn author(text: &str) -> Result<GitAuthor, Refusal> {
    GitAuthor::parse(text).ok_or_else(|| {
        usage(
            "git-author",
            "`--git-author` is no name with a mail address",
            "say `--git-author 'Name <mail>'`",
        )
    })
}

/// Which files a run wants to work on, if the folder has a repository; `None`: the folder as it is.
fn wanted(request: &LaneRequest) -> Option<WorkTree> {
    match (request.mode, request.in_place, request.worktree) {
        (AccessMode::ReadOnly, _, None) => Some(WorkTree::Shown),
        (AccessMode::ReadOnly, _, Some(_)) | (AccessMode::IsolatedWrite, true, _) => None,
        (AccessMode::IsolatedWrite, false, Some(WorktreeChoice::Named)) => Some(WorkTree::Named),
        (AccessMode::IsolatedWrite, false, Some(WorktreeChoice::Made) | None) => Some(WorkTree::Made),
    }
}

/// Turns an obstacle into an objection, or into a note where the repository can be shown as it is.
fn object(obstacle: &Obstacle, tree: Option<WorkTree>, found: &mut Found) {
    let modes = match (obstacle.extent, tree) {
        (Extent::Every, _) => AccessMode::ALL.to_vec(),
        (Extent::Serving | Extent::Working, Some(WorkTree::Made | WorkTree::Named)) => {
            vec![AccessMode::IsolatedWrite]
        }
        (Extent::Serving, Some(WorkTree::Shown)) => {
            found.notes.push(format!("git is as on the host, not served in the fence: {}", obstacle.message));
            return;
        }
        (Extent::Working, Some(WorkTree::Shown)) | (_, None) => return,
    };
    found.objections.push(WorkspaceObjection {
        code: obstacle.code.to_owned(),
        modes,
        message: obstacle.message.clone(),
        evidence: obstacle.evidence.clone(),
        remedy: obstacle.remedy.to_owned(),
    });
}

fn serve(
    request: &LaneRequest,
    tree: Option<WorkTree>,
    repository: Repository,
    author: Option<GitAuthor>,
    found: &mut Found,
) {
    for obstacle in &repository.obstacles {
        object(obstacle, tree, found);
    }
    let Some(tree) = tree else { return };
    let as_it_is = repository.obstacles.iter().any(|o| o.extent == Extent::Serving);
    if as_it_is && tree == WorkTree::Shown {
        return;
    }
    let path = request.environment.get("PATH").map(String::as_str).unwrap_or_default();
    let program = stockade_git::find_trusted("git", path);
    let mut refuse = |code: &str, message: String, evidence: String, remedy: &str| {
        found.objections.push(WorkspaceObjection {
            code: code.to_owned(),
            modes: vec![AccessMode::IsolatedWrite],
            message,
            evidence: vec![evidence],
            remedy: remedy.to_owned(),
        });
    };
    if tree != WorkTree::Shown {
        if program.is_none() {
            refuse(
                "git-missing",
                "no `git` on PATH lies where only root could have put it".to_owned(),
                format!("PATH is `{path}`"),
                "install git by the system's packages, or say `--in-place`",
            );
        }
        let own = rustix::process::geteuid();
        if !own.is_root() && repository.owner.0 != own.as_raw() {
            refuse(
                "git-foreign",
                format!(
                    "the repository belongs to user {}, so that nothing can be brought back into it",
                    repository.owner.0
                ),
                repository.common.display().to_string(),
                "run as its owner, or in a clone of your own",
            );
        }
    }
    if tree == WorkTree::Named {
        named(&repository, &mut refuse);
    }
    let entry = repository.worktree.join(".git");
    let xdg = request.environment.get("XDG_CONFIG_HOME").map(PathBuf::from);
    let author = (tree != WorkTree::Shown).then(|| {
        author.unwrap_or_else(|| stockade_git::author(&repository, request.home.as_deref(), xdg.as_deref()))
    });
    found.git = Some(GitWorkspace {
        tree,
        common: repository.common.clone(),
        shown_at: if tree == WorkTree::Made { entry } else { repository.common.clone() },
        base: repository.base.clone(),
        author,
        include_dirty: request.include_dirty,
    });
    found.served = Some(Served { repository, program });
}

/// What speaks against the caller's own linked worktree.
fn named(repository: &Repository, refuse: &mut impl FnMut(&str, String, String, &str)) {
    let shown = repository.worktree.display().to_string();
    if repository.is_main() {
        refuse(
            "main-worktree",
            format!("`{shown}` is the main working tree of a repository, not a linked one"),
            format!("{shown}/.git is a folder"),
            "leave out `--worktree named`: Stockade then makes a worktree; or say `--in-place`",
        );
    }
    let deep = repository.common.strip_prefix(&repository.worktree).is_ok_and(|r| r.components().count() > 1);
    if deep {
        refuse(
            "git-inside-worktree",
            "the repository's folder lies deep inside the worktree that would be writable".to_owned(),
            repository.common.display().to_string(),
            "leave out `--worktree named`: Stockade then makes a worktree",
        );
    }
    for name in UNDER_WAY {
        if fs::symlink_metadata(repository.git_dir.join(name)).is_ok() {
            refuse(
                "git-under-way",
                "a merge, rebase, cherry-pick, revert or bisection is under way in the worktree".to_owned(),
                repository.git_dir.join(name).display().to_string(),
                "finish or abort it, or leave out `--worktree named`",
            );
            return;
        }
    }
}
