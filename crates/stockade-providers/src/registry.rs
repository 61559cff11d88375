//! The profiles that come with Stockade.

use stockade_core::plan::LoadedProfile;

use crate::profile::{ProfileError, parse};

/// A profile that comes with Stockade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuiltIn {
    /// The provider's name.
    pub name: &'static str,
    /// The profile's TOML text.
    pub text: &'static str,
}

impl BuiltIn {
    /// Reads and checks the profile. The tests do so for every one, so an error is a defect of Stockade.
    pub fn load(&self) -> Result<LoadedProfile, ProfileError> {
        parse(self.text)
    }
}

const BUILT_IN: &[BuiltIn] = &[
    BuiltIn { name: "claude", text: include_str!("../profiles/claude.toml") },
    BuiltIn { name: "codex", text: include_str!("../profiles/codex.toml") },
    BuiltIn { name: "grok", text: include_str!("../profiles/grok.toml") },
    BuiltIn { name: "opencode", text: include_str!("../profiles/opencode.toml") },
];

/// All profiles that come with Stockade, by name.
pub fn built_in() -> &'static [BuiltIn] {
    BUILT_IN
}

/// The profile of a provider, if one comes with Stockade.
pub fn find(name: &str) -> Option<&'static BuiltIn> {
    BUILT_IN.iter().find(|b| b.name == name)
}

#[cfg(test)]
mod tests;
