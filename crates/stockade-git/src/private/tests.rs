use std::fs;

use stockade_core::{git::GitAuthor, git_config};

use super::*;
use crate::layout::Head;

fn workspace(tree: WorkTree, common: &Path) -> GitWorkspace {
    GitWorkspace {
        tree,
        common: common.to_owned(),
        shown_at: common.to_owned(),
        base: None,
        author: GitAuthor::parse("A \"q\" \\ B <a@example.invalid>"),
        include_dirty: false,
    }
}

fn repository(root: &Path, config: &str) -> Repository {
    let common = root.join("main/.git");
    fs::create_dir_all(common.join("refs/heads")).unwrap();
    fs::create_dir_all(common.join("hooks")).unwrap();
    fs::write(common.join("hooks/post-commit"), "#!/bin/sh\n").unwrap();
    fs::write(common.join("HEAD"), "ref: refs/heads/main\n").unwrap();
    fs::write(common.join("refs/heads/main"), format!("{}\n", "1".repeat(40))).unwrap();
    fs::write(common.join("index"), "an index").unwrap();
    Repository {
        worktree: root.join("main"),
        git_dir: common.clone(),
        common,
        head: Head::Branch("refs/heads/main".to_owned()),
        base: Some("1".repeat(40)),
        owner: (0, 0),
        obstacles: Vec::new(),
        settings: git_config::settings(config).collect(),
    }
}

#[test]
fn nothing_of_the_real_folder_comes_along_but_references_and_harmless_settings() {
    let folder = tempfile::tempdir().unwrap();
    let config = "[core]\n\tautocrlf = input\n\tfsmonitor = /evil\n\thooksPath = /evil\n\tsshCommand = evil\n\
        [remote \"o\"]\n\turl = https://user:secret@example.invalid/x\n[http]\n\textraHeader = Authorization: secret\n\
        [filter \"f\"]\n\tclean = evil\n[alias]\n\tst = !evil\n[diff]\n\texternal = evil\n[include]\n\tpath = /evil\n";
    let repository = repository(folder.path(), config);
    let at = folder.path().join("private");
    let workspace = workspace(WorkTree::Shown, &repository.common);
    let made = PrivateFolder::make(&at, Content { repository: &repository, workspace: &workspace }).unwrap();
    assert!(!made.config.contains("evil") && !made.config.contains("secret"), "{}", made.config);
    let read: Vec<_> = git_config::settings(&made.config).collect();
    let value = |section: &str, key: &str| {
        read.iter().find(|s| s.section == section && s.key == key).map(|s| s.value.clone())
    };
    assert_eq!(value("core", "autocrlf").as_deref(), Some("input"));
    assert_eq!(value("user", "name").as_deref(), Some("A \"q\" \\ B"));
    assert!(!at.join("hooks").exists());
    assert_eq!(fs::read_to_string(at.join("objects/info/alternates")).unwrap(), "/repository/objects\n");
    assert_eq!(fs::read_to_string(at.join("HEAD")).unwrap(), "ref: refs/heads/main\n");
    assert_eq!(made.git_dir, repository.common);
    let stamp = |p: &Path| fs::metadata(p).unwrap().modified().unwrap();
    assert_eq!(stamp(&at.join("index")), stamp(&repository.common.join("index")));
}

#[test]
fn a_linked_worktree_keeps_its_place_and_a_made_one_is_a_folder_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let mut linked = repository(folder.path(), "");
    linked.git_dir = linked.common.join("worktrees/lane");
    linked.worktree = folder.path().join("lane");
    linked.head = Head::Detached("2".repeat(40));
    fs::create_dir_all(linked.git_dir.join("info")).unwrap();
    fs::write(linked.git_dir.join("index"), "own").unwrap();
    fs::write(linked.git_dir.join("info/sparse-checkout"), "/a\n").unwrap();

    let at = folder.path().join("named");
    let as_named = workspace(WorkTree::Named, &linked.common);
    let made = PrivateFolder::make(&at, Content { repository: &linked, workspace: &as_named }).unwrap();
    assert_eq!(made.git_dir, linked.common.join("worktrees/lane"));
    let own = at.join("worktrees/lane");
    assert_eq!(fs::read_to_string(own.join("HEAD")).unwrap(), format!("{}\n", "2".repeat(40)));
    assert_eq!(fs::read_to_string(own.join("index")).unwrap(), "own");
    assert_eq!(fs::read_to_string(own.join("info/sparse-checkout")).unwrap(), "/a\n");
    assert_eq!(
        fs::read_to_string(own.join("gitdir")).unwrap(),
        format!("{}/.git\n", linked.worktree.display())
    );

    let at = folder.path().join("made");
    let as_made =
        GitWorkspace { shown_at: linked.worktree.join(".git"), ..workspace(WorkTree::Made, &linked.common) };
    let made = PrivateFolder::make(&at, Content { repository: &linked, workspace: &as_made }).unwrap();
    assert_eq!(made.git_dir, linked.worktree.join(".git"));
    assert_eq!(fs::read_to_string(at.join("HEAD")).unwrap(), format!("{}\n", "2".repeat(40)));
    assert_eq!(fs::read_to_string(at.join(CALLERS_INDEX)).unwrap(), "own");
    assert!(!at.join("index").exists() && !at.join("worktrees").exists());
}
