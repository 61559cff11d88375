//! What is done in the caller's repository, by git outside the fence: references below `refs/stockade/`, the fetch of a
//! bundle, and questions about objects.

mod changes;

use std::{
    collections::BTreeSet,
    fs::File,
    path::{Path, PathBuf},
    time::Duration,
};

use stockade_core::{changes::Changes, git::GitRef};

use crate::{
    batch::{BatchReader, Objects},
    error::GitError,
    program::{Input, Output, Program},
    refs::is_object,
};

/// How long one call may take; a fetch of a large bundle is the longest.
const CALL_LIMIT: Duration = Duration::from_secs(300);
/// Answers that are kept whole.
const ANSWER_LIMIT_BYTES: usize = 16 * 1024 * 1024;
/// A list of half a million files.
const LIST_LIMIT_BYTES: usize = 64 * 1024 * 1024;
/// Commits that are listed.
const MOST_COMMITS: &str = "1000";

/// Git in one repository of the caller's.
#[derive(Clone, Debug)]
pub struct Host {
    git: PathBuf,
    common: PathBuf,
    owner: Option<(u32, u32)>,
}

/// The names of a run's references.
#[derive(Clone, Debug)]
pub struct OwnRefs {
    prefix: String,
}

impl OwnRefs {
    /// Those of a run.
    pub fn of(run: &str) -> Self {
        Self { prefix: format!("refs/stockade/{run}/") }
    }

    /// The reference that keeps the base while the run lives.
    pub fn base(&self) -> String {
        format!("{}base", self.prefix)
    }

    /// Where a reference of the inside goes: `refs/heads/x` to `…/heads/x`, other words as they are.
    pub fn target(&self, inside: &str) -> String {
        format!("{}{}", self.prefix, inside.strip_prefix("refs/").unwrap_or(inside))
    }
}

impl Host {
    /// Git in a repository that somebody names: it has to belong to the caller, unless that is root.
    pub fn open(git: &Path, common: &Path) -> Result<Self, GitError> {
        let stat = rustix::fs::stat(common).map_err(|e| GitError::kernel("stat", common, e))?;
        let own = rustix::process::geteuid();
        if !own.is_root() && stat.st_uid != own.as_raw() {
            return Err(GitError::new("check", common, format!("it belongs to user {}", stat.st_uid)));
        }
        Ok(Self::new(git, common, (stat.st_uid, stat.st_gid)))
    }

    /// Git in a repository whose common folder belongs to `owner`. Root becomes that user: what root wrote there the
    /// owner could not change.
    pub fn new(git: &Path, common: &Path, owner: (u32, u32)) -> Self {
        let own = rustix::process::geteuid();
        let switch = own.is_root() && owner.0 != own.as_raw();
        Self { git: git.to_owned(), common: common.to_owned(), owner: switch.then_some(owner) }
    }

    fn run(
        &self,
        step: &'static str,
        arguments: &[&str],
        input: Input<'_>,
        output: Output<'_>,
    ) -> Result<(), GitError> {
        let program = Program { git: &self.git, common: &self.common, owner: self.owner, limit: CALL_LIMIT };
        program.run(step, arguments, input, output)
    }

    fn answer(&self, step: &'static str, arguments: &[&str], input: &[u8]) -> Result<Vec<u8>, GitError> {
        self.answer_within(ANSWER_LIMIT_BYTES, step, arguments, input)
    }

    fn answer_within(
        &self,
        limit: usize,
        step: &'static str,
        arguments: &[&str],
        input: &[u8],
    ) -> Result<Vec<u8>, GitError> {
        let mut bytes = Vec::new();
        let mut keep = |part: &[u8]| {
            bytes.extend_from_slice(part);
            if bytes.len() > limit { Err(format!("it said more than {limit} bytes")) } else { Ok(()) }
        };
        self.run(step, arguments, Input::Bytes(input), Output::Reader(&mut keep))?;
        Ok(bytes)
    }

    /// The common folder.
    pub(crate) fn common(&self) -> &Path {
        &self.common
    }

    /// Everything a commit holds, folders included, as `git ls-tree -z` tells it.
    pub(crate) fn list(&self, commit: &str) -> Result<Vec<u8>, GitError> {
        let arguments = ["ls-tree", "-r", "-t", "-z", "--full-tree", commit];
        self.answer_within(LIST_LIMIT_BYTES, "ls-tree", &arguments, &[])
    }

    /// Contents of objects one after the other, with git's words in between.
    pub(crate) fn contents(&self, objects: &[&str]) -> Result<Vec<u8>, GitError> {
        self.answer("cat-file", &["cat-file", "--batch"], objects.join("\n").as_bytes())
    }

    /// Reads objects into whoever takes them.
    pub(crate) fn read<'o, O: Objects>(
        &self,
        objects: impl Iterator<Item = &'o str>,
        taker: O,
    ) -> Result<O, GitError> {
        let asked: String = objects.flat_map(|object| [object, "\n"]).collect();
        let mut reader = BatchReader::new(taker);
        let mut read = |part: &[u8]| reader.read(part);
        let arguments = ["cat-file", "--batch", "--buffer"];
        self.run("cat-file", &arguments, Input::Bytes(asked.as_bytes()), Output::Reader(&mut read))?;
        Ok(reader.into_objects())
    }

    fn update(&self, commands: &str) -> Result<(), GitError> {
        self.answer("update-ref", &["update-ref", "--stdin"], commands.as_bytes()).map(drop)
    }

    /// Keeps a commit from being pruned.
    pub fn pin(&self, refs: &OwnRefs, base: &str) -> Result<(), GitError> {
        self.update(&format!("create {} {base}\n", refs.base()))
    }

    /// Lets it go again; it may be gone already.
    pub fn unpin(&self, refs: &OwnRefs) -> Result<(), GitError> {
        self.update(&format!("delete {}\n", refs.base()))
    }

    /// Makes references to objects that are there.
    pub fn make_refs(&self, refs: &[GitRef]) -> Result<(), GitError> {
        let commands: Vec<String> =
            refs.iter().map(|r| format!("create {} {}\n", r.name, r.object)).collect();
        self.update(&commands.concat())
    }

    /// Which of these objects the repository has.
    pub fn present(&self, objects: &BTreeSet<String>) -> Result<BTreeSet<String>, GitError> {
        if objects.is_empty() {
            return Ok(BTreeSet::new());
        }
        let asked = lines(objects);
        let format = "--batch-check=%(objectname) %(objecttype)";
        let answer = self.answer("cat-file", &["cat-file", format], asked.as_bytes())?;
        Ok(String::from_utf8_lossy(&answer)
            .lines()
            .filter_map(|line| line.split_once(' '))
            .filter(|(_, kind)| *kind != "missing")
            .map(|(object, _)| object.to_owned())
            .collect())
    }

    /// Fetches references from a bundle file, every object checked. Nothing else is written but these references.
    pub fn fetch(&self, bundle: File, wanted: &[(String, String)]) -> Result<(), GitError> {
        if let Some((uid, gid)) = self.owner {
            // Git opens the descriptor by its name, as the owner of the repository.
            std::os::unix::fs::fchown(&bundle, Some(uid), Some(gid))
                .map_err(|e| GitError::io("fchown(bundle)", &self.common, &e))?;
        }
        let specs: Vec<String> = wanted.iter().map(|(from, to)| format!("{from}:{to}")).collect();
        let mut arguments = vec![
            "-c",
            "transfer.fsckObjects=true",
            "-c",
            "fetch.fsckObjects=true",
            "fetch",
            "--quiet",
            "--atomic",
            "--no-tags",
            "--no-write-fetch-head",
            "--no-auto-maintenance",
            "--no-recurse-submodules",
            "--no-show-forced-updates",
            "/proc/self/fd/0",
        ];
        arguments.extend(specs.iter().map(String::as_str));
        let mut nothing = |_: &[u8]| Ok(());
        self.run("fetch", &arguments, Input::File(bundle), Output::Reader(&mut nothing))
    }

    /// Commits that can be reached from `tips` and not from `known`, newest first.
    pub fn commits(
        &self,
        tips: &BTreeSet<String>,
        known: &BTreeSet<String>,
    ) -> Result<Vec<String>, GitError> {
        if tips.is_empty() {
            return Ok(Vec::new());
        }
        let mut asked = lines(tips);
        for object in known {
            asked.push_str(&format!("^{object}\n"));
        }
        let most = format!("--max-count={MOST_COMMITS}");
        let arguments = ["rev-list", "--ignore-missing", &most, "--stdin"];
        let answer = self.answer("rev-list", &arguments, asked.as_bytes())?;
        Ok(String::from_utf8_lossy(&answer).lines().filter(|l| is_object(l)).map(str::to_owned).collect())
    }

    /// What changed between two commits, and the paths at which the later one names another repository's commit.
    pub fn changes(&self, from: &str, to: &str) -> Result<(Changes, Vec<String>), GitError> {
        changes::between(self, from, to)
    }

    /// Writes the difference between two commits to standard output, as `git diff` does, by no program of anybody's.
    pub fn print_diff(&self, from: &str, to: &str) -> Result<(), GitError> {
        let arguments = ["diff", "--no-ext-diff", "--no-textconv", "--no-color", from, to, "--"];
        self.run("diff", &arguments, Input::Bytes(&[]), Output::Inherited)
    }

    /// Whether every one of these commits can be reached from a branch, a tag or a remote's branch.
    pub fn are_merged(&self, commits: &BTreeSet<String>) -> Result<bool, GitError> {
        if commits.is_empty() {
            return Ok(true);
        }
        let arguments =
            ["rev-list", "--max-count=1", "--stdin", "--not", "--branches", "--tags", "--remotes"];
        let answer = self.answer("rev-list", &arguments, lines(commits).as_bytes())?;
        Ok(answer.is_empty())
    }
}

fn lines(objects: &BTreeSet<String>) -> String {
    objects.iter().flat_map(|object| [object.as_str(), "\n"]).collect()
}
