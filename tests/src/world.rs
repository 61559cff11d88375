//! A small world for one test: a home, a state directory with the providers, a workspace, and decoys around it.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, chown},
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use crate::{Caller, asked::Declared};

/// The binary under test.
pub fn binary() -> PathBuf {
    let path = std::env::var_os("STOCKADE_BIN")
        .expect("STOCKADE_BIN is not set: run the tests by `cargo xtask test`");
    let path = PathBuf::from(path);
    assert!(path.is_file(), "STOCKADE_BIN names no file: {}", path.display());
    path
}

/// The state directory in which `cargo xtask test` has installed the providers.
pub fn shared_state() -> PathBuf {
    let path = std::env::var_os("STOCKADE_TEST_STATE")
        .expect("STOCKADE_TEST_STATE is not set: run the tests by `cargo xtask test`");
    PathBuf::from(path)
}

/// A binary of this package.
pub fn helper_binary(name: &str) -> PathBuf {
    let mut path = std::env::current_exe().expect("the test knows its own path");
    path.pop();
    if path.ends_with("deps") {
        path.pop();
    }
    let path = path.join(name);
    assert!(path.is_file(), "{} is not built: run the tests by `cargo xtask test`", path.display());
    path
}

/// Everything a test works on. Removed at the end, when it is looked whether its runs asked for what was not declared.
#[derive(Debug)]
pub struct World {
    folder: TempDir,
    /// Where the shared providers are mounted.
    mounted: Option<PathBuf>,
    /// What its runs may ask of the network.
    pub(crate) declared: Declared,
    /// As whom the binary is started here.
    pub caller: Caller,
}

impl World {
    /// Makes a world for a caller. Root is needed, to become somebody else and to look at everything from outside.
    pub fn new(caller: &Caller) -> Self {
        assert!(rustix::process::geteuid().is_root(), "the end-to-end tests need root");
        let folder = tempfile::Builder::new().prefix("stockade-e2e-").tempdir_in("/tmp").unwrap();
        // Others have to pass through to the folders that are theirs.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let world = Self { folder, mounted: None, declared: Declared::default(), caller: caller.clone() };
        for dir in ["home", "state/stockade", "ws", "out", "outside"] {
            fs::create_dir_all(world.path(dir)).unwrap();
        }
        fs::write(world.path("ws/README.md"), "hello\n").unwrap();
        fs::write(world.path("home/.bashrc"), "# untouched\n").unwrap();
        fs::write(world.path("outside/secret"), "SECRET-decoy\n").unwrap();
        fs::set_permissions(world.path("state/stockade"), fs::Permissions::from_mode(0o700)).unwrap();
        for dir in ["home", "state", "state/stockade", "ws", "out", "ws/README.md", "home/.bashrc"] {
            chown(world.path(dir), Some(caller.uid), Some(caller.uid)).unwrap();
        }
        world
    }

    /// A world in whose state directory the providers are installed.
    ///
    /// They are the ones that were fetched once, mounted there: the same files, owned by root, which every user may
    /// run. A copy would cost a digest and 160 MB each; a hard link would change them for every other test.
    pub fn with_providers(caller: &Caller) -> Self {
        let mut world = Self::new(caller);
        let from = shared_state().join("providers");
        assert!(from.is_dir(), "{} does not exist: run the tests by `cargo xtask test`", from.display());
        let to = world.state().join("providers");
        fs::create_dir(&to).unwrap();
        rustix::mount::mount_bind(&from, &to).unwrap();
        world.mounted = Some(to);
        world
    }

    /// A world with a provider of its own, for tests that tamper with it.
    pub fn with_own_provider(caller: &Caller, name: &str) -> Self {
        let world = Self::new(caller);
        let (from, to) = (shared_state().join("providers"), world.state().join("providers"));
        fs::create_dir(&to).unwrap();
        fs::set_permissions(&to, fs::metadata(&from).unwrap().permissions()).unwrap();
        chown(&to, Some(caller.uid), Some(caller.uid)).unwrap();
        copy_tree(&from.join(name), &to.join(name), caller.uid);
        world
    }

    /// The whole folder.
    pub fn root(&self) -> &Path {
        self.folder.path()
    }

    /// A path in it.
    pub fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.folder.path().join(relative)
    }

    /// The workspace.
    pub fn ws(&self) -> PathBuf {
        self.path("ws")
    }

    /// The caller's home.
    pub fn home(&self) -> PathBuf {
        self.path("home")
    }

    /// Stockade's state directory.
    pub fn state(&self) -> PathBuf {
        self.path("state/stockade")
    }

    /// Writes a file that belongs to the caller.
    pub fn write(&self, relative: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(relative);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        chown(&path, Some(self.caller.uid), Some(self.caller.uid)).unwrap();
        path
    }

    /// Writes an executable script that belongs to the caller.
    pub fn script(&self, relative: &str, content: &str) -> PathBuf {
        let path = self.write(relative, content);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// Makes a folder that belongs to the caller.
    pub fn folder(&self, relative: &str) -> PathBuf {
        let path = self.path(relative);
        fs::create_dir_all(&path).unwrap();
        chown(&path, Some(self.caller.uid), Some(self.caller.uid)).unwrap();
        path
    }

    /// Gives everything under a folder to the caller.
    pub fn give(&self, relative: &str) {
        give_tree(&self.path(relative), self.caller.uid);
    }
}

fn give_tree(path: &Path, uid: u32) {
    std::os::unix::fs::lchown(path, Some(uid), Some(uid)).unwrap();
    if path.is_dir() && !path.is_symlink() {
        for entry in fs::read_dir(path).unwrap() {
            give_tree(&entry.unwrap().path(), uid);
        }
    }
}

fn copy_tree(from: &Path, to: &Path, uid: u32) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name();
        // Staging and locks are those of the directory they are in.
        if name.to_string_lossy().starts_with('.') {
            continue;
        }
        if entry.file_type().unwrap().is_dir() {
            copy_tree(&entry.path(), &to.join(&name), uid);
        } else {
            fs::copy(entry.path(), to.join(&name)).unwrap();
            chown(to.join(&name), Some(uid), Some(uid)).unwrap();
        }
    }
    chown(to, Some(uid), Some(uid)).unwrap();
    fs::set_permissions(to, fs::metadata(from).unwrap().permissions()).unwrap();
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(mounted) = &self.mounted {
            // Lazily: a process of a failed test may still hold it, and the folder has to go all the same.
            let _ = rustix::mount::unmount(mounted, rustix::mount::UnmountFlags::DETACH);
        }
        if !std::thread::panicking() {
            let undeclared = self.undeclared();
            assert!(undeclared.is_empty(), "asked of the network, and not declared: {undeclared:#?}");
        }
    }
}
