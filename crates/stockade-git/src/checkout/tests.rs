use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{MetadataExt as _, PermissionsExt as _, symlink},
    },
    path::PathBuf,
    process::Command,
};

use super::*;
use crate::layout::discover;

/// A repository, and room beside it.
struct Scene {
    _folder: tempfile::TempDir,
    root: PathBuf,
}

impl Scene {
    fn new(format: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        fs::create_dir(root.join("repo")).unwrap();
        let scene = Self { _folder: folder, root };
        scene.git(&["init", "-q", "-b", "main", "--object-format", format, "."]);
        scene
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.root.join(relative)
    }

    fn write(&self, relative: impl AsRef<std::path::Path>, content: impl AsRef<[u8]>) {
        let path = self.path("repo").join(relative);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn commit(&self) {
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "--allow-empty", "-m", "x"]);
    }

    #[track_caller]
    fn git(&self, arguments: &[&str]) -> String {
        self.run(&[], arguments)
    }

    /// Git in a made worktree.
    #[track_caller]
    fn made(&self, arguments: &[&str]) -> String {
        let (tree, index) = (self.path("tree"), self.path("index"));
        let places = [("GIT_WORK_TREE", tree.as_path()), ("GIT_INDEX_FILE", index.as_path())];
        self.run(&places, arguments)
    }

    #[track_caller]
    #[expect(clippy::disallowed_methods, reason = "a test looks at what was written as git sees it")]
    fn run(&self, places: &[(&str, &Path)], arguments: &[&str]) -> String {
        let settings =
            ["-c", "user.name=t", "-c", "user.email=t@example.invalid", "-c", "core.untrackedCache=false"];
        let mut command = Command::new("git");
        command.current_dir(self.path("repo")).args(settings).args(arguments).env_clear();
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("GIT_CONFIG_NOSYSTEM", "1");
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_DIR", self.path("repo/.git"));
        command.env("GIT_WORK_TREE", self.path("repo")).env("GIT_OPTIONAL_LOCKS", "0");
        let out = command.envs(places.iter().copied()).output().unwrap();
        assert!(out.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    fn checkout(&self) -> Option<Checkout> {
        let git = crate::find_trusted("git", "/usr/bin:/bin").unwrap();
        let repository = discover(&self.path("repo")).unwrap().unwrap();
        let host = Host::open(&git, &repository.common).unwrap();
        Checkout::of(&host, &repository, &repository.base.clone().unwrap()).unwrap()
    }

    fn fill(&self) -> Result<(), GitError> {
        fs::create_dir(self.path("tree")).unwrap();
        let stat = fs::metadata(self.path("tree")).unwrap();
        let owner = Owner { uid: stat.uid(), gid: stat.gid() };
        let stop = AtomicBool::new(false);
        self.checkout().unwrap().write(&self.path("tree"), &self.path("index"), owner, &stop)
    }

    /// Everything in a folder: what it is, who may use it, what it holds.
    fn picture(&self, folder: &str) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
        let mut seen = BTreeMap::new();
        let mut folders = vec![self.path(folder)];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
                let (path, meta) = (entry.path(), entry.metadata().unwrap());
                let content = if meta.is_dir() {
                    folders.push(path.clone());
                    Vec::new()
                } else if meta.is_symlink() {
                    fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec()
                } else {
                    fs::read(&path).unwrap()
                };
                seen.insert(
                    path.strip_prefix(&self.root).unwrap().iter().skip(1).collect(),
                    (meta.mode(), content),
                );
            }
        }
        seen
    }
}

/// Every kind of file, names with odd bytes, deep and many folders, contents of all sizes.
fn varied(scene: &Scene, many: usize) {
    scene.write("empty", "");
    scene.write("large", (0..700_000_u32).map(|n| (n % 251) as u8).collect::<Vec<_>>());
    scene.write("newline", "\n");
    scene.write("windows", "a\r\nb\r\n");
    scene.write(OsStr::from_bytes(b"odd \xff\xfe\n\t\"name\""), "odd");
    scene.write(OsStr::from_bytes("länge/ﬀ/\u{1f980}".as_bytes()), "text");
    scene.write("a".repeat(200) + "/" + &"b".repeat(255), "long");
    scene.write(vec!["d"; 60].join("/"), "deep");
    // Names around the slash: the order of an index is not that of folders.
    for name in ["a", "a.b/1", "a-b", "a0/1", "ab/c/d", "ab/c.d", "ab/c/e/f", "ab/c-", "ab.c"] {
        scene.write(name, name);
    }
    for n in 0..many {
        scene.write(format!("many/{}/{n}", n % 37), format!("{n}\n").repeat(n % 50));
    }
    scene.write("run", "#!/bin/sh\n");
    fs::set_permissions(scene.path("repo/run"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink("../outside", scene.path("repo/link")).unwrap();
    symlink("c", scene.path("repo/ab/to a folder")).unwrap();
    scene.write(".gitattributes", "* text=auto\n*.png binary\n");
    scene.write("ab/.gitignore", "ignored\n");
}

#[test]
fn it_is_what_git_would_have_written_and_git_knows_every_file_without_reading_it() {
    // Enough for several threads, and few.
    for (format, many) in [("sha1", 2 * FILES_OF_A_THREAD), ("sha256", 40)] {
        let scene = Scene::new(format);
        varied(&scene, many);
        scene.commit();
        scene.fill().unwrap();

        fs::create_dir(scene.path("by-git")).unwrap();
        let (tree, index) = (scene.path("by-git"), scene.path("index-by-git"));
        let places = [("GIT_WORK_TREE", tree.as_path()), ("GIT_INDEX_FILE", index.as_path())];
        scene.run(&places, &["read-tree", "--reset", "-u", "HEAD"]);
        assert!(scene.picture("tree") == scene.picture("by-git"), "{format}");
        assert_eq!(
            scene.made(&["ls-files", "--stage", "-t", "-v"]),
            scene.run(&places, &["ls-files", "--stage", "-t", "-v"])
        );

        assert_eq!(scene.made(&["status", "--porcelain"]), "");
        // This looks at what the kernel says alone.
        assert_eq!(scene.made(&["diff-files"]), "");
        assert_eq!(scene.made(&["write-tree"]), scene.git(&["rev-parse", "HEAD^{tree}"]));
        assert_eq!(scene.made(&["fsck", "--strict"]), "");

        // Where only what the kernel says can tell, git believes it: no content was read.
        let (file, stat) = (scene.path("tree/newline"), fs::metadata(scene.path("tree/newline")).unwrap());
        fs::write(&file, "x").unwrap();
        assert_eq!(scene.made(&["diff-files", "--name-only"]), "newline\n");
        fs::File::open(&file).unwrap().set_modified(stat.modified().unwrap()).unwrap();
        assert_eq!(scene.made(&["-c", "core.trustctime=false", "status", "--porcelain"]), "");
        fs::write(&file, "x").unwrap();
        assert_eq!(scene.made(&["status", "--porcelain"]), " M newline\n");

        // The trees are there as git has them: only those on the way to a change are made.
        scene.made(&["add", "-A"]);
        scene.made(&["commit", "-q", "-m", "changed"]);
        assert_eq!(scene.git(&["diff", "--name-status", "HEAD~", "HEAD"]), "M\tnewline\n");
        scene.git(&["fsck", "--strict"]);
    }
}

#[test]
fn the_trees_of_all_folders_are_those_of_git() {
    let scene = Scene::new("sha1");
    varied(&scene, 40);
    scene.commit();
    scene.fill().unwrap();
    // Git would look for the objects of a tree it does not know, and name those of a wrong one.
    fs::rename(scene.path("index"), scene.path("own")).unwrap();
    fs::copy(scene.path("own"), scene.path("index")).unwrap();
    scene.made(&["read-tree", "HEAD"]);
    let trees = |path: &str| {
        let bytes = fs::read(scene.path(path)).unwrap();
        let start = bytes.windows(4).rposition(|w| w == b"TREE").unwrap();
        parse_trees(&bytes[start + 8..bytes.len() - 20])
    };
    let (mut own, mut by_git) = (trees("own"), trees("index"));
    // That of the top is left open.
    assert!(own.remove("").unwrap().0.starts_with("-1 "));
    assert!(by_git.remove("").is_some());
    assert_eq!(own, by_git);
    assert!(own.len() > 40 + 60, "{}", own.len());
}

/// The trees of an index by path: their counts and names.
fn parse_trees(bytes: &[u8]) -> BTreeMap<String, (String, Vec<u8>)> {
    fn read<'b>(mut rest: &'b [u8], at: &str, found: &mut BTreeMap<String, (String, Vec<u8>)>) -> &'b [u8] {
        let nul = rest.iter().position(|b| *b == 0).unwrap();
        let line = nul + rest[nul..].iter().position(|b| *b == b'\n').unwrap();
        let name = format!("{at}/{}", String::from_utf8_lossy(&rest[..nul]));
        let name = name.trim_start_matches('/').to_owned();
        let counts = String::from_utf8(rest[nul + 1..line].to_vec()).unwrap();
        let length = if counts.starts_with('-') { 0 } else { 20 };
        found.insert(name.clone(), (counts.clone(), rest[line + 1..line + 1 + length].to_vec()));
        rest = &rest[line + 1 + length..];
        for _ in 0..counts.split_once(' ').unwrap().1.parse().unwrap() {
            rest = read(rest, &name, found);
        }
        rest
    }
    let mut found = BTreeMap::new();
    let rest = read(bytes, "", &mut found);
    assert_eq!(rest, b"");
    found
}

#[test]
fn a_commit_without_files_is_an_empty_folder() {
    for format in ["sha1", "sha256"] {
        let scene = Scene::new(format);
        scene.commit();
        scene.fill().unwrap();
        assert_eq!(scene.picture("tree"), BTreeMap::new());
        assert_eq!(scene.made(&["status", "--porcelain"]), "");
        assert_eq!(scene.made(&["write-tree"]), scene.git(&["rev-parse", "HEAD^{tree}"]));
        scene.made(&["fsck"]);
    }
}

#[test]
fn what_git_would_convert_or_refuse_is_left_to_git() {
    type Prepare = fn(&Scene);
    let variants: [(&str, Prepare); 12] = [
        ("attributes", |s| s.write(".gitattributes", "*.txt eol=crlf\n")),
        ("attributes below", |s| s.write("a/.gitattributes", "* ident\n")),
        ("attributes of the repository", |s| {
            s.write(".git/info/attributes", "*.x working-tree-encoding=UTF-16\n");
        }),
        ("autocrlf", |s| drop(s.git(&["config", "core.autocrlf", "true"]))),
        ("eol", |s| drop(s.git(&["config", "core.eol", "crlf"]))),
        ("no links", |s| drop(s.git(&["config", "core.symlinks", "false"]))),
        ("sparse", |s| drop(s.git(&["config", "core.sparseCheckout", "true"]))),
        ("a word without a value", |s| {
            let config = fs::read_to_string(s.path("repo/.git/config")).unwrap();
            fs::write(s.path("repo/.git/config"), config + "[core]\n\tautocrlf\n").unwrap();
        }),
        ("a filter", |s| s.write(".gitattributes", "*.bin\tfilter=lfs diff=lfs\n")),
        ("a macro", |s| s.write(".gitattributes", "[attr]win eol=lf\n")),
        ("another repository", |s| {
            let commit = s.git(&["commit-tree", "-m", "x", "4b825dc642cb6eb9a060e54bf8d69288fbee4904"]);
            s.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{},sub", commit.trim())]);
            s.git(&["commit", "-q", "-m", "x"]);
            s.git(&["update-ref", "refs/heads/kept", "HEAD"]);
        }),
        ("a name for Windows", |s| s.write("git~2", "x")),
    ];
    for (name, prepare) in variants {
        let scene = Scene::new("sha1");
        scene.write("a/f", "x");
        scene.commit();
        assert!(scene.checkout().is_some(), "{name}: the control");
        prepare(&scene);
        if name != "another repository" {
            scene.commit();
        }
        assert!(scene.checkout().is_none(), "{name}");
    }
}

#[test]
fn nothing_is_followed_or_overwritten() {
    let scene = Scene::new("sha1");
    fs::create_dir(scene.path("outside")).unwrap();
    scene.write("x", "through the link");
    scene.commit();
    let blob = |text: &str| {
        fs::write(scene.path("blob"), text).unwrap();
        scene.git(&["hash-object", "-w", "--", &scene.path("blob").display().to_string()]).trim().to_owned()
    };
    let bytes = |hex: &str| {
        (0..40).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect::<Vec<_>>()
    };
    // A link and a folder of the same name: what is in the folder would land where the link points.
    let folder = scene.git(&["rev-parse", "HEAD^{tree}"]).trim().to_owned();
    let link = blob(&scene.path("outside").display().to_string());
    let raw = [b"120000 a\0".as_slice(), &bytes(&link), b"40000 a\0", &bytes(&folder)].concat();
    fs::write(scene.path("raw"), raw).unwrap();
    let raw = scene.path("raw").display().to_string();
    let tree = scene.git(&["hash-object", "-t", "tree", "-w", "--literally", "--", &raw]).trim().to_owned();
    let commit = scene.git(&["commit-tree", "-m", "x", &tree]).trim().to_owned();
    scene.git(&["update-ref", "refs/heads/main", &commit]);
    let refused = scene.fill().unwrap_err();
    assert!(refused.to_string().contains("`a/x`"), "{refused}");
    assert_eq!(fs::read_dir(scene.path("outside")).unwrap().count(), 0);
    assert!(!scene.path("index").exists());

    // What is there already stays.
    let scene = Scene::new("sha1");
    scene.write("x", "new");
    scene.commit();
    fs::create_dir(scene.path("tree")).unwrap();
    fs::write(scene.path("tree/x"), "kept").unwrap();
    let checkout = scene.checkout().unwrap();
    let stop = AtomicBool::new(false);
    let owner = Owner { uid: 0, gid: 0 };
    let write = |stop: &AtomicBool| checkout.write(&scene.path("tree"), &scene.path("index"), owner, stop);
    assert!(write(&stop).is_err());
    assert_eq!(fs::read(scene.path("tree/x")).unwrap(), b"kept");
    assert!(stop.load(Ordering::Relaxed), "the other threads end as well");

    // One that is stopped writes nothing more.
    fs::remove_file(scene.path("tree/x")).unwrap();
    assert!(write(&stop).is_err());
    assert!(!scene.path("tree/x").exists() && !scene.path("index").exists());
}
