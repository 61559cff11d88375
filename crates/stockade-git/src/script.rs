//! What git does inside a fence, as scripts for `/bin/sh`, and what they report.
//!
//! They run where an agent may have changed everything, and can do nothing there that the agent could not. What they say
//! is taken as the agent's word: it decides what is asked for, never what is believed of the caller's repository.

mod report;

use std::path::Path;

use stockade_core::git::{GitAuthor, GitWorkspace, WorkTree};

pub use report::{Captured, Prepared, captured, prepared};

use crate::private::PrivateFolder;

/// Fills a made worktree, or notes what a named one holds.
pub const PREPARE: &str = concat!(include_str!("script/add.sh"), include_str!("script/prepare.sh"));
/// Turns what the files hold into objects and tells what there is.
pub const CAPTURE: &str = concat!(include_str!("script/add.sh"), include_str!("script/capture.sh"));
/// Writes a bundle to standard output.
pub const BUNDLE: &str = include_str!("script/bundle.sh");

/// Where the caller's working tree is shown, read-only, while a worktree is made.
pub const CALLER: &str = "/repository/caller";
/// What the first script does where the worktree is filled by another: it counts what the caller changed.
pub const COUNT: &str = "count";
/// The exit code of a script that found a merge under way in the caller's working tree.
pub const UNMERGED: i32 = 3;
/// The exit code of a script that found a filter among the attributes.
pub const FILTERED: i32 = 4;
/// References that a bundle carries are called by numbers below this name.
pub const NUMBERED: &str = "refs/stockade-export";

/// The environment of a script: nothing of the agent's configuration counts, and nothing starts by itself.
pub fn environment(
    workspace: &GitWorkspace,
    folder: &PrivateFolder,
    worktree: &Path,
    author: &GitAuthor,
) -> Vec<(String, String)> {
    const SETTINGS: [(&str, &str); 13] = [
        ("safe.directory", "*"),
        ("core.checkStat", "default"),
        ("core.fsmonitor", "false"),
        ("core.hooksPath", "/dev/null"),
        ("core.untrackedCache", "false"),
        ("core.splitIndex", "false"),
        ("core.logAllRefUpdates", "false"),
        // Nothing in a private folder has to survive the host: it is in the repository when the run is over.
        ("core.fsync", "none"),
        ("gc.auto", "0"),
        ("maintenance.auto", "false"),
        ("protocol.allow", "never"),
        ("submodule.recurse", "false"),
        ("advice.addEmbeddedRepo", "false"),
    ];
    let path = |p: &Path| p.display().to_string();
    let mut env: Vec<(String, String)> = [
        ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned()),
        ("HOME", "/tmp".to_owned()),
        ("LC_ALL", "C".to_owned()),
        ("GIT_DIR", path(&folder.git_dir)),
        ("GIT_COMMON_DIR", path(&workspace.shown_at)),
        ("GIT_WORK_TREE", path(worktree)),
        ("GIT_CONFIG_NOSYSTEM", "1".to_owned()),
        ("GIT_CONFIG_GLOBAL", "/dev/null".to_owned()),
        ("GIT_ATTR_NOSYSTEM", "1".to_owned()),
        ("GIT_NO_REPLACE_OBJECTS", "1".to_owned()),
        ("GIT_OPTIONAL_LOCKS", "0".to_owned()),
        ("GIT_TERMINAL_PROMPT", "0".to_owned()),
        ("GIT_AUTHOR_NAME", author.name.clone()),
        ("GIT_AUTHOR_EMAIL", author.email.clone()),
        ("GIT_COMMITTER_NAME", author.name.clone()),
        ("GIT_COMMITTER_EMAIL", author.email.clone()),
        ("GIT_CONFIG_COUNT", SETTINGS.len().to_string()),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect();
    for (number, (key, value)) in SETTINGS.into_iter().enumerate() {
        env.push((format!("GIT_CONFIG_KEY_{number}"), key.to_owned()));
        env.push((format!("GIT_CONFIG_VALUE_{number}"), value.to_owned()));
    }
    env
}

/// What the first script does, as its argument says.
pub fn preparation(workspace: &GitWorkspace) -> &'static str {
    match workspace.tree {
        WorkTree::Made if workspace.include_dirty => "include",
        WorkTree::Made => "fill",
        WorkTree::Named | WorkTree::Shown => "note",
    }
}
