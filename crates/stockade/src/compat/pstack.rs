//! `pstack-runner`: the command line, receipts and exit codes of Open Pstack's runner, so that its users can put Stockade
//! in its place.
//!
//! The lane is Stockade's: its fence, its pins, its judge. Nothing is created by an order that is wrong; an accepted one
//! gets its receipt whatever happens, written onto the reserved file, because readers of the tool remember which file it was.

mod args;
mod contract;
mod executable;
mod progress;
mod receipt;
mod spend;
mod start_time;
mod status;

use std::{
    ffi::{OsStr, OsString},
    io::Read as _,
    path::Path,
    time::Instant,
};

use stockade_core::{
    mode::AccessMode,
    order::{PROMPT_LIMIT_BYTES, PreflightChoice},
    status::{Refusal, exit_code},
};
use stockade_journal::{Reservation, ReservationRequest};
use stockade_lane::{LaneOutcome, LaneRequest, PromptSource, StopRequest, WorktreeChoice, wall_time};
use tokio::sync::mpsc;

use self::{
    args::{Contract, NoOrder, Order},
    progress::Progress,
    receipt::{Ended, Times, Told},
};
use crate::{
    cli::{FenceArgs, ModeArg},
    config::{Config, Executables},
    error::CliError,
    order::{self, Basics},
    render, signals,
    world::World,
};

/// The name under which this program is that tool.
const NAME: &str = "pstack-runner";

/// The arguments, where this program was called as the tool: by its name, or by `--compat pstack` in front.
pub(crate) fn asked(mut arguments: impl Iterator<Item = OsString>) -> Option<Vec<OsString>> {
    let name = arguments.next()?;
    let rest: Vec<OsString> = arguments.collect();
    if Path::new(&name).file_name() == Some(OsStr::new(NAME)) {
        return Some(rest);
    }
    match rest.as_slice() {
        [flag, value, rest @ ..] if flag == "--compat" && value == "pstack" => Some(rest.to_vec()),
        [flag, rest @ ..] if flag == "--compat=pstack" => Some(rest.to_vec()),
        _ => None,
    }
}

/// Does what the tool does; gives its exit code.
pub(crate) fn run(arguments: &[OsString], world: &World) -> u8 {
    let clock = Clock { started: Instant::now(), started_at: wall_time() };
    if arguments.first().is_some_and(|a| a == "status") {
        return status::run(arguments.get(1..).unwrap_or_default());
    }
    match args::read(arguments) {
        Ok(order) => {
            match Listening::start().and_then(|listening| Lane::begin(order, world, clock, listening)) {
                Ok(lane) => lane.run(world),
                Err(mistake) => usage(&mistake.shown.message),
            }
        }
        Err(NoOrder::Help(text)) => {
            // A closed pipe is no reason to fail a help text.
            drop(render::out(&text));
            exit_code::OK
        }
        Err(NoOrder::Mistake(text)) => usage(&text),
    }
}

/// A mistake creates nothing: the message and the whole help.
fn usage(message: &str) -> u8 {
    render::say(&format!("error: {message}\n\n{}", args::help()));
    exit_code::USAGE
}

struct Clock {
    started: Instant,
    started_at: String,
}

impl Clock {
    fn times(&self) -> Times {
        Times {
            started_at: self.started_at.clone(),
            completed_at: wall_time(),
            elapsed_ms: u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
        }
    }
}

/// Listens for signals from before anything is reserved: one that comes early cancels the lane as any other does.
struct Listening {
    runtime: tokio::runtime::Runtime,
    stops: mpsc::Receiver<StopRequest>,
}

impl Listening {
    fn start() -> Result<Self, CliError> {
        let broken = |e: std::io::Error| {
            CliError::usage("runtime", format!("the runtime cannot be started: {e}"), "try again")
        };
        let runtime = signals::runtime().map_err(broken)?;
        let stops = {
            let _inside = runtime.enter();
            signals::stop_requests().map_err(broken)?
        };
        Ok(Self { runtime, stops })
    }
}

/// An accepted order with its reserved files.
struct Lane {
    listening: Listening,
    order: Order,
    config: Config,
    clock: Clock,
    output: Reservation,
    receipt: Reservation,
    progress: Progress,
}

impl Lane {
    fn begin(order: Order, world: &World, clock: Clock, listening: Listening) -> Result<Self, CliError> {
        let config = Config::read(world)?;
        let mut requests = vec![
            ReservationRequest { path: &order.output, initial: b"" },
            ReservationRequest { path: &order.receipt, initial: b"" },
        ];
        requests.extend(order.progress.as_deref().map(|path| ReservationRequest { path, initial: b"" }));
        // What the agent can write must not hold what is said of it.
        let writable =
            if order.mode == AccessMode::IsolatedWrite { vec![order.cwd.clone()] } else { Vec::new() };
        let runs = world.state_root()?.join("runs");
        let mut taken = Reservation::make_all(&requests, &writable)?.into_iter();
        let (Some(output), Some(receipt)) = (taken.next(), taken.next()) else {
            return Err(CliError::usage("reserve", "the files were not reserved", "try again"));
        };
        let id = receipt.device_and_inode();
        let progress = Progress::new(&order.provider, &clock.started_at, taken.next(), id, runs);
        Ok(Self { listening, order, config, clock, output, receipt, progress })
    }

    fn run(mut self, world: &World) -> u8 {
        self.progress.phase("setup");
        if let Some((ended, message)) = self.refused(world) {
            let receipt = receipt::without_lane(&self.order, self.clock.times(), ended, message);
            return self.deliver(Told { receipt, answer: None });
        }
        self.progress.phase("preflight");
        match self.carry_out(world) {
            Ok(outcome) => match receipt::of_lane(&self.order, self.clock.times(), &outcome) {
                Some(told) => self.deliver(told),
                None => self.take_back(&refusal_text(&outcome)),
            },
            Err(Failed::Usage(message)) => self.take_back(&message),
            Err(Failed::Launcher(message)) => {
                let receipt =
                    receipt::without_lane(&self.order, self.clock.times(), Ended::ChildFailed, message);
                self.deliver(Told { receipt, answer: None })
            }
        }
    }

    /// What speaks against starting anything.
    fn refused(&self, world: &World) -> Option<(Ended, String)> {
        let order = &self.order;
        if order.contract == Contract::Strict {
            let text = "no provider can be held to the strict contract".to_owned();
            return Some((Ended::UnsupportedCapability, text));
        }
        let name = order.provider.clone();
        let key_env = self
            .config
            .pick(None, |f| f.providers.get(&name).and_then(|p| p.key_env.clone()))
            .map(|(k, _)| k);
        if let Some(text) = spend::objection(order, world.environment(), key_env.as_deref()) {
            return Some((Ended::BillingPolicyBlocked, text));
        }
        if stockade_providers::find(&order.provider).is_none() {
            return Some((Ended::UnavailableCli, format!("Stockade has no profile for {}", order.provider)));
        }
        if self.executables() == Executables::Path && self.found(world).is_none() {
            return Some((Ended::UnavailableCli, format!("{} is not on PATH", order.provider)));
        }
        None
    }

    fn executables(&self) -> Executables {
        self.config.pick(None, |f| f.compat.executables).map_or(Executables::Pinned, |(e, _)| e)
    }

    fn found(&self, world: &World) -> Option<std::path::PathBuf> {
        executable::on_path(&self.order.provider, world.get("PATH")?, &self.order.cwd)
    }

    fn carry_out(&mut self, world: &World) -> Result<LaneOutcome, Failed> {
        let request = self.request(world)?;
        let Listening { runtime, stops } = &mut self.listening;
        let lane = stockade_lane::run(&request, &mut self.progress, stops);
        runtime.block_on(lane).map_err(|e| Failed::of(&e))
    }

    fn request(&self, world: &World) -> Result<LaneRequest, Failed> {
        let order = &self.order;
        let prompt = bounded(&order.prompt).map_err(|e| {
            Failed::Launcher(format!("launcher failed after reserving output paths: the prompt: {e}"))
        })?;
        let basics = Basics {
            provider: Some(order.provider.clone()),
            mode: Some(match order.mode {
                AccessMode::ReadOnly => ModeArg::ReadOnly,
                AccessMode::IsolatedWrite => ModeArg::IsolatedWrite,
            }),
            provider_sandbox: None,
            fence: FenceArgs { rung: None, accept_missing: Vec::new() },
            executable: (self.executables() == Executables::Path).then(|| self.found(world)).flatten(),
        };
        let said = |e: &CliError| Failed::Usage(e.shown.message.clone());
        let ordered = order::of_basics(basics, &self.config, world).map_err(|e| said(&e))?;
        let mut request = order::with_configured_endpoint(ordered, &self.config).map_err(|e| said(&e))?;
        request.model = Some(order.wire_model().to_owned());
        request.effort = (order.effort != "default").then(|| order.effort.clone());
        request.cwd.clone_from(&order.cwd);
        // Of a pinned executable the answer is known: what the profile's configuration told it.
        if self.executables() == Executables::Path {
            request.preflight = PreflightChoice::Asked;
        }
        request.prompt = PromptSource::Given(contract::with_contract(&prompt));
        // The deadline counts from the start of the process.
        let passed = u64::try_from(self.clock.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        request.limits.timeout_ms = order.timeout_ms.map(|ms| ms.saturating_sub(passed).max(1));
        request.limits.idle_timeout_ms = None;
        let in_repository = order.cwd.ancestors().any(|folder| folder.join(".git").exists());
        let is_writer = order.mode == AccessMode::IsolatedWrite;
        request.worktree = (is_writer && in_repository).then_some(WorktreeChoice::Named);
        Ok(request)
    }

    /// Writes what there is to tell, and tells it.
    fn deliver(mut self, told: Told) -> u8 {
        let done = match &told.answer {
            Some(answer) => self.output.commit(answer.as_bytes()),
            None => self.output.release().map(drop),
        };
        let mut told = told.receipt;
        if let Err(e) = done {
            told.storage_failed(&e.to_string());
        }
        self.progress.phase("postprocess");
        let mut bytes = serde_json::to_vec_pretty(&told).unwrap_or_default();
        bytes.push(b'\n');
        let written = self.receipt.fill(&bytes);
        if let Err(e) = &written {
            told.storage_failed(&e.to_string());
        }
        self.progress.end(written.is_ok());
        let line = serde_json::to_string(&told).unwrap_or_default() + "\n";
        let code = told.status.exit_code();
        if code == exit_code::OK && render::out(&line).is_ok() {
            return code;
        }
        render::say(&line);
        code
    }

    /// Nothing was created by an order that is wrong.
    fn take_back(self, message: &str) -> u8 {
        for reserved in [Some(self.output), Some(self.receipt), self.progress.into_reservation()] {
            // What cannot be removed stays, and the mistake is what has to be told.
            drop(reserved.map(Reservation::roll_back));
        }
        usage(message)
    }
}

/// The bytes of a prompt. One that is too long is left a byte too long, for the lane to tell of it.
fn bounded(prompt: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(prompt)?.take(PROMPT_LIMIT_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Why there is no outcome of a lane.
enum Failed {
    /// The order is wrong.
    Usage(String),
    /// Something on this side.
    Launcher(String),
}

impl Failed {
    fn of(refusal: &Refusal) -> Self {
        if refusal.status.is_none() {
            Self::Usage(refusal.cause.message.clone())
        } else {
            Self::Launcher(refusal.cause.message.clone())
        }
    }
}

fn refusal_text(outcome: &LaneOutcome) -> String {
    outcome
        .receipt
        .cause
        .as_ref()
        .map_or_else(|| outcome.receipt.status.id().to_owned(), |c| c.message.clone())
}
