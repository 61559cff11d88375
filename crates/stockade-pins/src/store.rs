//! The installed versions of one state directory.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use serde::Serialize;

use crate::beneath::Folder;
use crate::digest::Sha256Digest;
use crate::error::{PinError, PinErrorKind, Step};
use crate::kind::PinKind;
use crate::list::PinList;
use crate::record::Record;
use crate::spec::{check_provider, check_version, is_provider_name, is_version};
use crate::target::unknown_provider;
use crate::verify::{Effort, check_folder};

/// The folder of all providers in the state directory.
pub(crate) const PROVIDERS: &str = "providers";

/// The installed versions below one state directory, judged by one list of pins.
#[derive(Clone, Debug)]
pub struct Store {
    state: PathBuf,
    pins: PinList,
}

/// An installed version, as its record tells; [`Store::verify`] proves it.
#[derive(Clone, Debug)]
pub struct Installed {
    /// The provider's name.
    pub provider: String,
    /// The provider's version.
    pub version: String,
    /// The folder of this version.
    pub folder: PathBuf,
    /// The executable in it.
    pub executable: PathBuf,
    /// Its record.
    pub record: Record,
}

/// One line of the list of installed versions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Listed {
    /// The provider's name.
    pub provider: String,
    /// The provider's version.
    pub version: String,
    /// The executable.
    pub path: PathBuf,
    /// Its digest.
    pub sha256: Sha256Digest,
    /// Who vouches for it.
    pub pin: PinKind,
}

/// The installed versions, and those that are not what they should be.
#[derive(Debug, Default)]
pub struct Listing {
    /// Versions in order, by name.
    pub listed: Vec<Listed>,
    /// Why other folders are not listed.
    pub refused: Vec<PinError>,
}

impl Store {
    /// The store below `state`, an absolute path that need not exist yet.
    pub fn new(state: impl Into<PathBuf>, pins: PinList) -> Self {
        Self { state: state.into(), pins }
    }

    /// The state directory.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// The pins by which this store judges.
    pub fn pins(&self) -> &PinList {
        &self.pins
    }

    /// Finds an installed version; no version means the default of the pin list. A version that is not installed is
    /// [`PinErrorKind::Unavailable`], with the command that installs it as the hint.
    pub fn resolve(&self, provider: &str, version: Option<&str>) -> Result<Installed, PinError> {
        check_provider(provider)?;
        let version = match version {
            Some(version) => version,
            None => {
                &self
                    .pins
                    .default_for(provider)
                    .ok_or_else(|| unknown_provider(&self.pins, provider))?
                    .version
            }
        };
        check_version(version)?;
        let folder = self.open_version(provider, version)?;
        let record = Record::read(&folder, provider, version)?;
        Ok(Installed {
            provider: provider.to_owned(),
            version: version.to_owned(),
            executable: folder.path().join(&record.executable),
            folder: folder.path().to_owned(),
            record,
        })
    }

    /// Lists what is installed, by the records; types, owners and modes are checked, digests only where a file has changed.
    pub fn list(&self) -> Result<Listing, PinError> {
        self.listing(Effort::WhereChanged)
    }

    /// Lists what is installed after taking every digest again.
    pub fn list_verified(&self) -> Result<Listing, PinError> {
        self.listing(Effort::Always)
    }

    fn listing(&self, effort: Effort) -> Result<Listing, PinError> {
        let mut listing = Listing::default();
        let Some(providers) = self.open_providers()? else { return Ok(listing) };
        for provider in plain_names(&providers, is_provider_name)? {
            let versions = match providers.open_folder(provider.as_ref()) {
                Ok(home) => plain_names(&home, is_version)?,
                Err(errno) => {
                    listing.refused.push(not_a_folder(&providers.path().join(&provider), errno));
                    continue;
                }
            };
            for version in versions {
                let checked =
                    self.resolve(&provider, Some(&version)).and_then(|found| self.check(&found, effort));
                match checked {
                    Ok(verified) => listing.listed.push(Listed {
                        provider: provider.clone(),
                        version,
                        path: verified.path,
                        sha256: verified.sha256,
                        pin: verified.pin,
                    }),
                    Err(error) => listing.refused.push(error),
                }
            }
        }
        Ok(listing)
    }

    fn open_providers(&self) -> Result<Option<Folder>, PinError> {
        let root = match Folder::open_root(&self.state) {
            Ok(root) => root,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(PinError::storage(Step::OpenState, &self.state, errno)),
        };
        match root.open_folder(OsStr::new(PROVIDERS)) {
            Ok(providers) => Ok(Some(providers)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(not_a_folder(&self.state.join(PROVIDERS), errno)),
        }
    }

    /// Opens the folder of a version; every folder on the way must be a folder, owned by the caller or root, written by nobody
    /// else.
    pub(crate) fn open_version(&self, provider: &str, version: &str) -> Result<Folder, PinError> {
        let mut folder = self.open_providers()?.ok_or_else(|| self.not_installed(provider, version))?;
        check_folder(&folder)?;
        for name in [provider, version] {
            folder = match folder.open_folder(name.as_ref()) {
                Ok(next) => next,
                Err(Errno::NOENT) => return Err(self.not_installed(provider, version)),
                Err(errno) => return Err(not_a_folder(&folder.path().join(name), errno)),
            };
            check_folder(&folder)?;
        }
        Ok(folder)
    }

    fn not_installed(&self, provider: &str, version: &str) -> PinError {
        let command = match self.pins.find(provider, version) {
            Some(_) => format!("stockade provision {provider}@{version}"),
            None => format!("stockade provision {provider}@{version} --sha256 HEX"),
        };
        let path = self.state.join(PROVIDERS).join(provider).join(version);
        PinError::new(
            PinErrorKind::Unavailable,
            Step::Resolve,
            format!("{provider}@{version} is not installed"),
        )
        .at(&path)
        .hinted(command)
    }
}

/// The entries that can be names, in order.
fn plain_names(folder: &Folder, wanted: fn(&str) -> bool) -> Result<Vec<String>, PinError> {
    let names = folder.entries().map_err(|errno| PinError::storage(Step::OpenState, folder.path(), errno))?;
    let mut names: Vec<String> =
        names.into_iter().filter_map(|name| name.into_string().ok()).filter(|name| wanted(name)).collect();
    names.sort();
    Ok(names)
}

fn not_a_folder(path: &Path, errno: Errno) -> PinError {
    match errno {
        Errno::LOOP | Errno::NOTDIR => PinError::os(PinErrorKind::Refused, Step::OpenExecutable, path, errno)
            .hinted(
                "a symbolic link or a file stands where a folder should be; remove it, then use `stockade provision`",
            ),
        _ => PinError::storage(Step::OpenState, path, errno),
    }
}
