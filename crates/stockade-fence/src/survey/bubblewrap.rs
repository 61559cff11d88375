//! bubblewrap on PATH. Looked up always; started only to try the rung that goes through it, and only where nobody but root
//! can have changed it.

use std::ffi::OsStr;
use std::io::Read;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use stockade_core::survey::{BubblewrapFacts, CallerFacts, Refused, Rung};

use super::{programs, refused};
use crate::fence::Fence;
use crate::spec::{FenceNetwork, FenceSpec, Identity, OwnBinary};
use crate::sys::trusted;

/// How long it may take to say its version, and to end.
const LIMIT: Duration = Duration::from_secs(2);

/// Finds `bwrap`.
pub(super) fn look_up(path: Option<&OsStr>) -> BubblewrapFacts {
    let Some(found) = programs::first("bwrap", path) else {
        return BubblewrapFacts { path: None, setuid: false, untrusted: None, version: None };
    };
    let setuid = std::fs::metadata(&found).is_ok_and(|metadata| metadata.mode() & libc::S_ISUID != 0);
    let untrusted = trusted::path_of(&found).err().map(|distrust| distrust.text());
    BubblewrapFacts { path: Some(found), setuid, untrusted, version: None }
}

/// Builds a whole fence through it, with nothing in it. Asks for its version on the way.
pub(super) fn try_out(caller: &CallerFacts, facts: &mut BubblewrapFacts) -> Option<Refused> {
    let Some(path) = &facts.path else { return Some(refused("find bwrap on PATH", libc::ENOENT)) };
    if facts.setuid {
        return Some(refused("stat(bwrap): setuid", 0));
    }
    let program = match trusted::path_of(path) {
        Ok(program) => program,
        Err(distrust) => return Some(refused(format!("who can change bwrap: {}", distrust.text()), 0)),
    };
    facts.version = version(&program);
    let spec = FenceSpec {
        rung: Rung::Bs,
        bubblewrap: Some(path.clone()),
        identity: if caller.is_root_host() { Identity::KernelRoot } else { Identity::Caller },
        binds: Vec::new(),
        network: FenceNetwork::Empty,
        own_binary: OwnBinary::Absent,
        temp_bytes: 1 << 20,
        max_processes: None,
        group: None,
    };
    match Fence::build(&spec) {
        Ok(fence) => {
            fence.close(LIMIT);
            None
        }
        Err(error) => Some(error.refused()),
    }
}

/// What it says of itself: `0.8.0`.
fn version(program: &Path) -> Option<String> {
    #[expect(
        clippy::disallowed_methods,
        reason = "bubblewrap is part of the fence, and only root can have changed it"
    )]
    let mut child = std::process::Command::new(program)
        .arg("--version")
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let said = child.stdout.take().map(first_line).unwrap_or_default();
    // Gone already is as good as killed.
    let _gone = child.kill();
    let _reaped = child.wait();
    let version = said.trim().strip_prefix("bubblewrap ")?;
    let plain =
        !version.is_empty() && version.bytes().all(|b| b.is_ascii_alphanumeric() || b".-+~".contains(&b));
    plain.then(|| version.to_owned())
}

/// What is said until the end or the limit, of a short text.
fn first_line(mut from: impl Read + std::os::fd::AsFd) -> String {
    let end = Instant::now() + LIMIT;
    let mut bytes = Vec::new();
    while bytes.len() < 256 && !bytes.contains(&b'\n') && readable(from.as_fd(), end) {
        let mut chunk = [0; 64];
        match from.read(&mut chunk) {
            Ok(count) if count > 0 => bytes.extend(chunk.iter().take(count)),
            Ok(_) | Err(_) => break,
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn readable(fd: BorrowedFd<'_>, end: Instant) -> bool {
    let left = Timespec::try_from(end.saturating_duration_since(Instant::now())).ok();
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    matches!(rustix::event::poll(&mut fds, left.as_ref()), Ok(1))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::look_up;

    #[test]
    fn only_an_executable_file_in_an_absolute_folder_counts() {
        let root = std::env::temp_dir().join(format!("stockade-bwrap-{}", std::process::id()));
        for folder in ["a", "b", "c/bwrap"] {
            std::fs::create_dir_all(root.join(folder)).unwrap();
        }
        std::fs::write(root.join("a/bwrap"), "").unwrap();
        std::fs::set_permissions(root.join("a/bwrap"), PermissionsExt::from_mode(0o644)).unwrap();
        std::fs::write(root.join("b/bwrap"), "").unwrap();
        std::fs::set_permissions(root.join("b/bwrap"), PermissionsExt::from_mode(0o4755)).unwrap();

        let path = |folders: &[&Path]| std::env::join_paths(folders).unwrap();
        let all = path(&[Path::new(""), Path::new("b"), &root.join("c"), &root.join("a"), &root.join("b")]);
        let found = look_up(Some(&all));
        assert_eq!(found.path, Some(root.join("b/bwrap")));
        assert!(found.setuid);
        assert_eq!(look_up(Some(&path(&[&root.join("a")]))).path, None);
        assert_eq!(look_up(None).path, None);
        std::fs::remove_dir_all(&root).unwrap();
    }
}
