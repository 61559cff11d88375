use std::{fs, os::unix::fs::symlink};

use super::*;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A repository with a linked worktree, made by hand: nothing here runs git.
struct Scene {
    _folder: tempfile::TempDir,
    root: PathBuf,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        let scene = Self { _folder: folder, root };
        for dir in [
            "main/.git/objects/info",
            "main/.git/objects/pack",
            "main/.git/refs/heads",
            "main/.git/worktrees/lane",
            "lane",
        ] {
            fs::create_dir_all(scene.path(dir)).unwrap();
        }
        scene.write("main/.git/HEAD", "ref: refs/heads/main\n");
        scene.write("main/.git/refs/heads/main", &format!("{COMMIT}\n"));
        scene.write("main/.git/config", "[core]\n\trepositoryformatversion = 0\n");
        scene.write("main/.git/worktrees/lane/HEAD", &format!("{COMMIT}\n"));
        scene.write("main/.git/worktrees/lane/commondir", "../..\n");
        scene.write("main/.git/worktrees/lane/gitdir", &format!("{}\n", scene.path("lane/.git").display()));
        scene.write("lane/.git", &format!("gitdir: {}\n", scene.path("main/.git/worktrees/lane").display()));
        scene
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.root.join(relative)
    }

    fn write(&self, relative: &str, content: &str) {
        fs::write(self.path(relative), content).unwrap();
    }

    fn found(&self, worktree: &str) -> Repository {
        discover(&self.path(worktree)).unwrap().unwrap()
    }

    fn refusal(&self, worktree: &str) -> (&'static str, Extent) {
        let obstacle = discover(&self.path(worktree)).unwrap_err();
        (obstacle.code, obstacle.extent)
    }

    fn obstacles(&self, worktree: &str) -> Vec<&'static str> {
        self.found(worktree).obstacles.iter().map(|o| o.code).collect()
    }
}

#[test]
fn a_main_and_a_linked_worktree_are_found_without_git() {
    let scene = Scene::new();
    let main = scene.found("main");
    assert!(main.is_main());
    assert_eq!(main.head, Head::Branch("refs/heads/main".to_owned()));
    let lane = scene.found("lane");
    assert_eq!(
        (&lane.common, &lane.git_dir),
        (&scene.path("main/.git"), &scene.path("main/.git/worktrees/lane"))
    );
    assert_eq!(lane.head, Head::Detached(COMMIT.to_owned()));
    assert_eq!((main.base.as_deref(), lane.base.as_deref()), (Some(COMMIT), Some(COMMIT)));
    assert!(main.obstacles.is_empty() && lane.obstacles.is_empty());
    fs::create_dir(scene.path("plain")).unwrap();
    assert!(discover(&scene.path("plain")).unwrap().is_none());
}

#[test]
fn a_pointer_may_be_relative() {
    let scene = Scene::new();
    scene.write("lane/.git", "gitdir: ../main/.git/worktrees/lane\n");
    scene.write("main/.git/worktrees/lane/gitdir", "../../../../lane/.git\n");
    assert_eq!(scene.found("lane").common, scene.path("main/.git"));
}

#[test]
fn a_pointer_to_a_repository_that_does_not_point_back_is_refused() {
    let scene = Scene::new();
    fs::create_dir(scene.path("evil")).unwrap();
    for target in ["main/.git/worktrees/lane", "main/.git", "main/.git/worktrees", "nowhere"] {
        scene.write("evil/.git", &format!("gitdir: {}\n", scene.path(target).display()));
        assert_eq!(scene.refusal("evil"), ("git-pointer", Extent::Every), "{target}");
    }
    for content in ["", "gitdir:\n", "nonsense", "gitdir: a\nb\n"] {
        scene.write("evil/.git", content);
        assert_eq!(scene.refusal("evil"), ("git-pointer", Extent::Every), "{content:?}");
    }
}

#[test]
fn a_commondir_that_leads_elsewhere_is_refused() {
    let scene = Scene::new();
    fs::create_dir_all(scene.path("other/.git/worktrees")).unwrap();
    for target in
        [scene.path("other/.git").display().to_string(), "..".to_owned(), "/".to_owned(), "no".to_owned()]
    {
        scene.write("main/.git/worktrees/lane/commondir", &target);
        assert_eq!(scene.refusal("lane"), ("git-commondir", Extent::Every), "{target}");
    }
}

#[test]
fn links_in_the_place_of_the_repository_or_its_objects_are_refused() {
    let scene = Scene::new();
    fs::create_dir(scene.path("secret")).unwrap();
    fs::create_dir(scene.path("linked")).unwrap();
    symlink(scene.path("main/.git"), scene.path("linked/.git")).unwrap();
    assert_eq!(scene.refusal("linked"), ("git-is-link", Extent::Every));
    for name in ["objects/ab", "objects/pack", "objects/info", "objects"] {
        let path = scene.path("main/.git").join(name);
        let kept = scene.path("kept");
        let was_there = path.exists();
        if was_there {
            fs::rename(&path, &kept).unwrap();
        }
        symlink(scene.path("secret"), &path).unwrap();
        assert_eq!(scene.refusal("main"), ("git-objects-link", Extent::Every), "{name}");
        assert_eq!(scene.refusal("lane"), ("git-objects-link", Extent::Every), "{name}");
        fs::remove_file(&path).unwrap();
        if was_there {
            fs::rename(&kept, &path).unwrap();
        }
    }
    scene.write("main/.git/objects/info/alternates", "/somewhere/objects\n");
    assert_eq!(scene.refusal("main"), ("git-alternates", Extent::Every));
    scene.write("main/.git/objects/info/alternates", "\n");
    assert!(scene.obstacles("main").is_empty());
}

#[test]
fn what_does_not_work_in_a_fence_has_a_name() {
    let core = "[core]\n\trepositoryformatversion = 1\n";
    for (config, expected) in [
        ("[extensions]\n\tpartialClone = origin\n", "git-partial-clone"),
        ("[remote \"o\"]\n\tpromisor = true\n", "git-partial-clone"),
        ("[extensions]\n\trefStorage = reftable\n", "git-reftable"),
        ("[extensions]\n\tobjectFormat = sha512\n", "git-object-format"),
        ("[extensions]\n\tfromTheFuture = 1\n", "git-extension"),
        ("[core]\n\trepositoryformatversion = 7\n", "git-format"),
    ] {
        let scene = Scene::new();
        scene.write("main/.git/config", &format!("{core}{config}"));
        assert_eq!(scene.obstacles("lane"), [expected], "{config}");
    }
    for config in [
        "[extensions]\n\tobjectFormat = sha256\n\tworktreeConfig = true\n\tnoop = x\n",
        "[core]\n\tbare = true\n",
    ] {
        let scene = Scene::new();
        scene.write("main/.git/config", &format!("{core}{config}"));
        assert!(scene.obstacles("lane").is_empty(), "{config}");
    }
}

#[test]
fn submodules_filters_and_a_repository_without_commits_are_refused_for_work_only() {
    let of = |prepare: &dyn Fn(&Scene)| {
        let scene = Scene::new();
        prepare(&scene);
        scene.found("main").obstacles.iter().map(|o| (o.code, o.extent)).collect::<Vec<_>>()
    };
    assert_eq!(of(&|s| s.write("main/.gitmodules", "")), [("git-submodules", Extent::Working)]);
    assert_eq!(
        of(&|s| fs::create_dir_all(s.path("main/.git/modules/x")).unwrap()),
        [("git-submodules", Extent::Working)]
    );
    assert_eq!(
        of(&|s| s.write("main/.gitattributes", "*.bin filter=lfs -text\n")),
        [("git-filters", Extent::Working)]
    );
    assert_eq!(of(&|s| s.write("main/.gitattributes", "*.c diff=c\n# x filter=y\n*.d -filter\n")), []);
    assert_eq!(
        of(&|s| fs::remove_file(s.path("main/.git/refs/heads/main")).unwrap()),
        [("git-no-commit", Extent::Working)]
    );
}

#[test]
fn a_submodule_and_a_repository_kept_apart_are_told_apart() {
    let scene = Scene::new();
    fs::create_dir_all(scene.path("main/.git/modules/sub")).unwrap();
    fs::create_dir_all(scene.path("main/sub")).unwrap();
    scene.write("main/sub/.git", "gitdir: ../.git/modules/sub\n");
    scene.write("main/.git/modules/sub/config", "[core]\n\tworktree = ../../../sub\n");
    assert_eq!(scene.refusal("main/sub"), ("git-submodule", Extent::Serving));
    scene.write("main/.git/modules/sub/config", "[core]\n\tworktree = ../../../other\n");
    assert_eq!(scene.refusal("main/sub"), ("git-pointer", Extent::Every));
}

#[test]
fn a_repository_whose_files_are_elsewhere_is_refused() {
    let scene = Scene::new();
    scene.write("main/.git/config", "[core]\n\tworktree = ../../lane\n");
    assert_eq!(scene.obstacles("main"), ["git-core-worktree"]);
    scene.write("main/.git/config", "[core]\n\tworktree = ../\n");
    assert!(scene.obstacles("main").is_empty());
}

#[test]
fn a_head_that_says_nothing_is_refused() {
    for content in ["", "ref: HEAD\n", "ref: refs/../x\n", "nonsense\n"] {
        let scene = Scene::new();
        scene.write("main/.git/HEAD", content);
        assert_eq!(scene.refusal("main"), ("git-head", Extent::Every), "{content:?}");
    }
}

#[test]
fn a_git_folder_is_known_from_inside_and_a_working_tree_is_none() {
    let scene = Scene::new();
    assert!(is_git_folder(&scene.path("main/.git")));
    assert!(is_git_folder(&scene.path("main/.git/hooks")));
    assert!(!is_git_folder(&scene.path("main")));
    assert!(!is_git_folder(&scene.path("lane")));
}
