//! What the tests of this crate share: file systems that are full or read-only, threads without root's powers, runs.

use std::path::Path;

use rustix::{
    mount::{MountFlags, UnmountFlags, mount, mount_bind, mount_remount, unmount},
    thread::CapabilitySet,
};
use stockade_core::receipt::{LauncherRecord, Receipt};

/// A mount that goes away with this value.
pub(crate) struct Mounted {
    folder: tempfile::TempDir,
}

impl Mounted {
    /// A place for very many files: on a busy disk making them takes half a minute.
    pub(crate) fn in_memory() -> Self {
        Self::small_tmpfs(16 * 1024)
    }

    /// A tmpfs of `kib` KiB.
    pub(crate) fn small_tmpfs(kib: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = std::ffi::CString::new(format!("size={kib}k")).unwrap();
        mount("stockade-test", folder.path(), "tmpfs", MountFlags::empty(), options.as_c_str())
            .expect("this test has to run as root with the right to mount a tmpfs");
        Self { folder }
    }

    /// A folder that is mounted on itself, read-only.
    pub(crate) fn read_only_bind() -> Self {
        let folder = tempfile::tempdir().unwrap();
        mount_bind(folder.path(), folder.path())
            .expect("this test has to run as root with the right to mount");
        let mounted = Self { folder };
        mount_remount(mounted.path(), MountFlags::BIND | MountFlags::RDONLY, "").unwrap();
        mounted
    }

    /// Another folder, seen here.
    pub(crate) fn bind_of(source: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        mount_bind(source, folder.path()).expect("this test has to run as root with the right to mount");
        Self { folder }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        unmount(self.folder.path(), UnmountFlags::DETACH).unwrap();
    }
}

/// Runs `action` in a thread to which file permissions apply as to everybody else.
pub(crate) fn without_root_powers<T: Send>(action: impl FnOnce() -> T + Send) -> T {
    assert!(rustix::process::geteuid().is_root(), "this test has to run as root: it drops root's powers");
    let drop_and_run = || {
        let mut sets = rustix::thread::capabilities(None).unwrap();
        sets.effective -=
            CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH | CapabilitySet::FOWNER;
        rustix::thread::set_capabilities(None, sets).unwrap();
        action()
    };
    std::thread::scope(|scope| scope.spawn(drop_and_run).join().unwrap())
}

/// The record of a launcher that is gone.
pub(crate) fn dead_launcher() -> LauncherRecord {
    LauncherRecord { start_time: 1, ..crate::launcher_record().unwrap() }
}

/// A receipt as it is reserved before anything started.
pub(crate) fn interrupted_receipt(run: &str, directory: &Path, launcher: &LauncherRecord) -> Receipt {
    let text = include_str!("testing/interrupted.json");
    let mut receipt: Receipt = serde_json::from_str(text).unwrap();
    run.clone_into(&mut receipt.execution_id);
    receipt.run_directory = directory.to_str().unwrap().to_owned();
    receipt.launcher = launcher.clone();
    receipt
}
