//! Config files: the host's over which the user's is laid, and what the host forbids.
//!
//! Never read from a workspace. An unknown key is an error with its line, because a typo would silently weaken a run.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{
    cli::{TimeArg, parse_time},
    error::CliError,
    world::World,
};

/// The host's config file.
pub(crate) const HOST_CONFIG: &str = "/etc/stockade/config.toml";
/// A config file is small; a larger one is a mistake.
const CONFIG_LIMIT_BYTES: u64 = 1024 * 1024;

/// One config file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConfigFile {
    /// What flags fall back to.
    #[serde(default)]
    pub(crate) defaults: Defaults,
    /// Per provider.
    #[serde(default)]
    pub(crate) providers: BTreeMap<String, ProviderDefaults>,
    /// What is forbidden.
    #[serde(default)]
    pub(crate) policy: Policy,
    /// For the command lines of other runners.
    #[serde(default)]
    pub(crate) compat: Compat,
}

/// What flags fall back to.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Defaults {
    pub(crate) provider: Option<String>,
    pub(crate) mode: Option<stockade_core::mode::AccessMode>,
    pub(crate) timeout: Option<String>,
    pub(crate) idle_timeout: Option<String>,
    pub(crate) network: Option<stockade_core::mode::NetworkPolicy>,
    /// What `network = "allow"` lets through, unless flags name it.
    pub(crate) allow: Option<Vec<stockade_core::network::Destination>>,
    pub(crate) provider_sandbox: Option<stockade_core::mode::ProviderSandbox>,
    pub(crate) max_processes: Option<u32>,
    pub(crate) max_memory: Option<String>,
    pub(crate) max_open_files: Option<u64>,
    pub(crate) max_file_size: Option<String>,
    pub(crate) max_temp: Option<String>,
    pub(crate) max_growth: Option<String>,
    pub(crate) max_output: Option<String>,
    pub(crate) max_turns: Option<u64>,
    pub(crate) max_tokens: Option<u64>,
    pub(crate) max_cost: Option<String>,
    pub(crate) require_limits: Option<stockade_core::limits::LimitDemand>,
    pub(crate) rung: Option<stockade_core::survey::Rung>,
}

/// What a provider falls back to.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProviderDefaults {
    pub(crate) model: Option<String>,
    pub(crate) effort: Option<String>,
    pub(crate) endpoint: Option<String>,
    pub(crate) api: Option<stockade_core::mode::Api>,
    pub(crate) key_env: Option<String>,
    pub(crate) ca: Option<PathBuf>,
    pub(crate) provider_sandbox: Option<stockade_core::mode::ProviderSandbox>,
    /// What models cost, by name.
    #[serde(default)]
    pub(crate) prices: BTreeMap<String, stockade_core::budget::Price>,
}

/// What is forbidden. A ban in any file holds; none can be lifted.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Policy {
    /// `--provider-sandbox replace` is refused.
    #[serde(default)]
    pub(crate) forbid_replace: bool,
    /// Only versions of Stockade's own pin list run.
    #[serde(default)]
    pub(crate) forbid_unlisted_pins: bool,
}

/// For the command lines of other runners.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Compat {
    pub(crate) executables: Option<Executables>,
}

/// Which executables they start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Executables {
    /// Those that were provisioned against a pin.
    Pinned,
    /// Those on `PATH`, never from the workspace.
    Path,
}

/// Where a setting came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Setting {
    /// Its name.
    pub(crate) name: String,
    /// Its value.
    pub(crate) value: String,
    /// `flag`, `default`, or a file.
    pub(crate) source: String,
}

/// The config files of this host and user, the user's last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Config {
    layers: Vec<(String, ConfigFile)>,
}

impl Config {
    /// Reads both files, as far as they exist.
    pub(crate) fn read(world: &World) -> Result<Self, CliError> {
        let mut layers = Vec::new();
        let user = world.config_folder().map(|f| f.join("config.toml"));
        for path in [Some(PathBuf::from(HOST_CONFIG)), user].into_iter().flatten() {
            if let Some(file) = read_file(&path)? {
                layers.push((path.display().to_string(), file));
            }
        }
        Ok(Self { layers })
    }

    /// A setting: the flag, else the last file that has it, else the default; with its source.
    pub(crate) fn pick<T: Clone>(
        &self,
        flag: Option<T>,
        from: impl Fn(&ConfigFile) -> Option<T>,
    ) -> Option<(T, String)> {
        if let Some(value) = flag {
            return Some((value, "flag".to_owned()));
        }
        self.layers.iter().rev().find_map(|(path, file)| from(file).map(|v| (v, path.clone())))
    }

    /// A time of the `[defaults]` table.
    pub(crate) fn pick_time(
        &self,
        flag: Option<TimeArg>,
        key: &str,
        from: impl Fn(&ConfigFile) -> Option<String>,
    ) -> Result<Option<(TimeArg, String)>, CliError> {
        if let Some(value) = flag {
            return Ok(Some((value, "flag".to_owned())));
        }
        let Some((text, source)) = self.pick(None, from) else { return Ok(None) };
        let value = parse_time(&text).map_err(|e| {
            CliError::usage(
                "config-value",
                format!("`{source}`: `{key} = \"{text}\"`: {e}"),
                "correct the value",
            )
        })?;
        Ok(Some((value, source)))
    }

    /// The entries of a table of all files; the last file that has one decides it.
    pub(crate) fn merged<T>(
        &self,
        from: impl Fn(&ConfigFile) -> Option<BTreeMap<String, T>>,
    ) -> BTreeMap<String, T> {
        self.layers.iter().filter_map(|(_, file)| from(file)).flatten().collect()
    }

    /// The file that forbids something, if one does.
    pub(crate) fn forbidden(&self, ban: impl Fn(&Policy) -> bool) -> Option<&str> {
        self.layers.iter().find(|(_, f)| ban(&f.policy)).map(|(path, _)| path.as_str())
    }
}

fn read_file(path: &Path) -> Result<Option<ConfigFile>, CliError> {
    let fail = |e: &std::io::Error| {
        CliError::usage(
            "config-unreadable",
            format!("`{}` cannot be read: {e}", path.display()),
            "check its permissions",
        )
        .about(path)
    };
    match std::fs::metadata(path) {
        Ok(meta) if meta.len() > CONFIG_LIMIT_BYTES => {
            return Err(CliError::usage(
                "config-too-large",
                format!("`{}` has {} bytes", path.display(), meta.len()),
                "a config file has a megabyte at most",
            )
            .about(path));
        }
        Ok(_) => {}
        Err(e) if e.kind() == std::io::ErrorKind::NotFound || e.raw_os_error() == Some(20) => {
            return Ok(None);
        }
        Err(e) => return Err(fail(&e)),
    }
    let text = std::fs::read_to_string(path).map_err(|e| fail(&e))?;
    toml::from_str(&text).map(Some).map_err(|e| {
        let line = e.span().map_or(1, |s| text.get(..s.start).map_or(1, |t| t.matches('\n').count() + 1));
        CliError::usage(
            "config",
            format!("`{}` line {line}: {}", path.display(), e.message()),
            "correct that line; unknown keys are errors",
        )
        .about(path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_key_is_an_error_with_its_line() {
        let dir = std::env::temp_dir().join(format!("stockade-config-{}", std::process::id()));
        std::fs::write(&dir, "[defaults]\nprovider = \"grok\"\nprovidr_sandbox = \"keep\"\n").unwrap();
        let error = read_file(&dir).unwrap_err();
        std::fs::remove_file(&dir).unwrap();
        assert!(error.shown.message.contains("line 3"), "{}", error.shown.message);
        assert!(error.shown.message.contains("providr_sandbox"), "{}", error.shown.message);
        assert_eq!(error.exit, 64);
    }

    #[test]
    fn a_flag_beats_the_user_who_beats_the_host() {
        let file = |p: &str| ConfigFile {
            defaults: Defaults { provider: Some(p.to_owned()), ..Defaults::default() },
            ..ConfigFile::default()
        };
        let config = Config { layers: vec![("host".into(), file("a")), ("user".into(), file("b"))] };
        let from = |f: &ConfigFile| f.defaults.provider.clone();
        assert_eq!(config.pick(Some("c".to_owned()), from), Some(("c".to_owned(), "flag".to_owned())));
        assert_eq!(config.pick(None, from), Some(("b".to_owned(), "user".to_owned())));
    }
}
