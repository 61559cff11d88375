//! Taking the work out: objects are made and bundled by git in a fence, and fetched, checked, into the repository.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{File, OpenOptions},
    os::unix::fs::OpenOptionsExt as _,
};

use stockade_core::{
    changes::Changes,
    git::{GitRecord, GitRef, WorkTree},
    plan::LaunchPlan,
    survey::Survey,
};
use stockade_fence::Fence;
use stockade_git::{
    GitError, is_ref_name,
    script::{self, Captured, NUMBERED},
};
use stockade_journal::{JournalError, remove_tree};
use tokio::sync::mpsc;

use super::{
    fingerprint::Fingerprint,
    record::{Taken, WorktreeRecord},
    script::{Ran, Script, ScriptError, Sink, close, run},
    stage::{Stage, Work},
};
use crate::{place, request::StopRequest};

/// The largest bundle that is brought into a repository, in bytes.
const BUNDLE_LIMIT_BYTES: u64 = 2 * 1024 * 1024 * 1024;
/// References that are made for one run.
const MOST_REFS: usize = 500;
/// Tips that a bundle need not hold, because the repository has them.
const MOST_KNOWN: usize = 20_000;

/// What came of a run in a repository.
#[derive(Debug)]
pub(crate) struct Exported {
    pub(crate) record: GitRecord,
    pub(crate) changes: Changes,
    pub(crate) notes: Vec<(&'static str, String)>,
    /// Why the work is not in the repository; `None`: all of it is.
    pub(crate) failed: Option<String>,
}

/// Why work could not be taken out.
#[derive(Debug, thiserror::Error)]
enum ExportError {
    #[error("no fence for git could be built: {0}")]
    Fence(String),
    #[error("git in the fence: {0}")]
    Script(#[from] ScriptError),
    #[error("git in the fence {0}")]
    Git(String),
    #[error("git in the repository: {0}")]
    Host(#[from] GitError),
    #[error("the bundle cannot be kept: {0}")]
    Io(#[from] std::io::Error),
    #[error("a thread broke")]
    Thread,
}

/// What was brought into the repository.
#[derive(Debug, Default)]
struct Brought {
    refs: Vec<GitRef>,
    result: String,
    bundle_bytes: u64,
    changes: Changes,
    notes: Vec<(&'static str, String)>,
    /// Whether the files hold nothing that is not in the repository, ignored files included.
    is_spent: bool,
    /// What the files of a made worktree look like.
    fingerprint: Option<Fingerprint>,
}

impl Stage {
    /// Ends the stage of a run whose agent was started: what it did goes into the repository.
    pub(crate) async fn finish(
        self,
        plan: &LaunchPlan,
        survey: &Survey,
        stops: &mut mpsc::Receiver<StopRequest>,
    ) -> Option<Exported> {
        let Some(work) = self.work.clone() else {
            // Nothing was done in it that counts.
            drop(remove_tree(&self.folder));
            return None;
        };
        let brought = self.bring(&work, plan, survey, stops).await;
        let mut record = GitRecord {
            repository: self.workspace.common.display().to_string(),
            tree: self.workspace.tree,
            worktree: Some(self.worktree(plan)),
            base: work.base.clone(),
            start: work.start.clone(),
            result: None,
            refs: Vec::new(),
            author: work.author.clone(),
            bundle_bytes: 0,
        };
        match brought {
            Ok(brought) => {
                if brought.refs.is_empty() {
                    // A commit of what was uncommitted at the start is not in the repository.
                    record.start.clone_from(&work.base);
                    record.result = Some(work.base.clone());
                } else {
                    record.result = Some(brought.result.clone());
                }
                let mut notes = brought.notes;
                notes.extend(std::thread::scope(|scope| {
                    scope.spawn(|| self.unpin());
                    self.settle(&brought.refs, brought.is_spent, brought.fingerprint, &mut record)
                }));
                record.refs = brought.refs;
                record.bundle_bytes = brought.bundle_bytes;
                Some(Exported { record, changes: brought.changes, notes, failed: None })
            }
            Err(e) => {
                self.unpin();
                Some(Exported {
                    record,
                    changes: Changes::default(),
                    notes: Vec::new(),
                    failed: Some(e.to_string()),
                })
            }
        }
    }

    fn worktree(&self, plan: &LaunchPlan) -> String {
        let path = if self.workspace.tree == WorkTree::Made { &self.tree } else { &plan.cwd };
        path.display().to_string()
    }

    /// Keeps the files of a made worktree, unless nothing is in them that is not in the repository.
    fn settle(
        &self,
        refs: &[GitRef],
        is_spent: bool,
        fingerprint: Option<Fingerprint>,
        record: &mut GitRecord,
    ) -> Option<(&'static str, String)> {
        if self.workspace.tree != WorkTree::Made {
            return gone(remove_tree(&self.folder));
        }
        if is_spent {
            record.worktree = None;
            return gone(remove_tree(&self.folder));
        }
        let fingerprint = fingerprint.unwrap_or_else(|| Fingerprint::begin(&self.tree));
        let taken = remove_tree(&self.private.path).and_then(|()| fingerprint.end()).map(|fingerprint| {
            Taken { commits: refs.iter().map(|r| r.object.clone()).collect(), fingerprint }
        });
        let kept = taken.map_err(|e| e.to_string()).and_then(|taken| {
            let record = WorktreeRecord {
                repository: self.workspace.common.display().to_string(),
                tree: self.workspace.tree,
                taken: Some(taken),
            };
            record.write(&self.folder).map_err(|e| e.to_string())
        });
        kept.err().map(|e| ("worktree-record", format!("`stockade gc` will keep the worktree: {e}")))
    }

    async fn bring(
        &self,
        work: &Work,
        plan: &LaunchPlan,
        survey: &Survey,
        stops: &mut mpsc::Receiver<StopRequest>,
    ) -> Result<Brought, ExportError> {
        let mut fence = place::build_for_git(plan, survey, self.paths(), None)
            .map_err(|refusal| ExportError::Fence(refusal.cause.message.clone()))?;
        let carried = self.carry(work, plan, &mut fence, stops).await;
        close(fence);
        let Carried { captured, wanted, bytes, fingerprint } = carried?;
        let mut brought = Brought {
            refs: wanted.into_iter().map(|w| w.made).collect(),
            bundle_bytes: bytes,
            fingerprint,
            ..Brought::default()
        };
        self.tell(work, &captured, &mut brought)?;
        brought.result = captured.result;
        Ok(brought)
    }

    /// What changed, and what has to be said about it.
    fn tell(&self, work: &Work, captured: &Captured, brought: &mut Brought) -> Result<(), ExportError> {
        brought.changes.complete = !captured.missed;
        if brought.refs.is_empty() {
            brought.is_spent = !captured.missed && !captured.ignored;
        } else {
            let (tips, known) = (tips(&brought.refs), self.known(work));
            let (changed, commits) = std::thread::scope(|scope| {
                let commits = scope.spawn(|| work.host.commits(&tips, &known));
                (work.host.changes(&work.start, &captured.result), commits.join())
            });
            let (mut changes, nested) = changed?;
            changes.commits = commits.map_err(|_| ExportError::Thread)??;
            changes.complete &= !captured.missed;
            brought.changes = changes;
            if !nested.is_empty() {
                brought.notes.push((
                    "nested-repository",
                    format!(
                        "repositories inside the worktree are named, not taken along: {}",
                        nested.iter().take(5).cloned().collect::<Vec<_>>().join(", ")
                    ),
                ));
            }
        }
        if captured.missed {
            brought.notes.push(("files-missed", "some files could not be read and were left out".to_owned()));
        }
        if captured.misnamed > 0 {
            brought.notes.push((
                "refs-misnamed",
                format!("{} references have no proper name and were left out", captured.misnamed),
            ));
        }
        Ok(())
    }

    /// Objects that the repository had before.
    fn known(&self, work: &Work) -> BTreeSet<String> {
        let tips = self.private.refs.objects.values().take(MOST_KNOWN).cloned();
        tips.chain([work.base.clone()]).collect()
    }

    /// Makes objects of what the files hold and brings them into the repository.
    async fn carry(
        &self,
        work: &Work,
        plan: &LaunchPlan,
        fence: &mut Fence,
        stops: &mut mpsc::Receiver<StopRequest>,
    ) -> Result<Carried, ExportError> {
        let env = self.environment(plan, work);
        let capture = Script {
            text: script::CAPTURE,
            arguments: vec![
                work.program.display().to_string(),
                work.start.clone(),
                work.base.clone(),
                self.private.config.clone(),
            ],
            env: &env,
            cwd: &plan.cwd,
            input: Vec::new(),
        };
        let ran = run(fence, plan, capture, Sink::Report(Vec::new()), stops).await?;
        let captured = script::captured(&ran.report).filter(|_| ran.code == Some(0));
        let captured = captured.ok_or_else(|| failed(&ran))?;
        let mut wanted = self.wanted(work, &captured);
        // From now on nobody changes the files, and with something to bring they stay.
        let stays = self.workspace.tree == WorkTree::Made && !wanted.is_empty();
        let fingerprint = stays.then(|| Fingerprint::begin(&self.tree));
        let objects = wanted.iter().map(|w| w.made.object.clone()).collect();
        let present = work.host.present(&objects)?;
        let missing = wanted.iter_mut().filter(|w| !present.contains(&w.made.object));
        for (number, w) in missing.enumerate() {
            w.numbered = Some(format!("{NUMBERED}/{number}"));
        }
        let mut bytes = 0;
        if wanted.iter().any(|w| w.numbered.is_some()) {
            let first = self.bundle(work, plan, &wanted, &self.known(work), fence, stops).await;
            bytes = match first {
                Err(ExportError::Git(_) | ExportError::Host(_)) => {
                    // A tip that was there at the start may be gone on either side. The base is not: it is pinned.
                    let base = [work.base.clone()].into();
                    self.bundle(work, plan, &wanted, &base, fence, stops).await?
                }
                other => other?,
            };
        }
        let there: Vec<GitRef> =
            wanted.iter().filter(|w| w.numbered.is_none()).map(|w| w.made.clone()).collect();
        if !there.is_empty() {
            work.host.make_refs(&there)?;
        }
        Ok(Carried { captured, wanted, bytes, fingerprint })
    }

    /// Bundles what the repository lacks and fetches it there; gives the size of the bundle.
    async fn bundle(
        &self,
        work: &Work,
        plan: &LaunchPlan,
        wanted: &[Wanted],
        known: &BTreeSet<String>,
        fence: &mut Fence,
        stops: &mut mpsc::Receiver<StopRequest>,
    ) -> Result<u64, ExportError> {
        let (mut file, reader) = self.bundle_file()?;
        let (updates, input) = order(wanted, known);
        let env = self.environment(plan, work);
        let script = Script {
            text: script::BUNDLE,
            arguments: vec![work.program.display().to_string(), updates],
            env: &env,
            cwd: &plan.cwd,
            input,
        };
        let ran = run(fence, plan, script, Sink::File(&mut file, BUNDLE_LIMIT_BYTES), stops).await?;
        if ran.code != Some(0) {
            return Err(failed(&ran));
        }
        let specs: Vec<(String, String)> =
            wanted.iter().filter_map(|w| Some((w.numbered.clone()?, w.made.name.clone()))).collect();
        work.host.fetch(reader, &specs)?;
        Ok(ran.bytes)
    }

    /// A file for the bundle that has no name: once for writing, once for reading.
    fn bundle_file(&self) -> Result<(File, File), ExportError> {
        let path = self.folder.join("bundle");
        // Only a try before this one leaves one.
        drop(std::fs::remove_file(&path));
        let writer = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        let reader = File::open(&path)?;
        std::fs::remove_file(&path)?;
        Ok((writer, reader))
    }

    /// The references to make: branches, tags and a stash that are new or moved, and what they do not hold.
    fn wanted(&self, work: &Work, captured: &Captured) -> Vec<Wanted> {
        let before = &self.private.refs.objects;
        let mut found: BTreeMap<String, String> = captured
            .refs
            .iter()
            .filter(|(name, object)| before.get(*name) != Some(object))
            .map(|(name, object)| (name.clone(), object.clone()))
            .collect();
        let on_branch = |object: &String| captured.refs.values().any(|o| o == object);
        if let Some(head) = captured.head.as_ref().filter(|h| **h != work.base && !on_branch(h)) {
            found.insert("head".to_owned(), head.clone());
        }
        if captured.result != work.start && captured.head.as_ref() != Some(&captured.result) {
            found.insert("worktree".to_owned(), captured.result.clone());
        }
        if !found.is_empty() && work.start != work.base {
            found.insert("start".to_owned(), work.start.clone());
        }
        let wanted = found.into_iter().map(|(inside, object)| {
            let name = work.refs.target(&inside);
            Wanted { made: GitRef { name, inside, object }, numbered: None }
        });
        wanted.filter(|w| is_ref_name(&w.made.name)).take(MOST_REFS).collect()
    }
}

/// What came out of the fence.
#[derive(Debug)]
struct Carried {
    captured: Captured,
    wanted: Vec<Wanted>,
    /// Bytes of the bundle.
    bytes: u64,
    fingerprint: Option<Fingerprint>,
}

/// A reference to make.
#[derive(Debug)]
struct Wanted {
    made: GitRef,
    /// Its name in the bundle; `None`: the repository has the object.
    numbered: Option<String>,
}

/// The references to make inside, and the input of the bundle's script: what the bundle holds and what it does not.
fn order(wanted: &[Wanted], known: &BTreeSet<String>) -> (String, Vec<u8>) {
    let numbered: Vec<(&str, &str)> =
        wanted.iter().filter_map(|w| Some((w.numbered.as_deref()?, w.made.object.as_str()))).collect();
    let (mut updates, mut text) = (String::new(), String::new());
    for (name, object) in &numbered {
        updates.push_str(&format!("update {name} {object}\n"));
    }
    for (name, _) in &numbered {
        text.push_str(&format!("{name}\n"));
    }
    for object in known {
        text.push_str(&format!("^{object}\n"));
    }
    (updates, text.into_bytes())
}

/// Commits of the agent's: not those that were made for it, and no stash.
fn tips(refs: &[GitRef]) -> BTreeSet<String> {
    refs.iter()
        .filter(|r| {
            r.inside == "head" || r.inside.starts_with("refs/heads/") || r.inside.starts_with("refs/tags/")
        })
        .map(|r| r.object.clone())
        .collect()
}

fn failed(ran: &Ran) -> ExportError {
    let code = ran.code.map_or("was killed".to_owned(), |c| format!("ended with {c}"));
    ExportError::Git(format!("{code}: {}", ran.said))
}

fn gone(removed: Result<(), JournalError>) -> Option<(&'static str, String)> {
    removed
        .err()
        .map(|e| ("worktree-left", format!("the run's git folder was not removed: {e}; `stockade gc` will")))
}
