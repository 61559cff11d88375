//! What the host side owns beside processes, and gives back: its folder, shared memory, a message queue, a key.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::error::{FenceError, Step};
use crate::probes::acts::Denial;
use crate::probes::fixture::SECRET;
use crate::probes::raw;

use super::damage::Damage;

/// Folders outside the fixture in which a probe that escapes leaves something that is called like the token.
const SHARED_FOLDERS: [&str; 5] = ["/tmp", "/var/tmp", "/dev/shm", "/run", "/etc/cron.d"];

/// Where systemd and containers put secrets.
const RUN_SECRETS: &str = "/run/secrets";

/// `KEY_SPEC_USER_KEYRING` of linux/keyctl.h.
const USER_KEYRING: i32 = -4;

/// Says, in the folder, that the folder of the system's secrets was made, too.
const MADE_RUN_SECRETS: &str = "made-run-secrets";

/// Everything in it has a name that follows from the folder's path, so that [`give_back`] finds it after a kill, too.
#[derive(Debug)]
pub(super) struct Belongings {
    root: PathBuf,
    token: String,
    /// Locked for as long as this process lives.
    _alive: OwnedFd,
}

/// Gives back what a killed process made outside its folder; the folder itself stays. One that is no host side's has
/// nothing elsewhere.
pub fn give_back(root: &Path) {
    let token = token_of(root);
    // Made first and removed last.
    if memory_file(&token).symlink_metadata().is_ok() {
        remove_shared(root, &token);
    }
}

impl Belongings {
    /// Makes the folder.
    pub(super) fn new(root: &Path) -> Result<Self, FenceError> {
        fs::create_dir(root).step_on("mkdir", root)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let alive = rustix::fs::open(root, flags, Mode::empty()).step_on("open", root)?;
        rustix::fs::flock(&alive, FlockOperation::NonBlockingLockExclusive).step_on("lock", root)?;
        Ok(Self { root: root.to_owned(), token: token_of(root), _alive: alive })
    }

    /// The word in the names of everything outside the folder.
    pub(super) fn token(&self) -> &str {
        &self.token
    }

    /// Makes everything outside the folder. Returns the key of the shared memory.
    pub(super) fn share(&mut self) -> Result<i32, FenceError> {
        let token = &self.token;
        let memory_file = memory_file(token);
        fs::write(&memory_file, SECRET).step_on("write", memory_file)?;
        make_queue(token).map_err(failed("mq_open"))?;
        // Kernels without keys exist; the probes that look for one then prove nothing, and say so.
        let _key = add_user_key(&user_key(token));
        if rustix::process::geteuid().is_root() {
            if fs::create_dir(RUN_SECRETS).is_ok() {
                let mark = self.root.join(MADE_RUN_SECRETS);
                fs::write(&mark, "").step_on("write", mark)?;
            }
            let secret = Path::new(RUN_SECRETS).join(token);
            fs::write(&secret, SECRET).step_on("write", secret)?;
        }
        let key = segment_key(token);
        make_segment(key).map_err(failed("shmget"))?;
        Ok(key)
    }

    /// What a probe left where everybody looks.
    pub(super) fn leaked(&self) -> Vec<Damage> {
        let mut leaks = Vec::new();
        for folder in SHARED_FOLDERS {
            let own = memory_file(&self.token);
            let names = fs::read_dir(folder).into_iter().flatten().flatten();
            let found = names.filter(|entry| entry.file_name().to_string_lossy().contains(&self.token));
            leaks.extend(found.map(|entry| entry.path()).filter(|path| *path != own).map(Damage::Leaked));
        }
        leaks
    }
}

impl Drop for Belongings {
    /// Nobody is left to tell about a failure: what stays is found by the folder's name, and has the token in its own.
    fn drop(&mut self) {
        remove_shared(&self.root, &self.token);
        let _gone = fs::remove_dir_all(&self.root);
    }
}

/// A word that no other program uses, from the path of a folder that nobody else has.
fn token_of(root: &Path) -> String {
    format!("stockade-probe-{:016x}", hash(root.as_os_str().as_bytes()))
}

/// FNV-1a: the same in every version of this program, and no secret.
fn hash(bytes: &[u8]) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    bytes.iter().fold(OFFSET, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME))
}

fn memory_file(token: &str) -> PathBuf {
    Path::new("/dev/shm").join(token)
}

fn user_key(token: &str) -> String {
    format!("{token}-user")
}

/// Never 0, which would be a segment without a key.
fn segment_key(token: &str) -> i32 {
    i32::try_from(hash(token.as_bytes()) >> 33).unwrap_or(1).max(1)
}

/// Removes everything outside the folder, whatever of it there is.
fn remove_shared(root: &Path, token: &str) {
    let _gone = fs::remove_file(Path::new(RUN_SECRETS).join(token));
    if root.join(MADE_RUN_SECRETS).exists() {
        let _gone = fs::remove_dir(RUN_SECRETS);
    }
    if let Ok(name) = raw::path(token) {
        // SAFETY: the name ends with NUL and outlives the call.
        let _gone = unsafe { raw::call(libc::SYS_mq_unlink, [name.as_ptr().expose_provenance()]) };
    }
    if let Ok(segment) = find_segment(segment_key(token)) {
        // SAFETY: IPC_RMID (0) uses no buffer.
        let _gone = unsafe { raw::call(libc::SYS_shmctl, [segment, 0, 0]) };
    }
    if let Ok(key) = find_user_key(&user_key(token)) {
        /// `KEYCTL_UNLINK` of linux/keyctl.h.
        const UNLINK: usize = 9;
        // SAFETY: numbers only.
        let _gone = unsafe { raw::call(libc::SYS_keyctl, [UNLINK, key, raw::signed(USER_KEYRING)]) };
    }
    for folder in SHARED_FOLDERS {
        let _gone = fs::remove_file(Path::new(folder).join(token));
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

fn make_segment(key: i32) -> Result<(), Denial> {
    let flags = raw::signed(libc::IPC_CREAT | libc::IPC_EXCL | 0o666);
    // SAFETY: numbers only.
    unsafe { raw::call(libc::SYS_shmget, [raw::signed(key), 4096, flags]) }.map(drop)
}

fn find_segment(key: i32) -> Result<usize, Denial> {
    // SAFETY: numbers only.
    number(unsafe { raw::call(libc::SYS_shmget, [raw::signed(key), 0, 0]) }?)
}

fn find_user_key(description: &str) -> Result<usize, Denial> {
    /// `KEYCTL_SEARCH` of linux/keyctl.h.
    const SEARCH: usize = 10;
    let description = raw::path(description)?;
    let (kind, name) = (c"user".as_ptr().expose_provenance(), description.as_ptr().expose_provenance());
    // SAFETY: type and description end with NUL.
    number(unsafe { raw::call(libc::SYS_keyctl, [SEARCH, raw::signed(USER_KEYRING), kind, name, 0]) }?)
}

fn number(answer: i64) -> Result<usize, Denial> {
    usize::try_from(answer).map_err(|_| Denial::new(libc::EINVAL))
}

fn add_user_key(description: &str) -> Result<(), Denial> {
    let description = raw::path(description)?;
    let arguments = [
        c"user".as_ptr().expose_provenance(),
        description.as_ptr().expose_provenance(),
        SECRET.as_ptr().expose_provenance(),
        SECRET.len(),
        raw::signed(USER_KEYRING),
    ];
    // SAFETY: type and description end with NUL and the payload is readable for its length.
    unsafe { raw::call(libc::SYS_add_key, arguments) }.map(drop)
}
