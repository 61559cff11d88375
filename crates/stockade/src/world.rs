//! What the binary reads of the world, once, at its edge: environment, folders, terminal.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use crate::error::CliError;

/// The world as it was when the process started.
#[derive(Clone, Debug)]
pub(crate) struct World {
    environment: BTreeMap<String, String>,
}

impl World {
    /// Reads the environment. Variables that are no text are left out: nothing here could pass them on.
    #[expect(clippy::disallowed_methods, reason = "the one place where the environment is read")]
    pub(crate) fn read() -> Self {
        let text = |(k, v): (std::ffi::OsString, std::ffi::OsString)| {
            Some((k.into_string().ok()?, v.into_string().ok()?))
        };
        Self { environment: std::env::vars_os().filter_map(text).collect() }
    }

    pub(crate) fn environment(&self) -> &BTreeMap<String, String> {
        &self.environment
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.environment.get(name).map(String::as_str).filter(|v| !v.is_empty())
    }

    /// The caller's home.
    pub(crate) fn home(&self) -> Option<PathBuf> {
        self.get("HOME").map(PathBuf::from).filter(|h| h.is_absolute())
    }

    /// `$XDG_STATE_HOME/stockade`, by default `~/.local/state/stockade`.
    pub(crate) fn state_root(&self) -> Result<PathBuf, CliError> {
        self.folder("XDG_STATE_HOME", ".local/state").ok_or_else(|| {
            CliError::usage(
                "no-home",
                "neither `XDG_STATE_HOME` nor `HOME` is set",
                "set `HOME`, or name a state directory with `XDG_STATE_HOME`",
            )
        })
    }

    /// `$XDG_CONFIG_HOME/stockade`, by default `~/.config/stockade`.
    pub(crate) fn config_folder(&self) -> Option<PathBuf> {
        self.folder("XDG_CONFIG_HOME", ".config")
    }

    fn folder(&self, variable: &str, below_home: &str) -> Option<PathBuf> {
        // By the XDG rules a relative path is ignored.
        let named = self.get(variable).map(Path::new).filter(|p| p.is_absolute()).map(Path::to_owned);
        named.or_else(|| self.home().map(|h| h.join(below_home))).map(|p| p.join("stockade"))
    }
}
