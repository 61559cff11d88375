//! An executable of the caller's own, for one run.

use std::fs::File;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};

use crate::beneath::open_resolved;
use crate::error::{PinError, PinErrorKind, Step};
use crate::kind::PinKind;
use crate::verify::{Verified, check_type, hash, stat};

const EXECUTABLE: u32 = 0o111;

/// Looks at a file named by the caller: links in its path are resolved once, and the path without them is the one recorded and
/// used. A path that leads nowhere is [`PinErrorKind::Usage`]; anything but a regular executable file is
/// [`PinErrorKind::Refused`].
pub fn executable_file(provider: &str, path: &Path) -> Result<Verified, PinError> {
    let real = std::fs::canonicalize(path)
        .map_err(|error| PinError::io(PinErrorKind::Usage, Step::OpenExecutable, path, error))?;
    // A link that appears after the path was resolved is not followed.
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = open_resolved(CWD, real.as_path(), flags, Mode::empty(), resolve)
        .map(File::from)
        .map_err(|errno| PinError::os(PinErrorKind::Refused, Step::OpenExecutable, &real, errno))?;
    let found = stat(&file, &real)?;
    check_type(&found, FileType::RegularFile, &real)?;
    if found.st_mode & EXECUTABLE == 0 {
        return Err(PinError::new(PinErrorKind::Refused, Step::CheckExecutable, "it is not executable")
            .at(&real)
            .hinted(format!("chmod +x {}", real.display())));
    }
    let (sha256, stamp) = hash(&file, &real)?;
    Ok(Verified {
        provider: provider.to_owned(),
        version: None,
        path: real,
        folder: None,
        sha256,
        size: stamp.size,
        pin: PinKind::Unpinned,
        stamp,
        hashed: true,
    })
}
