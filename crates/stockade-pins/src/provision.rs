//! Provisioning: from a pin to an installed version.

use std::fs::{DirBuilder, File};
use std::io::Write as _;
use std::ops::ControlFlow;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;

use rustix::fs::Mode;
use rustix::io::Errno;

use crate::beneath::Folder;
use crate::digest::Sha256Digest;
use crate::error::{PinError, PinErrorKind, Step};
use crate::install::write_failed;
use crate::lock::lock;
use crate::network::Network;
use crate::progress::{Phase, Progress, Watch};
use crate::record::{RECORD_NAME, Record, RecordHead, RecordedFile};
use crate::source::{Source, from_file, from_registry};
use crate::spec::ProviderSpec;
use crate::stage::Stage;
use crate::store::{Installed, PROVIDERS, Store};
use crate::target::{Target, TargetFile};
use crate::unpack::{transform, unpack};
use crate::verify::check_folder;

/// The finished folder's name in the staging directory.
const TREE: &str = "tree";
/// The place in the staging directory for a broken version that is being replaced.
const REPLACED: &str = "replaced";
/// A state directory made here is the person's own.
const STATE_MODE: u32 = 0o700;
const RECORD_MODE: Mode = Mode::from_raw_mode(0o644);

/// What to install, from where.
#[derive(Clone, Debug)]
pub struct ProvisionRequest {
    /// The provider and its version.
    pub spec: ProviderSpec,
    /// A tarball, a `.br` or an executable of the caller's, instead of the registry.
    pub from: Option<PathBuf>,
    /// The digest of the executable, for a version that the pin list does not name.
    pub sha256: Option<Sha256Digest>,
    /// How to reach the registry.
    pub network: Network,
    /// The time to record, RFC 3339 in UTC.
    pub installed_at: String,
}

/// What a provision did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The version was not there before.
    Installed,
    /// The version was there and is intact.
    AlreadyInstalled,
    /// The version was there but not as pinned, and has been replaced.
    Replaced,
}

/// An installed version and how it came to be.
#[derive(Clone, Debug)]
pub struct Provisioned {
    /// The installed version.
    pub installed: Installed,
    /// What was done.
    pub outcome: Outcome,
}

impl Store {
    /// Installs a version, or finds it installed. `watch` is told of progress and cancels by returning `Break`, which is heeded
    /// within about a tenth of a second; whatever ends a provision early, nothing half-made is left.
    pub fn provision(
        &self,
        request: &ProvisionRequest,
        watch: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Provisioned, PinError> {
        let target = Target::choose(self.pins(), &request.spec, request.sha256)?;
        // First without the lock: an intact version is found even where the caller may only read.
        if let Some(installed) = self.intact(&target)? {
            return Ok(Provisioned { installed, outcome: Outcome::AlreadyInstalled });
        }
        let watch = &mut Watch(watch);
        let (providers, home) = self.make_folders(&target)?;

        let lock_name = format!(".{}.lock", target.version);
        let lock_path = home.path().join(&lock_name);
        let held =
            home.open_lock(&lock_name).map_err(|errno| PinError::storage(Step::Lock, &lock_path, errno))?;
        lock(&held, &lock_path, watch)?;

        let present = home
            .exists(&target.version)
            .map_err(|errno| PinError::storage(Step::OpenState, &home.path().join(&target.version), errno))?;
        if present && let Some(installed) = self.intact(&target)? {
            return Ok(Provisioned { installed, outcome: Outcome::AlreadyInstalled });
        }
        let stage = Stage::begin(&providers, &format!("{}-{}", target.provider, target.version), watch)?;
        build(&target, request, stage.folder(), watch)?;
        put_in_place(&stage, &home, &target, watch)?;
        let installed = self.resolve(&target.provider, Some(&target.version))?;
        let outcome = if present { Outcome::Replaced } else { Outcome::Installed };
        Ok(Provisioned { installed, outcome })
    }

    fn make_folders(&self, target: &Target) -> Result<(Folder, Folder), PinError> {
        let state = self.state();
        DirBuilder::new().recursive(true).mode(STATE_MODE).create(state).map_err(|error| {
            PinError::storage(Step::OpenState, state, Errno::from_io_error(&error).unwrap_or(Errno::IO))
        })?;
        let root =
            Folder::open_root(state).map_err(|errno| PinError::storage(Step::OpenState, state, errno))?;
        let providers = ensure(&root, PROVIDERS)?;
        let home = ensure(&providers, &target.provider)?;
        Ok((providers, home))
    }

    /// The version if it is installed as wanted; none if it has to be replaced.
    fn intact(&self, target: &Target) -> Result<Option<Installed>, PinError> {
        let checked = self
            .resolve(&target.provider, Some(&target.version))
            .and_then(|installed| self.verify(&installed).map(|verified| (installed, verified)));
        let (installed, verified) = match checked {
            Ok(found) => found,
            Err(error) if matches!(error.kind(), PinErrorKind::Refused | PinErrorKind::Unavailable) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let wanted = target.files.iter().find(|file| file.to == target.executable).map(|file| file.sha256);
        if wanted == Some(verified.sha256) {
            return Ok(Some(installed));
        }
        let detail = format!("{} is installed with the sha256 {}", target.name(), verified.sha256);
        Err(PinError::new(PinErrorKind::Refused, Step::CheckDigest, detail)
            .at(&installed.folder)
            .hinted("remove this folder to install the other one"))
    }
}

/// Opens or makes a folder that nobody but the caller and root may write.
fn ensure(parent: &Folder, name: &str) -> Result<Folder, PinError> {
    let path = parent.path().join(name);
    let folder = parent.ensure_folder(name).map_err(|errno| match errno {
        Errno::LOOP | Errno::NOTDIR => PinError::os(PinErrorKind::Refused, Step::OpenState, &path, errno)
            .hinted("something else stands where a folder should be; remove it"),
        _ => PinError::storage(Step::OpenState, &path, errno),
    })?;
    check_folder(&folder)?;
    Ok(folder)
}

/// Makes the finished folder in the staging directory.
fn build(
    target: &Target,
    request: &ProvisionRequest,
    stage: &Folder,
    watch: &mut Watch<'_>,
) -> Result<(), PinError> {
    let source = match &request.from {
        Some(path) => from_file(path, target, stage, watch)?,
        None => from_registry(target, &request.network, stage, watch)?,
    };
    let tree = stage
        .create_folder(TREE)
        .map_err(|errno| PinError::storage(Step::Stage, &stage.path().join(TREE), errno))?;
    let is_tarball = matches!(source, Source::Tarball(_));
    let files = match source {
        Source::Tarball(file) => unpack(file, &target.files, &tree, watch)?,
        Source::Bare { mut file, name, transform: given } => target
            .sole_file()
            .map(|wanted| TargetFile { from: name, transform: given, ..wanted.clone() })
            .map(|wanted| transform(&wanted, &mut file, &tree, watch))
            .into_iter()
            .collect::<Result<Vec<_>, _>>()?,
    };
    let head = RecordHead {
        provider: target.provider.clone(),
        version: target.version.clone(),
        package: (is_tarball || target.integrity.is_some()).then(|| target.package.clone()),
        pin: target.pin,
        installed_at: request.installed_at.clone(),
    };
    write_record(&tree, &record(target, head, files)?)?;
    tree.sync().map_err(|errno| PinError::storage(Step::Write, tree.path(), errno))
}

fn record(target: &Target, head: RecordHead, files: Vec<RecordedFile>) -> Result<Record, PinError> {
    let (mut executables, companions): (Vec<_>, Vec<_>) =
        files.into_iter().partition(|file| file.path == target.executable);
    let executable = executables.pop().ok_or_else(|| {
        PinError::new(
            PinErrorKind::VerificationFailed,
            Step::Unpack,
            format!("{} has no executable", target.name()),
        )
    })?;
    Ok(Record::new(head, executable, companions))
}

fn write_record(tree: &Folder, record: &Record) -> Result<(), PinError> {
    let path = tree.path().join(RECORD_NAME);
    let storage = |errno| PinError::storage(Step::Write, &path, errno);
    let mut file: File = tree.create_file(RECORD_NAME).map_err(storage)?;
    file.write_all(&record.to_json()?).map_err(|error| write_failed(&path, &error))?;
    rustix::fs::fchmod(&file, RECORD_MODE).map_err(storage)?;
    rustix::fs::fsync(&file).map_err(storage)
}

/// Moves the finished folder into place; a broken version that stood there goes away with the staging directory.
fn put_in_place(
    stage: &Stage,
    home: &Folder,
    target: &Target,
    watch: &mut Watch<'_>,
) -> Result<(), PinError> {
    watch.report(Step::Install, Phase::Installing, 0, None)?;
    let path = home.path().join(&target.version);
    let storage = |errno| PinError::storage(Step::Install, &path, errno);
    match home.rename(&target.version, stage.folder(), REPLACED) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(storage(errno)),
    }
    stage.folder().rename(TREE, home, &target.version).map_err(storage)?;
    home.sync().map_err(storage)
}
