//! What a careless caller leaves to the program it starts.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use crate::error::{FenceError, FenceErrorKind, Step};
use crate::probes::fixture::{FixtureFacts, SECRET, careless_descriptors as numbers};
use crate::probes::raw;
use crate::sys::process;

/// Above every number that a careless caller's descriptors have inside the program.
const OUT_OF_THE_WAY: i32 = 20;

fn input(facts: &FixtureFacts) -> PathBuf {
    facts.at("stdin.json")
}

/// Writes the file that becomes standard input.
pub(super) fn write_input(facts: &FixtureFacts) -> Result<(), FenceError> {
    let text = serde_json::to_vec(facts)
        .map_err(|_| FenceError::bare(FenceErrorKind::Request, "a fixture path is not text"))?;
    std::fs::write(input(facts), text).step_on("write", input(facts))
}

pub(super) fn apply(facts: &FixtureFacts, command: &mut Command) -> Result<(), FenceError> {
    let open = |file: io::Result<File>, path: PathBuf| -> Result<OwnedFd, FenceError> {
        let file = file.step_on("open", path)?;
        rustix::io::fcntl_dupfd_cloexec(file.as_fd(), OUT_OF_THE_WAY).step("fcntl(DUPFD)")
    };
    let (log, secret) = (facts.at("log.txt"), facts.at("secret"));
    let descriptors = [
        (open(OpenOptions::new().append(true).open(&log), log)?, numbers::LOG),
        (open(File::open(&secret), secret)?, numbers::SECRET),
        (open(File::open("/"), "/".into())?, numbers::ROOT),
    ];
    let key = raw::path(facts.session_key())
        .map_err(|_| FenceError::bare(FenceErrorKind::Request, "a name with NUL"))?;
    let standard_input = File::open(input(facts)).step_on("open", input(facts))?;
    command
        .current_dir(&facts.workspace)
        .stdin(standard_input)
        .env("SECRET_ENV_TOKEN", SECRET)
        .env("AWS_SECRET_ACCESS_KEY", SECRET);
    let prepare = move || {
        for (descriptor, number) in &descriptors {
            process::duplicate_to(descriptor.as_fd(), *number)
                .map_err(|error| io::Error::from_raw_os_error(error.errno()))?;
        }
        // Kernels without keys exist.
        let _key = leave_session_key(&key);
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes system calls only; its captures were allocated before.
    unsafe { command.pre_exec(prepare) };
    Ok(())
}

/// A session keyring of a name, with a secret in it.
fn leave_session_key(description: &CString) -> Result<(), crate::probes::acts::Denial> {
    /// `KEYCTL_JOIN_SESSION_KEYRING` and `KEY_SPEC_SESSION_KEYRING` of linux/keyctl.h.
    const JOIN: usize = 1;
    const SESSION: i32 = -3;
    let name = description.as_ptr().expose_provenance();
    // SAFETY: the name ends with NUL and outlives the call.
    unsafe { raw::call(libc::SYS_keyctl, [JOIN, name]) }?;
    let payload = SECRET.as_ptr().expose_provenance();
    let arguments = [c"user".as_ptr().expose_provenance(), name, payload, SECRET.len(), raw::signed(SESSION)];
    // SAFETY: type and description end with NUL and the payload is readable for its length.
    unsafe { raw::call(libc::SYS_add_key, arguments) }.map(drop)
}
