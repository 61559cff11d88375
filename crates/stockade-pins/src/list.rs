//! The list of pins: which version of which provider is vouched for, and where it comes from.

use std::collections::HashSet;

use serde::Deserialize;

use crate::digest::{Integrity, Sha256Digest};
use crate::error::{PinError, PinErrorKind, Step};
use crate::record::RECORD_NAME;
use crate::spec::{is_provider_name, is_version};
use crate::{MAX_FILE_BYTES, MAX_TARBALL_BYTES};

/// A list of pins. The first pin of a provider is its default version.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PinList {
    pins: Vec<Pin>,
}

/// One version of one provider.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pin {
    /// The provider's name.
    pub provider: String,
    /// The provider's version.
    pub version: String,
    /// The npm package it comes in.
    pub package: String,
    /// The tarball below the registry's base address.
    pub registry_path: String,
    /// The registry's digest of the tarball.
    pub integrity: Integrity,
    /// The tarball's length in bytes.
    pub tarball_size: u64,
    /// The program to start, below the installed folder.
    pub executable: String,
    /// What is taken from the tarball.
    pub files: Vec<PinFile>,
}

/// One file of a version.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PinFile {
    /// Its exact name in the tarball.
    pub from: String,
    /// Its place below the installed folder.
    pub to: String,
    /// What has to be done to it.
    pub transform: Transform,
    /// Its length when installed, in bytes.
    pub size: u64,
    /// Its digest when installed.
    pub sha256: Sha256Digest,
}

/// What has to be done to a file of a tarball before it can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transform {
    /// Nothing.
    None,
    /// Brotli decompression.
    Brotli,
}

impl PinList {
    /// The list shipped with this Stockade.
    pub fn shipped() -> Result<Self, PinError> {
        Self::parse(include_str!("../pins.toml"))
    }

    /// Reads a list. Unknown keys, names that could leave their folder and pins without an executable are errors.
    pub fn parse(text: &str) -> Result<Self, PinError> {
        let list: Self = toml::from_str(text)
            .map_err(|error| wrong(format!("not a pin list: {}", error.message())).caused_by(error))?;
        let mut seen = HashSet::new();
        for pin in &list.pins {
            pin.check()?;
            if !seen.insert((&pin.provider, &pin.version)) {
                return Err(wrong(format!("{}@{} is listed twice", pin.provider, pin.version)));
            }
        }
        Ok(list)
    }

    /// Every pin, in the order of the list.
    pub fn pins(&self) -> &[Pin] {
        &self.pins
    }

    /// The pin of exactly this version.
    pub fn find(&self, provider: &str, version: &str) -> Option<&Pin> {
        self.pins.iter().find(|pin| pin.provider == provider && pin.version == version)
    }

    /// The pin of the provider's default version.
    pub fn default_for(&self, provider: &str) -> Option<&Pin> {
        self.pins.iter().find(|pin| pin.provider == provider)
    }

    /// The versions known of a provider, as `grok@1.0.41`, the default first; of all providers if it is not known at all.
    pub(crate) fn known(&self, provider: &str) -> String {
        let all_of_them = self.default_for(provider).is_none();
        let names: Vec<String> = self
            .pins
            .iter()
            .filter(|pin| all_of_them || pin.provider == provider)
            .map(|pin| format!("{}@{}", pin.provider, pin.version))
            .collect();
        names.join(", ")
    }
}

impl Pin {
    /// The pinned executable.
    pub fn executable_file(&self) -> Option<&PinFile> {
        self.files.iter().find(|file| file.to == self.executable)
    }

    fn check(&self) -> Result<(), PinError> {
        let name = format!("{}@{}", self.provider, self.version);
        let fail = |what: &str| Err(wrong(format!("{name}: {what}")));
        if !is_provider_name(&self.provider) || !is_version(&self.version) {
            return fail("not a name and a version");
        }
        if !is_registry_path(&self.registry_path) {
            return fail("registry_path is no relative path of a tarball");
        }
        if self.tarball_size == 0 || self.tarball_size > MAX_TARBALL_BYTES {
            return fail("tarball_size is out of bounds");
        }
        let mut places = HashSet::new();
        for file in &self.files {
            if !is_plain_relative(&file.to) || file.to == RECORD_NAME || !places.insert(&file.to) {
                return fail("a file has no place of its own below the installed folder");
            }
            if file.size == 0 || file.size > MAX_FILE_BYTES {
                return fail("a file's size is out of bounds");
            }
        }
        if self.executable_file().is_none() {
            return fail("the executable is none of the files");
        }
        Ok(())
    }
}

/// Whether every part of the path is a plain name.
pub(crate) fn is_plain_relative(path: &str) -> bool {
    path.split('/')
        .all(|part| !part.is_empty() && part != "." && part != ".." && !part.contains(['\0', '\\']))
}

fn is_registry_path(path: &str) -> bool {
    is_plain_relative(path)
        && path.bytes().all(|byte| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'@' | b'-' | b'_' | b'.' | b'+')
        })
}

fn wrong(detail: String) -> PinError {
    PinError::new(PinErrorKind::Usage, Step::ReadPins, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_list_is_valid_and_names_its_providers() {
        let list = PinList::shipped().unwrap();
        let pin = list.default_for("grok").unwrap();
        assert_eq!((pin.version.as_str(), pin.executable_file().unwrap().size), ("1.0.41", 165_967_424));
        assert_eq!(list.known("grok"), "grok@1.0.41");
        let pin = list.default_for("claude").unwrap();
        assert_eq!((pin.version.as_str(), pin.executable_file().unwrap().size), ("2.1.332", 402_325_736));
        let pin = list.default_for("opencode").unwrap();
        assert_eq!((pin.version.as_str(), pin.executable_file().unwrap().size), ("1.18.33", 185_354_368));
        assert!(list.default_for("nobody").is_none());
    }

    #[test]
    fn lists_that_could_do_harm_are_refused() {
        let good = include_str!("../pins.toml");
        for (old, new) in [
            ("to = \"grok\"", "to = \"../grok\""),
            ("to = \"grok\"", "to = \"/grok\""),
            ("to = \"grok\"", "to = \"pin.json\""),
            ("executable = \"grok\"", "executable = \"other\""),
            ("executable = \"grok\"", "executable = \"grok\"\nsurprise = 1"),
            ("version = \"1.0.41\"", "version = \"..\""),
            ("provider = \"grok\"", "provider = \".staging\""),
            ("registry_path = \"@xai-official", "registry_path = \"https://elsewhere"),
            ("size = 165967424", "size = 0"),
            ("tarball_size = 49179836", "tarball_size = 99999999999"),
            ("sha256 = \"9c", "sha256 = \"9"),
        ] {
            assert!(good.contains(old), "{old}");
            assert!(PinList::parse(&good.replacen(old, new, 1)).is_err(), "{new}");
        }
        let pin = good.split_once("[[pins]]").unwrap().1;
        assert!(PinList::parse(&format!("{good}\n[[pins]]{pin}")).unwrap_err().to_string().contains("twice"));
    }
}
