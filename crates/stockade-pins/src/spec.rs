//! Names such as `grok@1.0.41`, checked so that they are safe as names of folders.

use std::fmt;
use std::str::FromStr;

use crate::error::{PinError, PinErrorKind, Step};

/// The longest name of a provider or a version, in bytes.
const MAX_NAME_BYTES: usize = 64;

/// A provider and, if one was named, its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderSpec {
    /// The provider's name.
    pub provider: String,
    /// The version; none means the default of the pin list.
    pub version: Option<String>,
}

impl FromStr for ProviderSpec {
    type Err = PinError;

    /// Reads `NAME` or `NAME@VERSION`; anything that is not plainly a name is a usage error.
    fn from_str(text: &str) -> Result<Self, PinError> {
        let (provider, version) = match text.split_once('@') {
            Some((provider, version)) => (provider, Some(version)),
            None => (text, None),
        };
        check_provider(provider)?;
        version.map(check_version).transpose()?;
        Ok(Self { provider: provider.to_owned(), version: version.map(str::to_owned) })
    }
}

impl fmt::Display for ProviderSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.version {
            Some(version) => write!(f, "{}@{version}", self.provider),
            None => f.write_str(&self.provider),
        }
    }
}

pub(crate) fn is_provider_name(name: &str) -> bool {
    name.len() <= MAX_NAME_BYTES
        && name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

pub(crate) fn is_version(version: &str) -> bool {
    version.len() <= MAX_NAME_BYTES
        && version.starts_with(|first: char| first.is_ascii_alphanumeric())
        && version
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'+' | b'_'))
}

pub(crate) fn check_provider(name: &str) -> Result<(), PinError> {
    if is_provider_name(name) {
        return Ok(());
    }
    Err(usage(format!("`{}` is no provider's name", name.escape_debug())))
}

pub(crate) fn check_version(version: &str) -> Result<(), PinError> {
    if is_version(version) {
        return Ok(());
    }
    Err(usage(format!("`{}` is no version", version.escape_debug())))
}

fn usage(detail: String) -> PinError {
    PinError::new(PinErrorKind::Usage, Step::ReadRequest, detail)
        .hinted("write a provider as NAME@VERSION, for example `grok@1.0.41`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_and_without_a_version_are_read() {
        let spec: ProviderSpec = "grok@1.0.41".parse().unwrap();
        assert_eq!(spec, ProviderSpec { provider: "grok".into(), version: Some("1.0.41".into()) });
        assert_eq!("grok".parse::<ProviderSpec>().unwrap().version, None);
        assert_eq!(spec.to_string(), "grok@1.0.41");
    }

    #[test]
    fn nothing_that_could_leave_its_folder_is_a_name() {
        for text in [
            "", "@1", "Grok", "../x", "grok@", "grok@..", "grok@.x", "grok@a/b", "grok@1\n", ".staging",
            "grok@1@2",
        ] {
            assert_eq!(text.parse::<ProviderSpec>().unwrap_err().kind(), PinErrorKind::Usage, "{text}");
        }
    }
}
