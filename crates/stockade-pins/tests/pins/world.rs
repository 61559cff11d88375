//! A state directory, and provisioning into it.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use stockade_pins::{Network, PinError, PinList, ProvisionRequest, Provisioned, Store};
use tempfile::TempDir;

use crate::package::VERSION;

pub(crate) const NOW: &str = "2026-11-30T12:00:00.000Z";

pub(crate) fn request(registry: &str) -> ProvisionRequest {
    ProvisionRequest {
        spec: "grok".parse().unwrap(),
        from: None,
        sha256: None,
        network: Network { registry: registry.to_owned(), ..Network::default() },
        installed_at: NOW.to_owned(),
    }
}

/// A request for a file; its registry answers nobody.
pub(crate) fn request_from(file: &Path) -> ProvisionRequest {
    ProvisionRequest { from: Some(file.to_owned()), ..request("http://127.0.0.1:1") }
}

pub(crate) fn run(store: &Store, request: &ProvisionRequest) -> Result<Provisioned, PinError> {
    store.provision(request, &mut |_| ControlFlow::Continue(()))
}

pub(crate) struct World {
    pub(crate) folder: TempDir,
    pub(crate) store: Store,
}

impl World {
    pub(crate) fn new(pins: PinList) -> Self {
        let folder = TempDir::new().unwrap();
        let store = Store::new(folder.path().join("state"), pins);
        Self { folder, store }
    }

    pub(crate) fn version(&self) -> PathBuf {
        self.store.state().join("providers/grok").join(VERSION)
    }

    pub(crate) fn write(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, content).unwrap();
        path
    }

    /// What stands in the staging folder, its own lock aside.
    pub(crate) fn staged(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.store.state().join("providers/.staging")) else {
            return Vec::new();
        };
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name != ".lock").collect()
    }

    pub(crate) fn assert_nothing_left(&self) {
        assert!(!self.version().exists());
        assert_eq!(self.staged(), Vec::<String>::new());
    }
}
