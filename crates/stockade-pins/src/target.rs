//! What exactly is to be installed, and who vouches for it.

use crate::digest::{Integrity, Sha256Digest};
use crate::error::{PinError, PinErrorKind, Step};
use crate::kind::PinKind;
use crate::list::{Pin, PinList, Transform};
use crate::spec::{ProviderSpec, check_provider, check_version};

/// A version to install.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) provider: String,
    pub(crate) version: String,
    pub(crate) pin: PinKind,
    pub(crate) package: String,
    pub(crate) registry_path: String,
    /// None for a person's own pin: the digest of the executable is checked all the same.
    pub(crate) integrity: Option<Integrity>,
    pub(crate) tarball_size: Option<u64>,
    pub(crate) executable: String,
    pub(crate) files: Vec<TargetFile>,
}

/// One file to install.
#[derive(Clone, Debug)]
pub(crate) struct TargetFile {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) transform: Transform,
    pub(crate) size: Option<u64>,
    pub(crate) sha256: Sha256Digest,
}

impl Target {
    /// Finds the pin for what was asked: the list's, or the person's own for a version that the list does not name.
    pub(crate) fn choose(
        list: &PinList,
        spec: &ProviderSpec,
        sha256: Option<Sha256Digest>,
    ) -> Result<Self, PinError> {
        check_provider(&spec.provider)?;
        let default =
            list.default_for(&spec.provider).ok_or_else(|| unknown_provider(list, &spec.provider))?;
        let version = spec.version.as_deref().unwrap_or(&default.version);
        check_version(version)?;
        match (list.find(&spec.provider, version), sha256) {
            (Some(pin), None) => Ok(Self::listed(pin)),
            (Some(pin), Some(sha256)) => Self::listed_and_given(pin, sha256),
            (None, Some(sha256)) => Self::own(default, version, sha256),
            (None, None) => Err(unknown_version(list, &spec.provider, version)),
        }
    }

    /// The file to start.
    pub(crate) fn sole_file(&self) -> Option<&TargetFile> {
        match self.files.as_slice() {
            [file] => Some(file),
            _ => None,
        }
    }

    /// The version as a person writes it.
    pub(crate) fn name(&self) -> String {
        format!("{}@{}", self.provider, self.version)
    }

    fn listed(pin: &Pin) -> Self {
        let files = pin.files.iter().map(|file| TargetFile {
            from: file.from.clone(),
            to: file.to.clone(),
            transform: file.transform,
            size: Some(file.size),
            sha256: file.sha256,
        });
        Self {
            provider: pin.provider.clone(),
            version: pin.version.clone(),
            pin: PinKind::Stockade,
            package: pin.package.clone(),
            registry_path: pin.registry_path.clone(),
            integrity: Some(pin.integrity.clone()),
            tarball_size: Some(pin.tarball_size),
            executable: pin.executable.clone(),
            files: files.collect(),
        }
    }

    fn listed_and_given(pin: &Pin, given: Sha256Digest) -> Result<Self, PinError> {
        match pin.executable_file() {
            Some(file) if file.sha256 == given => Ok(Self::listed(pin)),
            Some(file) => Err(PinError::new(
                PinErrorKind::Refused,
                Step::CheckDigest,
                format!(
                    "{}@{} is pinned by Stockade as {}, not as {given}",
                    pin.provider, pin.version, file.sha256
                ),
            )
            .hinted("leave out `--sha256` to take the version Stockade vouches for")),
            None => Err(no_recipe(&pin.provider)),
        }
    }

    /// A version the list does not name, packed in the same way as the one it does.
    fn own(recipe: &Pin, version: &str, sha256: Sha256Digest) -> Result<Self, PinError> {
        let mut target = Self::listed(recipe);
        let (folder, file_name) =
            recipe.registry_path.rsplit_once('/').ok_or_else(|| no_recipe(&recipe.provider))?;
        target.registry_path = format!("{folder}/{}", file_name.replacen(&recipe.version, version, 1));
        version.clone_into(&mut target.version);
        target.pin = PinKind::User;
        target.integrity = None;
        target.tarball_size = None;
        let [file] = target.files.as_mut_slice() else {
            return Err(no_recipe(&recipe.provider));
        };
        file.sha256 = sha256;
        file.size = None;
        Ok(target)
    }
}

fn no_recipe(provider: &str) -> PinError {
    let detail = format!("{provider} consists of several files, which one sha256 cannot vouch for");
    PinError::new(PinErrorKind::Usage, Step::ReadRequest, detail)
}

pub(crate) fn unknown_provider(list: &PinList, provider: &str) -> PinError {
    let detail = format!("no provider `{provider}` is known");
    PinError::new(PinErrorKind::PinUnknown, Step::ReadRequest, detail)
        .hinted(format!("known: {}", list.known(provider)))
}

fn unknown_version(list: &PinList, provider: &str, version: &str) -> PinError {
    let detail = format!("no pin is known for {provider}@{version} (known: {})", list.known(provider));
    PinError::new(PinErrorKind::PinUnknown, Step::ReadRequest, detail)
        .hinted("give its digest with `--sha256 HEX` if you have it from somebody you trust")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_pin_or_a_digest_the_known_versions_are_listed() {
        let list = PinList::shipped().unwrap();
        let spec = "grok@1.0.13".parse().unwrap();
        let error = Target::choose(&list, &spec, None).unwrap_err();
        assert_eq!((error.kind().code(), error.kind()), ("pin-unknown", PinErrorKind::PinUnknown));
        assert!(error.to_string().contains("known: grok@1.0.41"), "{error}");
    }

    #[test]
    fn an_own_pin_takes_the_recipe_of_the_listed_one() {
        let list = PinList::shipped().unwrap();
        let digest = "ab".repeat(32).parse().unwrap();
        let target = Target::choose(&list, &"grok@1.0.5".parse().unwrap(), Some(digest)).unwrap();
        assert_eq!(target.registry_path, "@xai-official/grok-linux-x64/-/grok-linux-x64-1.0.5.tgz");
        assert_eq!((target.pin, target.integrity, target.tarball_size), (PinKind::User, None, None));
    }

    #[test]
    fn a_digest_unlike_the_list_is_refused() {
        let list = PinList::shipped().unwrap();
        let spec = "grok".parse().unwrap();
        let error = Target::choose(&list, &spec, Some("ab".repeat(32).parse().unwrap())).unwrap_err();
        assert_eq!(error.kind(), PinErrorKind::Refused);
        let same = list.default_for("grok").unwrap().executable_file().unwrap().sha256;
        assert_eq!(Target::choose(&list, &spec, Some(same)).unwrap().pin, PinKind::Stockade);
    }
}
