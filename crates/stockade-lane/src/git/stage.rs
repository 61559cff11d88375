//! What is made for a run in a repository before the agent starts.

use std::{
    fs::DirBuilder,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use stockade_core::{
    git::{GitAuthor, GitWorkspace, WorkTree},
    plan::LaunchPlan,
    status::{Boundary, Cause, Refusal, Status},
    survey::Survey,
};
use stockade_fence::Fence;
use stockade_git::{
    Content, Host, OwnRefs, PrivateFolder,
    script::{self, Prepared},
};
use stockade_journal::{State, remove_tree};
use tokio::sync::mpsc;

use super::{
    filling::{self, Filling},
    record::WorktreeRecord,
    refusal,
    script::{Script, Sink, close, run},
};
use crate::{place::GitPaths, repository::Served, request::StopRequest, storage};

/// A git folder of the run's own and, where one was asked for, a worktree.
#[derive(Debug)]
pub(crate) struct Stage {
    /// Everything of the run below `worktrees/`.
    pub(super) folder: PathBuf,
    /// The made worktree; nothing is there where none is made.
    pub(super) tree: PathBuf,
    pub(super) objects: PathBuf,
    pub(super) private: PrivateFolder,
    pub(super) workspace: GitWorkspace,
    pub(super) work: Option<Work>,
}

/// What is needed to take work out.
#[derive(Clone, Debug)]
pub(super) struct Work {
    pub(super) host: Host,
    pub(super) refs: OwnRefs,
    pub(super) program: PathBuf,
    pub(super) author: GitAuthor,
    pub(super) base: String,
    /// The commit that changes are measured from.
    pub(super) start: String,
}

impl Stage {
    /// Makes what the plan says. On failure nothing is left.
    pub(crate) async fn make(
        state: &State,
        served: &Served,
        plan: &LaunchPlan,
        survey: &Survey,
        stops: &mut mpsc::Receiver<StopRequest>,
        notes: &mut Vec<String>,
    ) -> Result<Option<Self>, Refusal> {
        let Some(workspace) = &plan.git else { return Ok(None) };
        let folder = state.create_worktree(&plan.session).map_err(|e| storage::refusal(&e))?;
        let mut stage = match Self::begin(&folder, served, workspace) {
            Ok(stage) => stage,
            Err(refusal) => {
                // The failure that came first is the one to tell; `gc` finds what is left.
                drop(remove_tree(&folder));
                return Err(refusal);
            }
        };
        match stage.prepare(served, plan, survey, stops, notes).await {
            Ok(()) => Ok(Some(stage)),
            Err(refusal) => {
                stage.abandon();
                Err(refusal)
            }
        }
    }

    /// Makes the private git folder, and an empty worktree where one is made. Nothing in the repository is touched.
    pub(crate) fn begin(folder: &Path, served: &Served, workspace: &GitWorkspace) -> Result<Self, Refusal> {
        let tree = folder.join("tree");
        let repository = &served.repository;
        let record = WorktreeRecord {
            repository: workspace.common.display().to_string(),
            tree: workspace.tree,
            taken: None,
        };
        record.write(folder).map_err(|e| not_made(folder, &e))?;
        let content = Content { repository, workspace };
        let private = PrivateFolder::make(&folder.join("git"), content).map_err(|e| refusal(&e))?;
        if workspace.tree == WorkTree::Made {
            make_tree(&tree)?;
        }
        Ok(Self {
            folder: folder.to_owned(),
            tree,
            objects: repository.objects(),
            private,
            workspace: workspace.clone(),
            work: None,
        })
    }

    /// Pins the base and fills the worktree, by git in a fence.
    async fn prepare(
        &mut self,
        served: &Served,
        plan: &LaunchPlan,
        survey: &Survey,
        stops: &mut mpsc::Receiver<StopRequest>,
        notes: &mut Vec<String>,
    ) -> Result<(), Refusal> {
        let (Some(program), Some(base), Some(author)) =
            (&served.program, &self.workspace.base, &self.workspace.author)
        else {
            return Ok(());
        };
        let work = Work {
            host: Host::new(program, &self.workspace.common, served.repository.owner),
            refs: OwnRefs::of(&plan.session),
            program: program.clone(),
            author: author.clone(),
            base: base.clone(),
            start: base.clone(),
        };
        let made = self.workspace.tree == WorkTree::Made;
        let filling = self.filling(served, &work)?;
        work.host.pin(&work.refs, base).map_err(|e| refusal(&e))?;
        // From now on there is something to let go.
        let work = self.work.insert(work).clone();
        let prepared = match filling {
            Some(filling) => self.filled(filling, plan, survey, &work, stops).await?,
            None => self.prepared(script::preparation(&self.workspace), plan, survey, &work, stops).await?,
        };
        self.work = Some(Work { start: prepared.start, ..work });
        match prepared.dirty {
            Some(0) | None => {}
            Some(n) => notes.push(format!(
                "{n} uncommitted changes in `{}` were left out; `--include-dirty` carries them in",
                plan.cwd.display()
            )),
        }
        if made && !self.workspace.include_dirty && prepared.dirty.is_none() {
            notes.push("whether uncommitted changes were left out could not be told".to_owned());
        }
        Ok(())
    }

    /// Begins to fill a made worktree with the base alone.
    fn filling(&self, served: &Served, work: &Work) -> Result<Option<Filling>, Refusal> {
        if self.workspace.tree != WorkTree::Made || self.workspace.include_dirty {
            return Ok(None);
        }
        let order = filling::Order {
            host: work.host.clone(),
            repository: served.repository.clone(),
            commit: work.base.clone(),
            tree: self.tree.clone(),
            index: self.private.index(),
        };
        Filling::start(order).map(Some).map_err(|e| not_made(&self.tree, &e))
    }

    /// Waits until the worktree is filled, by git in a fence where nobody else can.
    async fn filled(
        &self,
        mut filling: Filling,
        plan: &LaunchPlan,
        survey: &Survey,
        work: &Work,
        stops: &mut mpsc::Receiver<StopRequest>,
    ) -> Result<Prepared, Refusal> {
        let fill = script::preparation(&self.workspace);
        let mut fence = self.fence(plan, survey)?;
        let task = if filling.is_under_way().await { script::COUNT } else { fill };
        let prepared = self.prepared_in(&mut fence, task, plan, work, stops).await;
        close(fence);
        let prepared = prepared?;
        if task == fill {
            return Ok(prepared);
        }
        if filling.end(stops).await.map_err(|e| e.refusal())? {
            self.private.forget_callers_index().map_err(|e| refusal(&e))?;
            return Ok(prepared);
        }
        // Git begins anew, and says what is wrong.
        remove_tree(&self.tree).map_err(|e| storage::refusal(&e))?;
        make_tree(&self.tree)?;
        self.prepared(fill, plan, survey, work, stops).await
    }

    fn fence(&self, plan: &LaunchPlan, survey: &Survey) -> Result<Fence, Refusal> {
        let callers = (self.workspace.tree == WorkTree::Made).then_some(Path::new(script::CALLER));
        crate::place::build_for_git(plan, survey, self.paths(), callers)
    }

    /// Runs the first script in a fence of its own.
    async fn prepared(
        &self,
        task: &'static str,
        plan: &LaunchPlan,
        survey: &Survey,
        work: &Work,
        stops: &mut mpsc::Receiver<StopRequest>,
    ) -> Result<Prepared, Refusal> {
        let mut fence = self.fence(plan, survey)?;
        let prepared = self.prepared_in(&mut fence, task, plan, work, stops).await;
        close(fence);
        prepared
    }

    async fn prepared_in(
        &self,
        fence: &mut Fence,
        task: &'static str,
        plan: &LaunchPlan,
        work: &Work,
        stops: &mut mpsc::Receiver<StopRequest>,
    ) -> Result<Prepared, Refusal> {
        let env = self.environment(plan, work);
        let script = Script {
            text: script::PREPARE,
            arguments: vec![work.program.display().to_string(), work.base.clone(), task.to_owned()],
            env: &env,
            cwd: &plan.cwd,
            input: Vec::new(),
        };
        let ran = run(fence, plan, script, Sink::Report(Vec::new()), stops).await.map_err(|e| e.refusal())?;
        let prepared = if ran.code == Some(0) { script::prepared(&ran.report) } else { None };
        prepared.ok_or_else(|| unprepared(plan, ran.code, &ran.said))
    }

    pub(super) fn environment(&self, plan: &LaunchPlan, work: &Work) -> Vec<(String, String)> {
        script::environment(&self.workspace, &self.private, &plan.cwd, &work.author)
    }

    /// What a fence shows of it.
    pub(crate) fn paths(&self) -> GitPaths<'_> {
        GitPaths { tree: &self.tree, folder: &self.private.path, objects: &self.objects }
    }

    /// Takes everything away again: no agent was there.
    pub(crate) fn abandon(self) {
        self.unpin();
        drop(remove_tree(&self.folder));
    }

    /// Lets the base go.
    pub(super) fn unpin(&self) {
        if let Some(work) = &self.work {
            // One that stays keeps a commit from being pruned, and `gc` finds it.
            drop(work.host.unpin(&work.refs));
        }
    }
}

/// An empty worktree: the mount point of the private git folder has to be there.
fn make_tree(tree: &Path) -> Result<(), Refusal> {
    for path in [tree.to_owned(), tree.join(".git")] {
        DirBuilder::new().mode(0o755).create(&path).map_err(|e| not_made(&path, &e))?;
    }
    Ok(())
}

fn not_made(path: &Path, e: &std::io::Error) -> Refusal {
    Refusal::new(
        Status::StorageFailed,
        Cause::new(
            "worktree-not-made",
            Boundary::Storage,
            "mkdir(worktree)",
            format!("`{}` cannot be made: {}", path.display(), crate::admit::reason(e)),
        )
        .with_errno(e.raw_os_error().unwrap_or(0))
        .with_remedy("make room in the state directory, or name another with `XDG_STATE_HOME`"),
    )
}

fn unprepared(plan: &LaunchPlan, code: Option<i32>, said: &str) -> Refusal {
    let cause = |code: &str, message: String| Cause::new(code, Boundary::Workspace, "git(prepare)", message);
    let cause = match code {
        Some(script::UNMERGED) => cause(
            "dirty-unmerged",
            format!("`{}` has conflicts of a merge that are not resolved", plan.cwd.display()),
        )
        .with_remedy("resolve them, or leave out `--include-dirty` and `--worktree named`"),
        Some(script::FILTERED) => cause(
            "git-filters",
            "the repository converts files by a filter such as Git LFS, which does not run in the fence".to_owned(),
        )
        .with_remedy("say `--in-place`, or work in a clone without the filter"),
        _ => cause("git-prepare", "git could not prepare the worktree in the fence".to_owned())
            .with_evidence(said)
            .with_remedy(
                "check the repository with `git fsck` and the room in the state directory; or say `--in-place`",
            ),
    };
    Refusal::new(Status::WorkspaceRefused, cause)
}
