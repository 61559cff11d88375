//! What the host side owns beside processes, and gives back: its folder, shared memory, a message queue, a key.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::error::{FenceError, Step};
use crate::probes::acts::Denial;
use crate::probes::fixture::SECRET;
use crate::probes::raw;

use super::damage::Damage;
use super::random;

/// Folders outside the fixture in which a probe that escapes leaves something that is called like the token.
const SHARED_FOLDERS: [&str; 5] = ["/tmp", "/var/tmp", "/dev/shm", "/run", "/etc/cron.d"];

/// Where systemd and containers put secrets.
const RUN_SECRETS: &str = "/run/secrets";

/// `KEY_SPEC_USER_KEYRING` of linux/keyctl.h.
const USER_KEYRING: i32 = -4;

#[derive(Debug)]
pub(super) struct Belongings {
    root: PathBuf,
    token: String,
    segment: Option<usize>,
    key: Option<usize>,
    made_run_secrets: bool,
}

impl Belongings {
    /// Makes the folder.
    pub(super) fn new(root: &Path, token: &str) -> Result<Self, FenceError> {
        fs::create_dir(root).step_on("mkdir", root)?;
        Ok(Self {
            root: root.to_owned(),
            token: token.to_owned(),
            segment: None,
            key: None,
            made_run_secrets: false,
        })
    }

    /// Makes everything outside the folder. Returns the key of the shared memory.
    pub(super) fn share(&mut self, token: &str) -> Result<i32, FenceError> {
        let memory_file = Path::new("/dev/shm").join(token);
        fs::write(&memory_file, SECRET).step_on("write", memory_file)?;
        make_queue(token).map_err(failed("mq_open"))?;
        // Kernels without keys exist; the probes that look for one then prove nothing, and say so.
        self.key = add_user_key(&format!("{token}-user")).ok();
        if rustix::process::geteuid().is_root() {
            self.made_run_secrets = fs::create_dir(RUN_SECRETS).is_ok();
            let secret = Path::new(RUN_SECRETS).join(token);
            fs::write(&secret, SECRET).step_on("write", secret)?;
        }
        let key = i32::try_from(random()? >> 33).unwrap_or(1).max(1);
        self.segment = Some(make_segment(key).map_err(failed("shmget"))?);
        Ok(key)
    }

    /// What a probe left where everybody looks.
    pub(super) fn leaked(&self) -> Vec<Damage> {
        let mut leaks = Vec::new();
        for folder in SHARED_FOLDERS {
            let own = Path::new("/dev/shm").join(&self.token);
            let names = fs::read_dir(folder).into_iter().flatten().flatten();
            let found = names.filter(|entry| entry.file_name().to_string_lossy().contains(&self.token));
            leaks.extend(found.map(|entry| entry.path()).filter(|path| *path != own).map(Damage::Leaked));
        }
        leaks
    }
}

impl Drop for Belongings {
    /// Nobody is left to tell about a failure: what stays has the token in its name.
    fn drop(&mut self) {
        let _gone = fs::remove_dir_all(&self.root);
        for folder in SHARED_FOLDERS {
            let _gone = fs::remove_file(Path::new(folder).join(&self.token));
        }
        let _gone = fs::remove_file(Path::new(RUN_SECRETS).join(&self.token));
        if self.made_run_secrets {
            let _gone = fs::remove_dir(RUN_SECRETS);
        }
        if let Ok(name) = raw::path(&self.token) {
            // SAFETY: the name ends with NUL and outlives the call.
            let _gone = unsafe { raw::call(libc::SYS_mq_unlink, [name.as_ptr().expose_provenance()]) };
        }
        if let Some(segment) = self.segment {
            // SAFETY: IPC_RMID (0) uses no buffer.
            let _gone = unsafe { raw::call(libc::SYS_shmctl, [segment, 0, 0]) };
        }
        if let Some(key) = self.key {
            /// `KEYCTL_UNLINK` of linux/keyctl.h.
            const UNLINK: usize = 9;
            // SAFETY: numbers only.
            let _gone = unsafe { raw::call(libc::SYS_keyctl, [UNLINK, key, raw::signed(USER_KEYRING)]) };
        }
    }
}

fn failed(step: &'static str) -> impl Fn(Denial) -> FenceError {
    move |denial| {
        FenceError::new(
            crate::error::FenceErrorKind::Source,
            step,
            Errno::from_io_error(&std::io::Error::from_raw_os_error(denial.errno)).unwrap_or(Errno::IO),
        )
    }
}

fn make_queue(token: &str) -> Result<(), Denial> {
    let name = raw::path(token)?;
    let flags = raw::signed(libc::O_CREAT | libc::O_RDWR | libc::O_CLOEXEC);
    // SAFETY: the name ends with NUL; a null pointer asks for the attributes the system sets.
    let queue =
        unsafe { raw::call(libc::SYS_mq_open, [name.as_ptr().expose_provenance(), flags, 0o666, 0]) }?;
    // SAFETY: the kernel has just made the descriptor.
    unsafe { raw::own(queue) }.map(drop)
}

fn make_segment(key: i32) -> Result<usize, Denial> {
    let flags = raw::signed(libc::IPC_CREAT | libc::IPC_EXCL | 0o666);
    // SAFETY: numbers only.
    let segment = unsafe { raw::call(libc::SYS_shmget, [raw::signed(key), 4096, flags]) }?;
    usize::try_from(segment).map_err(|_| Denial::new(libc::EINVAL))
}

fn add_user_key(description: &str) -> Result<usize, Denial> {
    let description = raw::path(description)?;
    let arguments = [
        c"user".as_ptr().expose_provenance(),
        description.as_ptr().expose_provenance(),
        SECRET.as_ptr().expose_provenance(),
        SECRET.len(),
        raw::signed(USER_KEYRING),
    ];
    // SAFETY: type and description end with NUL and the payload is readable for its length.
    let key = unsafe { raw::call(libc::SYS_add_key, arguments) }?;
    usize::try_from(key).map_err(|_| Denial::new(libc::EINVAL))
}
