//! The pointer file of a linked worktree, believed only where the repository points back.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use super::{config, unreadable};
use crate::{
    files,
    obstacle::{Extent, Obstacle},
};

/// A path and a word before it.
const POINTER_LIMIT_BYTES: usize = 16 * 1024;

const REPAIR: &str =
    "if the worktree was moved, run `git worktree repair` in it; if not, do not trust what wrote the pointer";

/// Gives the common folder and the folder of this worktree.
pub(super) fn follow(worktree: &Path, entry: &Path) -> Result<(PathBuf, PathBuf), Obstacle> {
    let tampered = |code, message: String, evidence: &Path| {
        Obstacle::new(code, Extent::Every, message, REPAIR).seen_in(evidence.display().to_string())
    };
    let named = read_path(entry, b"gitdir:")?.ok_or_else(|| {
        tampered("git-pointer", "the file `.git` does not say where the repository is".to_owned(), entry)
    })?;
    let git_dir = std::fs::canonicalize(worktree.join(&named)).map_err(|_| {
        tampered(
            "git-pointer",
            format!("the file `.git` points to `{}`, which is not there", named.display()),
            entry,
        )
    })?;
    let Some(up) = read_path(&git_dir.join("commondir"), b"")? else {
        return Err(without_worktrees(worktree, &git_dir));
    };
    let common = std::fs::canonicalize(git_dir.join(&up)).map_err(|_| {
        tampered(
            "git-commondir",
            format!("`commondir` names `{}`, which is not there", up.display()),
            &git_dir,
        )
    })?;
    if git_dir.parent() != Some(&common.join("worktrees")) {
        return Err(tampered(
            "git-commondir",
            format!(
                "`{}` is no worktree of `{}`, though its `commondir` says so",
                git_dir.display(),
                common.display()
            ),
            &git_dir.join("commondir"),
        ));
    }
    let back = read_path(&git_dir.join("gitdir"), b"")?;
    let names_us = back.as_ref().is_some_and(|back| {
        let back = git_dir.join(back);
        back.file_name() == Some(OsStr::new(".git"))
            && back.parent().is_some_and(|p| std::fs::canonicalize(p).is_ok_and(|p| p == worktree))
    });
    if !names_us {
        return Err(tampered(
            "git-pointer",
            format!("the file `.git` points to `{}`, which does not name this worktree", git_dir.display()),
            entry,
        ));
    }
    Ok((common, git_dir))
}

/// A pointer to a whole repository: a submodule's, or one kept apart. Nothing but a submodule's setting points back.
fn without_worktrees(worktree: &Path, git_dir: &Path) -> Obstacle {
    let settings = match config(&git_dir.join("config")) {
        Ok(settings) => settings,
        Err(obstacle) => return obstacle,
    };
    let names_us = settings.iter().any(|s| {
        (&*s.section, &*s.key) == ("core", "worktree")
            && std::fs::canonicalize(git_dir.join(&s.value)).is_ok_and(|p| p == worktree)
    });
    if names_us {
        return Obstacle::new(
            "git-submodule",
            Extent::Serving,
            "the folder is a submodule, whose repository lies in another one",
            "run in a clone or a linked worktree of the submodule's own repository, or say `--in-place`",
        )
        .seen_in(git_dir.display().to_string());
    }
    Obstacle::new(
        "git-pointer",
        Extent::Every,
        format!("the file `.git` points to `{}`, which does not name this folder", git_dir.display()),
        "use a linked worktree (`git worktree add`), or move the repository's folder to `.git`",
    )
    .seen_in(worktree.join(".git").display().to_string())
}

/// The path in a file of one line, after a word; `None`: no such file, or nothing of that kind in it.
fn read_path(file: &Path, word: &[u8]) -> Result<Option<PathBuf>, Obstacle> {
    let Some(bytes) = files::read(file, POINTER_LIMIT_BYTES).map_err(|e| unreadable(file, e))? else {
        return Ok(None);
    };
    let Some(rest) = bytes.strip_prefix(word) else { return Ok(None) };
    let path = rest.trim_ascii();
    Ok((!path.is_empty() && !path.contains(&b'\n') && !path.contains(&0))
        .then(|| OsStr::from_bytes(path).into()))
}
