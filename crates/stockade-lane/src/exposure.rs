//! Which paths must not be shown to an agent: places where credentials live, and Stockade's own.
//!
//! The fence is built from an allow-list, so these rules concern only what a caller adds to it by name.

use std::path::{Path, PathBuf};

/// Files and folders, relative to a home, that hold credentials. Names only; their content is never read.
pub(crate) const CREDENTIAL_LIST: [&str; 36] = [
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".config/gcloud",
    ".config/gh",
    ".config/glab-cli",
    ".config/hub",
    ".config/op",
    ".config/opencode",
    ".local/share/opencode",
    ".local/share/keyrings",
    ".docker/config.json",
    ".kube",
    ".netrc",
    ".git-credentials",
    ".config/git/credentials",
    ".npmrc",
    ".yarnrc.yml",
    ".pypirc",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".gem/credentials",
    ".terraform.d/credentials.tfrc.json",
    ".vault-token",
    ".pgpass",
    ".my.cnf",
    ".claude",
    ".claude.json",
    ".codex",
    ".grok",
    ".gemini",
    ".cursor",
    ".mozilla",
    ".config/google-chrome",
    ".config/chromium",
];

/// Narrower paths that are often what was meant, named when a broader one is refused.
const NARROWER: [(&str, &[&str]); 3] = [
    (".cargo", &[".cargo/bin", ".cargo/registry"]),
    (".docker", &[".docker/buildx"]),
    (".config", &[".config/pip"]),
];

/// Why a path cannot be added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exposed {
    /// A stable word.
    pub(crate) code: &'static str,
    /// What was found.
    pub(crate) message: String,
    /// What to name in its place.
    pub(crate) remedy: String,
}

/// Checks a canonical path against the homes of this host and Stockade's state.
pub(crate) fn check(path: &Path, homes: &[PathBuf], state: &Path) -> Result<(), Exposed> {
    let shown = path.display();
    let refuse = |code, message: String, remedy: String| Err(Exposed { code, message, remedy });
    if path == Path::new("/") {
        return refuse(
            "path-is-root",
            "`/` would show the whole host".to_owned(),
            "name the folder that is needed".to_owned(),
        );
    }
    if state.starts_with(path) || path.starts_with(state) {
        return refuse(
            "path-holds-state",
            format!("`{shown}` holds or lies in Stockade's own state"),
            "name another folder, or move the state directory".to_owned(),
        );
    }
    for home in homes {
        if home.starts_with(path) {
            return refuse(
                "path-is-home",
                format!("`{shown}` is or holds the home `{}`", home.display()),
                "name the folders of the home that are needed, one by one".to_owned(),
            );
        }
        for entry in CREDENTIAL_LIST {
            let secret = home.join(entry);
            let holds = secret.starts_with(path) && std::fs::symlink_metadata(&secret).is_ok();
            if holds || path.starts_with(&secret) {
                return refuse(
                    "path-holds-credentials",
                    format!("`{shown}` shows the credentials in `{}`", secret.display()),
                    narrower(path, home),
                );
            }
        }
    }
    Ok(())
}

fn narrower(path: &Path, home: &Path) -> String {
    let relative = path.strip_prefix(home).ok().map(|p| p.display().to_string()).unwrap_or_default();
    let known = NARROWER.iter().find(|(broad, _)| *broad == relative).map(|(_, n)| *n);
    match known {
        Some(paths) => {
            let list = paths.iter().map(|p| format!("`{}`", home.join(p).display())).collect::<Vec<_>>();
            format!("name narrower paths: {}", list.join(", "))
        }
        None => "name narrower paths, such as ~/.cargo/bin, ~/.cargo/registry or ~/.rustup".to_owned(),
    }
}

/// The homes of this host: the caller's and those of every account.
pub(crate) fn homes(caller: Option<&Path>) -> Vec<PathBuf> {
    /// Homes of service accounts that are no homes of anybody.
    const NOBODYS: [&str; 8] = ["/", "/bin", "/dev", "/usr/sbin", "/nonexistent", "/var", "/proc", "/run"];
    let mut homes: Vec<PathBuf> = caller.into_iter().map(Path::to_owned).collect();
    // An unreadable account list leaves the caller's own home, which is the one that matters.
    let accounts = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    for line in accounts.lines().take(10_000) {
        let mut fields = line.split(':');
        let (uid, home) = (fields.nth(2).and_then(|u| u.parse::<u32>().ok()), fields.nth(2));
        // System accounts (below 1000, but root) have their "homes" in system folders.
        let person = uid.is_some_and(|u| u == 0 || (1000..65_000).contains(&u));
        if let Some(home) = home.filter(|h| person && h.starts_with('/') && !NOBODYS.contains(h)) {
            let home = PathBuf::from(home);
            if !homes.contains(&home) {
                homes.push(home);
            }
        }
    }
    homes
}

/// Folders of the system that are no workspaces.
pub(crate) fn is_system_folder(path: &Path) -> bool {
    const WHOLE: [&str; 9] = ["/usr", "/etc", "/boot", "/proc", "/sys", "/bin", "/sbin", "/lib", "/lib64"];
    const ITSELF: [&str; 12] = [
        "/home", "/var", "/tmp", "/var/tmp", "/run", "/opt", "/srv", "/mnt", "/media", "/nix", "/dev",
        "/dev/shm",
    ];
    WHOLE.iter().any(|w| path.starts_with(w))
        || ITSELF.iter().any(|w| path == Path::new(w))
        || (path.starts_with("/dev") && !path.starts_with("/dev/shm"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_above_a_credential_is_refused_and_narrower_ones_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("h");
        std::fs::create_dir_all(home.join(".cargo/bin")).unwrap();
        std::fs::write(home.join(".cargo/credentials.toml"), "x").unwrap();
        let homes = [home.clone()];
        let state = dir.path().join("state");
        let refused = check(&home.join(".cargo"), &homes, &state).unwrap_err();
        assert_eq!(refused.code, "path-holds-credentials");
        assert!(refused.remedy.contains(".cargo/registry"), "{}", refused.remedy);
        assert_eq!(check(&home.join(".cargo/bin"), &homes, &state), Ok(()));
        assert_eq!(check(&home, &homes, &state).unwrap_err().code, "path-is-home");
        assert_eq!(check(dir.path(), &homes, &state).unwrap_err().code, "path-holds-state");
        assert_eq!(
            check(&home.join(".ssh/keys"), &homes, &state).unwrap_err().code,
            "path-holds-credentials"
        );
    }

    #[test]
    fn system_folders_are_no_workspaces_but_folders_below_tmp_are() {
        for p in ["/etc/x", "/usr", "/tmp", "/dev/mqueue", "/home"] {
            assert!(is_system_folder(Path::new(p)), "{p}");
        }
        for p in ["/tmp/x", "/home/me/w", "/dev/shm/w", "/opt/w", "/srv/x"] {
            assert!(!is_system_folder(Path::new(p)), "{p}");
        }
    }
}
