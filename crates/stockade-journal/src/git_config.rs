//! Whether a git configuration file holds a credential. Values are never handed out.

use stockade_core::git_config::{self, Setting};

/// Whether a path relative to a workspace is a configuration file of its repository or of a submodule.
pub(crate) fn is_config_path(path: &[u8]) -> bool {
    let Some(inside) = path.strip_prefix(b".git/") else { return false };
    let in_part = |part: &[u8]| {
        inside.starts_with(part) && (inside.ends_with(b"/config") || inside.ends_with(b"/config.worktree"))
    };
    inside == b"config" || inside == b"config.worktree" || in_part(b"modules/") || in_part(b"worktrees/")
}

/// The keys of settings that hold a credential, as `git config` names them: an `http.*.extraheader`, or a URL with a
/// password or token in any key or value. A credential inside a key is masked. Malformed lines are skipped, so that
/// what follows them is still seen.
pub fn credential_keys(config: &[u8]) -> Vec<String> {
    let mut keys: Vec<String> = git_config::settings(&String::from_utf8_lossy(config))
        .filter(holds_credential)
        .map(|s| name(&s))
        .collect();
    keys.dedup();
    keys
}

fn holds_credential(setting: &Setting) -> bool {
    let header = setting.section == "http" && setting.key == "extraheader" && !setting.value.is_empty();
    header
        || userinfos(&setting.value).any(|u| u.is_credential())
        || setting.subsection.as_deref().is_some_and(|s| userinfos(s).any(|u| u.is_credential()))
}

fn name(setting: &Setting) -> String {
    match &setting.subsection {
        Some(sub) => format!("{}.{}.{}", setting.section, masked(sub), setting.key),
        None => format!("{}.{}", setting.section, setting.key),
    }
}

/// The part of a URL before the host, and where it stands in the text.
struct UserInfo<'t> {
    scheme: &'t str,
    text: &'t str,
    start: usize,
}

impl UserInfo<'_> {
    fn is_credential(&self) -> bool {
        match self.text.split_once(':') {
            Some((_, password)) => !password.is_empty(),
            None => self.scheme.starts_with("http") && looks_like_token(self.text),
        }
    }
}

/// Whether a user name alone is a token: by the prefixes that the forges document, or by a length that no name has.
fn looks_like_token(user: &str) -> bool {
    const PREFIXES: &[&str] =
        &["ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "gldt-", "ATBB", "hf_"];
    const LONGEST_NAME: usize = 39;
    PREFIXES.iter().any(|p| user.starts_with(p)) || user.len() > LONGEST_NAME
}

fn userinfos(text: &str) -> impl Iterator<Item = UserInfo<'_>> {
    text.match_indices("://").filter_map(move |(at, mark)| {
        let before = text.get(..at)?;
        let scheme_start = before
            .rfind(|c: char| !c.is_ascii_alphanumeric() && !"+-.".contains(c))
            .map_or(0, |i| i + before.get(i..).and_then(|s| s.chars().next()).map_or(1, char::len_utf8));
        let start = at + mark.len();
        let rest = text.get(start..)?;
        let authority = rest.split(['/', '?', '#', ' ', '\\']).next()?;
        let (user, _host) = authority.rsplit_once('@')?;
        Some(UserInfo { scheme: before.get(scheme_start..)?, text: user, start })
    })
}

fn masked(subsection: &str) -> String {
    let mut out = String::with_capacity(subsection.len());
    let mut done = 0;
    for user in userinfos(subsection) {
        out.push_str(subsection.get(done..user.start).unwrap_or_default());
        out.push_str("***");
        done = user.start + user.text.len();
    }
    out.push_str(subsection.get(done..).unwrap_or_default());
    out
}

#[cfg(test)]
mod tests;
