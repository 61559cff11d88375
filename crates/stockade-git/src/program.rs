//! Git on the host: found where nobody but root can put it, started with an environment of its own.
//!
//! This is the one file of this crate that starts a program outside a fence. It does so in the caller's repository alone,
//! never in a folder that an agent wrote, and with everything switched off by which a repository starts programs.

use std::{
    fs::File,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{fs::MetadataExt as _, process::CommandExt as _},
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec},
    io::Errno,
};

use crate::error::GitError;

/// Folders that a fence shows as they are: what lies in others could not be run inside.
const SYSTEM: [&str; 8] = ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/opt", "/nix", "/gnu"];
/// What git says about a failure.
const STDERR_LIMIT_BYTES: usize = 16 * 1024;
const CHUNK_BYTES: usize = 64 * 1024;

/// Settings by which a repository would start programs or reach for others, off; and nothing that runs on by itself.
const OFF: [&str; 9] = [
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.alternateRefsCommand=",
    "core.logAllRefUpdates=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "protocol.allow=never",
    // A bundle is a file.
    "protocol.file.allow=always",
    "submodule.recurse=false",
];

/// Finds a program on `PATH` where nobody but root could have put it: every part of its path belongs to root and others
/// cannot write it. What does not fulfil that is passed over.
pub fn find_trusted(name: &str, path: &str) -> Option<PathBuf> {
    path.split(':').map(Path::new).filter(|dir| dir.is_absolute()).find_map(|dir| {
        let found = std::fs::canonicalize(dir.join(name)).ok()?;
        let seen = SYSTEM.iter().any(|system| found.starts_with(system));
        (seen && found.is_file() && is_roots(&found)).then_some(found)
    })
}

fn is_roots(path: &Path) -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let unknown = std::fs::read_to_string("/proc/sys/kernel/overflowuid").unwrap_or_default();
    let stands_in = stand_in_for_root(&map, unknown.trim().parse().ok());
    let is_roots = |uid: u32| uid == 0 || stands_in == Some(uid);
    path.ancestors()
        .all(|p| std::fs::symlink_metadata(p).is_ok_and(|m| is_roots(m.uid()) && m.mode() & 0o022 == 0))
}

/// As whose a folder of the system shows in a user namespace that has no root: nobody inside is that user either.
fn stand_in_for_root(map: &str, unknown: Option<u32>) -> Option<u32> {
    // user_namespaces(7): first id inside, first id outside, how many.
    let ranges = map.lines().filter_map(|line| {
        let mut numbers = line.split_whitespace().map(str::parse::<u64>);
        Some((numbers.next()?.ok()?, numbers.nth(1)?.ok()?))
    });
    let ranges: Vec<(u64, u64)> = ranges.collect();
    let knows =
        |id: u64| ranges.iter().any(|(first, count)| (*first..first.saturating_add(*count)).contains(&id));
    unknown.filter(|unknown| !ranges.is_empty() && !knows(0) && !knows(u64::from(*unknown)))
}

/// What a call reads from.
#[derive(Debug)]
pub(crate) enum Input<'i> {
    /// These bytes.
    Bytes(&'i [u8]),
    /// A file, which git opens as `/proc/self/fd/0` or reads.
    File(File),
}

/// Where its output goes.
pub(crate) enum Output<'o> {
    /// To a reader, which may refuse.
    Reader(&'o mut dyn FnMut(&[u8]) -> Result<(), String>),
    /// To wherever this process writes.
    Inherited,
}

/// A call of git in a repository.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Program<'p> {
    /// The program.
    pub(crate) git: &'p Path,
    /// The common folder.
    pub(crate) common: &'p Path,
    /// As whom; `None`: as this process.
    pub(crate) owner: Option<(u32, u32)>,
    /// How long it may take.
    pub(crate) limit: Duration,
}

impl Program<'_> {
    /// Runs git to its end. An exit code other than 0 is an error with what git said.
    pub(crate) fn run(
        &self,
        step: &'static str,
        arguments: &[&str],
        input: Input<'_>,
        output: Output<'_>,
    ) -> Result<(), GitError> {
        let fail = |e: &std::io::Error| GitError::io(step, self.common, e);
        let (stdin, bytes): (Stdio, &[u8]) = match input {
            Input::Bytes(bytes) => (Stdio::piped(), bytes),
            Input::File(file) => (file.into(), &[]),
        };
        let mut command = self.command(arguments);
        command.stdin(stdin).stderr(Stdio::piped());
        match output {
            Output::Reader(_) => command.stdout(Stdio::piped()),
            Output::Inherited => command.stdout(Stdio::inherit()),
        };
        let mut child = command.spawn().map_err(|e| fail(&e))?;
        let mut refuse_all = |_: &[u8]| Ok(());
        let reader = match output {
            Output::Reader(reader) => reader,
            Output::Inherited => &mut refuse_all,
        };
        let talked = talk(&mut child, bytes, reader, Instant::now() + self.limit);
        if talked.is_err() {
            // It may have ended by itself.
            drop(child.kill());
        }
        let status = child.wait().map_err(|e| fail(&e))?;
        let said = talked.map_err(|reason| GitError::new(step, self.common, reason))?;
        if status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&said).trim().to_owned();
        Err(GitError::new(step, self.common, format!("git ended with {status}: {said}")))
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "git in the caller's own repository is the one program that runs outside the fence: bundles have to be \
                  fetched where the repository is"
    )]
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.git);
        for setting in OFF {
            command.args(["-c", setting]);
        }
        command
            .arg("--no-pager")
            .args(arguments)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("LC_ALL", "C")
            .env("HOME", "/nonexistent")
            .env("GIT_DIR", self.common)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_ATTR_NOSYSTEM", "1")
            .env("GIT_NO_REPLACE_OBJECTS", "1")
            .env("GIT_OPTIONAL_LOCKS", "0")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_NO_LAZY_FETCH", "1")
            .current_dir(self.common);
        if let Some((uid, gid)) = self.owner {
            // The standard library drops supplementary groups with the user.
            command.uid(uid).gid(gid);
        }
        command
    }
}

/// Feeds and reads a child until both its outputs end; gives what it said on standard error.
fn talk(
    child: &mut Child,
    mut bytes: &[u8],
    reader: &mut dyn FnMut(&[u8]) -> Result<(), String>,
    end: Instant,
) -> Result<Vec<u8>, String> {
    let mut stdin = child.stdin.take().map(OwnedFd::from);
    let mut stdout = child.stdout.take().map(OwnedFd::from);
    let mut stderr = child.stderr.take().map(OwnedFd::from);
    if let Some(fd) = &stdin {
        rustix::io::ioctl_fionbio(fd, true).map_err(|e| e.to_string())?;
    }
    let mut said = Vec::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    while stdout.is_some() || stderr.is_some() {
        if bytes.is_empty() {
            stdin = None;
        }
        let ready = wait([stdin.as_ref(), stdout.as_ref(), stderr.as_ref()], end)?;
        if ready.stdin
            && let Some(fd) = &stdin
        {
            match rustix::io::write(fd, bytes) {
                Ok(n) => bytes = bytes.get(n..).unwrap_or_default(),
                Err(Errno::AGAIN | Errno::INTR) => {}
                // It reads no more; what it says tells why.
                Err(_) => bytes = &[],
            }
        }
        if ready.stdout && !read(&mut stdout, &mut chunk, reader)? {
            stdout = None;
        }
        let mut keep = |part: &[u8]| {
            said.extend_from_slice(part);
            said.truncate(STDERR_LIMIT_BYTES);
            Ok(())
        };
        if ready.stderr && !read(&mut stderr, &mut chunk, &mut keep)? {
            stderr = None;
        }
    }
    Ok(said)
}

/// Reads once; says whether there may be more.
fn read(
    from: &mut Option<OwnedFd>,
    chunk: &mut [u8],
    reader: &mut dyn FnMut(&[u8]) -> Result<(), String>,
) -> Result<bool, String> {
    let Some(fd) = from else { return Ok(false) };
    match rustix::io::read(&*fd, &mut *chunk) {
        Ok(0) => Ok(false),
        Ok(n) => reader(chunk.get(..n).unwrap_or_default()).map(|()| true),
        Err(Errno::INTR) => Ok(true),
        Err(e) => Err(format!("its output cannot be read: {e}")),
    }
}

/// Which of the three streams can be used.
struct Ready {
    stdin: bool,
    stdout: bool,
    stderr: bool,
}

fn wait(streams: [Option<&OwnedFd>; 3], end: Instant) -> Result<Ready, String> {
    let flags = [PollFlags::OUT, PollFlags::IN, PollFlags::IN];
    let open: Vec<(usize, BorrowedFd<'_>)> =
        streams.iter().enumerate().filter_map(|(i, fd)| Some((i, (*fd)?.as_fd()))).collect();
    let mut polled: Vec<PollFd<'_>> = open
        .iter()
        .map(|(i, fd)| PollFd::from_borrowed_fd(*fd, flags.get(*i).copied().unwrap_or(PollFlags::IN)))
        .collect();
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err("git did not end in time".to_owned());
    }
    let timeout = Timespec::try_from(left).ok();
    match rustix::event::poll(&mut polled, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(e) => return Err(format!("git cannot be waited for: {e}")),
    }
    let ready =
        |wanted: usize| open.iter().zip(&polled).any(|((i, _), p)| *i == wanted && !p.revents().is_empty());
    Ok(Ready { stdin: ready(0), stdout: ready(1), stderr: ready(2) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_there_is_no_root_its_files_show_as_nobodys() {
        assert_eq!(stand_in_for_root("         0          0 4294967295\n", Some(65_534)), None);
        assert_eq!(stand_in_for_root("      1000       1000          1\n", Some(65_534)), Some(65_534));
        assert_eq!(stand_in_for_root("         0       1000          1\n", Some(65_534)), None);
        assert_eq!(stand_in_for_root("     65534       1000          1\n", Some(65_534)), None);
        assert_eq!(stand_in_for_root("", Some(65_534)), None);
        assert_eq!(stand_in_for_root("      1000       1000          1\n", None), None);
    }

    #[test]
    fn a_program_that_others_could_have_put_there_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::copy("/bin/true", folder.path().join("true")).unwrap();
        let path = format!("{}:relative:/usr/bin:/bin", folder.path().display());
        let found = find_trusted("true", &path).unwrap();
        assert!(found.starts_with("/usr"), "{}", found.display());
        assert_eq!(find_trusted("true", &folder.path().display().to_string()), None);
        assert_eq!(find_trusted("no-such-program", &path), None);
    }
}
