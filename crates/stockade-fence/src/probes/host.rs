//! The host side: what the probes reach for, made and watched outside the fence.

use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use stockade_core::mode::AccessMode;
use stockade_core::survey::Rung;

use crate::error::{FenceError, FenceErrorKind, Step};

use super::fixture::{FixtureFacts, PATIENCE_OUTSIDE_MS};

mod belongings;
mod careless;
mod damage;
mod services;
mod snapshot;
mod survivors;
mod tree;
mod victim;

pub use belongings::give_back;
pub use damage::Damage;

use belongings::Belongings;
use services::Services;
use snapshot::Snapshot;
use survivors::Survivors;
use victim::Victim;

/// What is needed to make a host side.
#[derive(Clone, Debug)]
pub struct HostRequest {
    /// A folder that does not exist yet and is made, used and removed. Its parents must be searchable.
    pub folder: PathBuf,
    /// The git program.
    pub git: PathBuf,
    /// A program that sleeps for the seconds it is given (sleep of the core utilities): the victim.
    pub sleep: PathBuf,
    /// What the workspace is like.
    pub workspace: WorkspaceIs,
}

/// What a workspace is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkspaceIs {
    /// A linked worktree, as a lane takes it.
    Clean,
    /// A folder beside the repository that belongs to none, for a rung that takes no other.
    Plain,
    /// A linked worktree with a listener inside, which no lane takes: for the control run, so that the probe that looks for one is known
    /// to find it.
    WithListener,
}

impl WorkspaceIs {
    /// What a lane on this rung takes: a worktree, wherever git can work on one.
    pub const fn taken_by(rung: Rung, mode: AccessMode) -> Self {
        match (rung, mode) {
            (Rung::Bs, AccessMode::IsolatedWrite) => Self::Plain,
            _ => Self::Clean,
        }
    }
}

/// A home with credentials, a repository with two linked worktrees, a plain folder, services, a victim and everything else that the
/// probes reach for. Belongs to the calling user. Gone, with all it made, when it is dropped.
#[derive(Debug)]
pub struct Host {
    facts: FixtureFacts,
    baseline: Snapshot,
    victim: Victim,
    services: Services,
    survivors: Survivors,
    // Last: the folder goes when nothing uses it any more.
    belongings: Belongings,
}

impl Host {
    /// Makes it.
    pub fn start(request: &HostRequest) -> Result<Self, FenceError> {
        let root = request.folder.clone();
        // From here on whatever was made goes, also if a later step fails.
        let mut belongings = Belongings::new(&root)?;
        let token = belongings.token().to_owned();
        tree::make_home(&root)?;
        tree::make_repository(&root, &request.git)?;
        let shared_memory_key = belongings.share()?;
        let workspace = root.join(match request.workspace {
            WorkspaceIs::Clean | WorkspaceIs::WithListener => "wt/lane",
            WorkspaceIs::Plain => "plain",
        });
        let listener = match request.workspace {
            WorkspaceIs::Clean | WorkspaceIs::Plain => None,
            WorkspaceIs::WithListener => Some(workspace.join("host.sock")),
        };
        let services = Services::start(&root, listener, &token)?;
        let victim = Victim::start(&request.sleep, &root)?;
        let facts = FixtureFacts {
            workspace,
            temp: PathBuf::from("/tmp"),
            token,
            victim: victim.pid(),
            init: 1,
            port: services.port(),
            shared_memory_key,
            patience_ms: PATIENCE_OUTSIDE_MS,
            root,
        };
        let survivors = Survivors::called(facts.daemon_name());
        let baseline = Snapshot::default();
        let mut host = Self { facts, baseline, victim, services, survivors, belongings };
        careless::write_input(&host.facts_outside())?;
        host.baseline = Snapshot::take(&host.facts, AccessMode::ReadOnly)?;
        Ok(host)
    }

    /// The facts for the control run outside, and of the host.
    pub fn facts(&self) -> &FixtureFacts {
        &self.facts
    }

    /// The facts for the control run outside: PID 1 belongs to the machine there, so the victim stands in for it.
    pub fn facts_outside(&self) -> FixtureFacts {
        FixtureFacts { init: self.facts.victim, ..self.facts.clone() }
    }

    /// The facts for probes that are taken in a fence.
    pub fn facts_inside(&self) -> FixtureFacts {
        self.facts.clone().inside()
    }

    /// Makes a program start as a careless caller leaves it: secrets in the environment and in the session keyring,
    /// descriptors of a secret, a log and / open, a file with [`Host::facts_outside`] as standard input.
    ///
    /// Both a fence and the control run are started from such a program.
    pub fn make_careless(&self, command: &mut Command) -> Result<(), FenceError> {
        careless::apply(&self.facts, command)
    }

    /// Looks from outside at what changed since the start, in a fence of this mode.
    pub fn check(&self, mode: AccessMode) -> Result<Vec<Damage>, FenceError> {
        let mut damage = self.baseline.compare(&Snapshot::take(&self.facts, mode)?, &self.facts, mode);
        damage.extend(self.victim.check());
        damage.extend(self.services.contacts().into_iter().map(Damage::Contacted));
        damage.extend(self.survivors.found());
        damage.extend(self.belongings.leaked());
        Ok(damage)
    }
}

/// A program with nothing but what is said here.
fn program(path: &std::path::Path) -> Command {
    #[expect(
        clippy::disallowed_methods,
        reason = "the host side of the probes has to be outside the fence; its two programs are named by the caller"
    )]
    let mut command = Command::new(path);
    command.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

/// Runs a program to its end. What it says on standard error is in the failure.
fn finish(command: &mut Command, step: &'static str) -> Result<(), FenceError> {
    let output = command.output().step(step)?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(FenceError::bare(FenceErrorKind::Source, format!("{step}: {}", text.trim())))
}

/// Ends a child and reaps it.
fn end(child: &mut Child) -> io::Result<()> {
    child.kill()?;
    child.wait().map(drop)
}
