//! Programs of the host that Stockade runs itself: only those that nobody but root can change.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::error::{FenceError, FenceErrorKind, Step};
use crate::sys::files::{self, Seen};

/// Bits by which somebody beside the owner can change a thing. A sticky folder counts too: whoever may add to it could have
/// made what lies in it.
const OTHERS_WRITE: u32 = 0o022;

/// Why a program is not run: what somebody but root can change.
#[derive(Debug)]
pub(crate) enum Distrust {
    /// A part of its path, or the program, and what is wrong with it.
    Part(PathBuf, String),
    /// It cannot be looked at.
    Unseen(FenceError),
}

impl Distrust {
    /// In words.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Part(path, why) => format!("`{}` {why}", path.display()),
            Self::Unseen(error) => error.to_string(),
        }
    }
}

impl From<Distrust> for FenceError {
    fn from(distrust: Distrust) -> Self {
        match distrust {
            Distrust::Part(path, why) => FenceError::new(
                FenceErrorKind::Refused,
                format!("who can change the program: {why}"),
                Errno::PERM,
            )
            .on(path),
            Distrust::Unseen(error) => error,
        }
    }
}

/// The path of a program without links, if every part of it is root's alone and the program is not setuid. Nobody but root
/// can make the path lead elsewhere afterwards.
pub(crate) fn path_of(program: &Path) -> Result<PathBuf, Distrust> {
    let path = std::fs::canonicalize(program).step_on("realpath", program).map_err(Distrust::Unseen)?;
    for part in path.ancestors() {
        let metadata = std::fs::symlink_metadata(part).step_on("lstat", part).map_err(Distrust::Unseen)?;
        judge(part, metadata.uid(), metadata.mode())?;
    }
    let fd = files::open_strict(&path).map_err(Distrust::Unseen)?;
    let seen = Seen::of(&fd).map_err(|e| Distrust::Unseen(e.on(&path)))?;
    judge(&path, seen.owner.0, seen.mode)?;
    if seen.mode & 0o6000 != 0 {
        return Err(Distrust::Part(path, "is setuid or setgid".to_owned()));
    }
    Ok(path)
}

fn judge(part: &Path, owner: u32, mode: u32) -> Result<(), Distrust> {
    if owner != 0 {
        return Err(Distrust::Part(part.to_path_buf(), format!("belongs to user {owner}")));
    }
    if mode & OTHERS_WRITE != 0 {
        return Err(Distrust::Part(part.to_path_buf(), "can be changed by others than its owner".to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_the_system_is_trusted_and_one_below_tmp_is_not() {
        assert!(path_of(Path::new("/usr/bin/env")).is_ok());
        let folder = tempfile_folder();
        let copy = folder.join("env");
        std::fs::copy("/usr/bin/env", &copy).unwrap();
        let Err(Distrust::Part(path, _)) = path_of(&copy) else { panic!("trusted") };
        assert!(copy.starts_with(&path));
        // A link is no better than what it points to, and no worse.
        std::fs::remove_file(&copy).unwrap();
        std::os::unix::fs::symlink("/usr/bin/env", &copy).unwrap();
        assert_eq!(path_of(&copy).unwrap(), Path::new("/usr/bin/env"));
        std::fs::remove_dir_all(folder).unwrap();
        assert!(matches!(path_of(&copy), Err(Distrust::Unseen(_))));
    }

    #[test]
    fn every_part_counts() {
        let part = Path::new("/opt/x");
        assert!(judge(part, 0, 0o40_755).is_ok());
        for (owner, mode) in [(1000, 0o40_755), (0, 0o40_775), (0, 0o41_777), (65_534, 0o40_755)] {
            assert!(judge(part, owner, mode).is_err(), "{owner} {mode:o}");
        }
    }

    fn tempfile_folder() -> PathBuf {
        let folder = std::env::temp_dir().join(format!("stockade-trusted-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }
}
