//! In whose name commits are made: read from the caller's configuration, without running git and without includes.

use std::path::{Path, PathBuf};

use stockade_core::{
    git::GitAuthor,
    git_config::{self, Setting},
};

use crate::{files, layout::Repository};

/// A user's configuration is a few kilobytes.
const CONFIG_LIMIT_BYTES: usize = 1024 * 1024;

/// The author that git would use for the caller in this repository, as far as configuration files say: `author.*` before
/// `user.*`, the repository before the user before the system. Where they say nothing, Stockade's own name.
pub fn author(repository: &Repository, home: Option<&Path>, xdg_config: Option<&Path>) -> GitAuthor {
    let mut files: Vec<(String, Vec<Setting>)> = Vec::new();
    let config_home = xdg_config.map(Path::to_owned).or_else(|| home.map(|h| h.join(".config")));
    let candidates = [
        Some(PathBuf::from("/etc/gitconfig")),
        config_home.map(|c| c.join("git/config")),
        home.map(|h| h.join(".gitconfig")),
    ];
    for path in candidates.into_iter().flatten() {
        // One that cannot be read names nobody.
        let bytes = files::read(&path, CONFIG_LIMIT_BYTES).ok().flatten().unwrap_or_default();
        let settings = git_config::settings(&String::from_utf8_lossy(&bytes)).collect();
        files.push((path.display().to_string(), settings));
    }
    files.push((repository.common.join("config").display().to_string(), repository.settings.clone()));
    let value = |key: &str| {
        ["author", "user"].iter().find_map(|section| {
            files.iter().rev().find_map(|(file, settings)| {
                let found = settings
                    .iter()
                    .rev()
                    .find(|s| s.section == *section && s.subsection.is_none() && s.key == key)?;
                (!found.value.trim().is_empty()).then(|| (found.value.clone(), file.clone()))
            })
        })
    };
    let found = value("name").zip(value("email")).and_then(|((name, source), (email, _))| {
        Some(GitAuthor { source, ..GitAuthor::parse(&format!("{name} <{email}>"))? })
    });
    found.unwrap_or_else(|| GitAuthor {
        name: "Stockade".to_owned(),
        email: "stockade@localhost".to_owned(),
        source: "default".to_owned(),
    })
}
