//! Actions that several probes share, and their outcome.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

use rustix::io::Errno;

use super::fixture::SECRET;

/// `Ok`: the action worked, which inside the fence is an escape.
pub(super) type Outcome = Result<(), Denial>;

/// Why an action did not work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Denial {
    /// The error number.
    pub(super) errno: i32,
    /// How far it came, where that says more than the number.
    pub(super) detail: String,
}

impl Denial {
    pub(super) fn new(errno: i32) -> Self {
        Self { errno, detail: String::new() }
    }

    /// The call worked but did not give what was wanted.
    pub(super) fn nothing_found() -> Self {
        Self::new(libc::ENODATA)
    }

    pub(super) fn with_detail(self, detail: String) -> Self {
        Self { detail, ..self }
    }
}

impl From<io::Error> for Denial {
    fn from(error: io::Error) -> Self {
        // An error without a number (a path with a NUL) is a fault of the fixture and must not pass for a denial.
        Self::new(error.raw_os_error().unwrap_or(0))
    }
}

impl From<Errno> for Denial {
    fn from(errno: Errno) -> Self {
        Self::new(errno.raw_os_error())
    }
}

/// A call whose result is of no use: that it worked is the escape.
pub(super) fn worked<T, E: Into<Denial>>(result: Result<T, E>) -> Outcome {
    result.map(drop).map_err(Into::into)
}

/// Appends a line to an existing file.
pub(super) fn append(path: impl AsRef<Path>) -> Outcome {
    Ok(OpenOptions::new().append(true).open(path)?.write_all(b"#x\n")?)
}

/// Makes a file, or empties the one that is there.
pub(super) fn create(path: impl AsRef<Path>) -> Outcome {
    Ok(File::create(path)?.write_all(b"#x\n")?)
}

/// Opens an existing file for writing and writes nothing: harmless where it works.
pub(super) fn open_for_writing(path: impl AsRef<Path>) -> Outcome {
    OpenOptions::new().write(true).open(path)?;
    Ok(())
}

/// Opens a file for reading.
pub(super) fn open_for_reading(path: impl AsRef<Path>) -> Outcome {
    File::open(path)?;
    Ok(())
}

/// Reads a decoy and finds the secret in it.
pub(super) fn read_secret(path: impl AsRef<Path>) -> Outcome {
    find_secret(File::open(path)?)
}

/// Finds the secret in what a reader gives.
pub(super) fn find_secret(reader: impl Read) -> Outcome {
    let mut text = Vec::new();
    reader.take(64 * 1024).read_to_end(&mut text)?;
    if String::from_utf8_lossy(&text).contains(SECRET) { Ok(()) } else { Err(Denial::nothing_found()) }
}

/// The first that works, or the denial of the last.
pub(super) fn any(paths: &[&str], act: impl Fn(&str) -> Outcome) -> Outcome {
    let mut last = Err(Denial::nothing_found());
    for path in paths {
        last = act(path);
        if last.is_ok() {
            break;
        }
    }
    last
}

/// Removes what a probe made where it worked, so that the control run leaves nothing.
pub(super) fn clean_up(path: impl AsRef<Path>) {
    // Whether it is gone is checked from outside.
    let _removed = std::fs::remove_file(path);
}
