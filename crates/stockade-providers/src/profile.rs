//! Reading a profile: TOML, the shape, then the meaning.

mod check;
mod place;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;

use sha2::{Digest, Sha256};
use stockade_core::{plan::LoadedProfile, profile::Profile};

use self::place::Path;

/// A profile is at most this long.
const PROFILE_LIMIT_BYTES: usize = 256 * 1024;

/// A profile that cannot be used, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {key}{}{message}", if key.is_empty() { "" } else { ": " })]
pub struct ProfileError {
    line: usize,
    column: usize,
    key: String,
    message: String,
}

impl ProfileError {
    /// The line, from 1.
    pub fn line(&self) -> usize {
        self.line
    }

    /// The column in characters, from 1.
    pub fn column(&self) -> usize {
        self.column
    }

    /// The key as a dotted path, such as `launch.argv[3]`; empty where the text is no TOML.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// What is wrong there.
    pub fn message(&self) -> &str {
        &self.message
    }

    fn new(text: &str, offset: usize, key: String, message: String) -> Self {
        let (line, column) = place::line_and_column(text, offset);
        Self { line, column, key, message }
    }

    fn at(text: &str, path: &Path, message: String) -> Self {
        Self::new(text, place::find(text, path), path.to_string(), message)
    }
}

/// Reads and checks a profile.
///
/// # Errors
///
/// Text that is too long or no TOML, unknown or missing keys, unknown placeholders, paths that leave the home,
/// numbers out of range and everything else that would only show at the start of an agent.
pub fn parse(text: &str) -> Result<LoadedProfile, ProfileError> {
    if text.len() > PROFILE_LIMIT_BYTES {
        let message = format!("the profile has {} bytes, {PROFILE_LIMIT_BYTES} at most", text.len());
        return Err(ProfileError::new(text, 0, String::new(), message));
    }
    let profile: Profile = toml::from_str(text).map_err(|e| {
        let offset = e.span().map_or(0, |s| s.start);
        ProfileError::new(text, offset, place::key_at(text, offset), e.message().to_owned())
    })?;
    check::profile(&profile).map_err(|p| ProfileError::at(text, &p.path, p.message))?;
    Ok(LoadedProfile { profile, digest: digest(text) })
}

/// SHA-256 in lower-case hex.
fn digest(text: &str) -> String {
    let mut hex = String::with_capacity(64);
    for byte in Sha256::digest(text.as_bytes()) {
        // Writing to a String cannot fail.
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}
