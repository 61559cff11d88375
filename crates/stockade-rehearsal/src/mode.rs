//! The rehearsal of one mode: three lanes in one scratch folder, and the checks of all.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use stockade_core::{
    mode::AccessMode,
    receipt::Receipt,
    status::{Boundary, Cause, Refusal, Status},
    survey::Rung,
};
use stockade_journal::State;
use stockade_lane::StopRequest;
use tokio::sync::mpsc;

use crate::{
    checks::{
        ending::{self, Outside, Remains},
        ending_of, judged, run,
        work::{self, Work},
    },
    commands,
    error::RehearsalError,
    host::{self, Look, Marks},
    model_process::{ModelProcess, Serving},
    play::{self, Played},
    probes,
    rehearse::Programme,
    report::{Check, CheckStatus},
    request::RehearsalRequest,
    scratch::Scratch,
    script::{self, Act, Script},
    snapshot::Snapshot,
};

/// How the rehearsal of a mode ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// Every check was judged.
    Played {
        /// What no check can prove, by the plan.
        unproven: Vec<String>,
    },
    /// A run would be refused here before the agent starts.
    Refused(Refusal),
    /// The caller stopped it.
    Stopped,
}

/// Whoever is told each check.
type Told<'t> = &'t mut dyn FnMut(Check);

/// Rehearses one mode.
pub(crate) async fn rehearse(
    request: &RehearsalRequest,
    mode: AccessMode,
    programme: &Programme,
    told: Told<'_>,
    stops: &mut mpsc::Receiver<StopRequest>,
) -> Result<Ended, RehearsalError> {
    let scratch = Scratch::make(&request.scratch_parent)?;
    match programme {
        Programme::Script(script) => Box::pin(scripted(request, mode, script, scratch, told, stops)).await,
        Programme::Given(text) => given(request, mode, text, &scratch, told, stops).await,
    }
}

/// Plays a scenario of the caller's own, and judges whether it came to a result.
async fn given(
    request: &RehearsalRequest,
    mode: AccessMode,
    text: &str,
    scratch: &Scratch,
    told: Told<'_>,
    stops: &mut mpsc::Receiver<StopRequest>,
) -> Result<Ended, RehearsalError> {
    let begun = Instant::now();
    let name = script::check(text, &scratch.variables())?;
    let model = serve(request, text, scratch, "given").await?;
    let lane = play::lane(&request.lane, mode, scratch, &model, name);
    let played = play::to_the_end(&lane, &model, stops).await?;
    if let Some(refusal) = refusal_of(&played.receipt) {
        told(refused(&played.receipt));
        return Ok(Ended::Refused(refusal));
    }
    told(judged("scenario", &run::scenario(&played), begun.elapsed()));
    Ok(if played.stopped { Ended::Stopped } else { whole(&played) })
}

/// Plays the built-in scenarios: the work of the mode, the escape probes, then a cancel.
async fn scripted(
    request: &RehearsalRequest,
    mode: AccessMode,
    script: &Script,
    scratch: Scratch,
    told: Told<'_>,
    stops: &mut mpsc::Receiver<StopRequest>,
) -> Result<Ended, RehearsalError> {
    let outside = Snapshot::take(&scratch.outside())?;
    let before = Snapshot::take(&scratch.workspace())?;
    let work = work(request, mode, script, &scratch, stops).await?;
    if let Some(refusal) = refusal_of(&work.receipt) {
        told(refused(&work.receipt));
        return Ok(Ended::Refused(refusal));
    }
    let after = Snapshot::take(&scratch.workspace())?;
    judge_work(mode, script, &scratch, &work, &before, &after, told);
    if work.stopped {
        return Ok(Ended::Stopped);
    }

    let rung = work.plan.as_ref().map_or(Rung::Ns, |plan| plan.rung);
    let probed = Box::pin(probes::play(request, mode, script, &scratch, rung, stops)).await?;
    told(judged("probes", &probed.verdict, probed.elapsed));
    if probed.stopped() {
        return Ok(Ended::Stopped);
    }

    let mut marks =
        Marks::of_folder(&scratch.workspace()).map_err(|source| unseen(&scratch.workspace(), source))?;
    let cancel = cancel(request, mode, script, &scratch, &marks, stops).await?;
    let probes = probed.played.as_ref().map(|played| &played.receipt);
    let receipts: Vec<&Receipt> = [&work.receipt, &cancel.receipt].into_iter().chain(probes).collect();
    marks.words.extend(receipts.iter().map(|receipt| receipt.execution_id.clone()));
    let look = host::look(&marks).map_err(|source| unseen(Path::new("/proc"), source))?;
    let elapsed = cancel.cancel.as_ref().map_or(Duration::ZERO, |cancel| cancel.elapsed);
    let verdict = ending::cancel_works(&cancel.receipt, cancel.cancel.as_ref(), &look);
    told(judged("cancel-works", &verdict, elapsed));

    let now = Snapshot::take(&scratch.outside())?;
    let reach = Outside {
        receipt: &work.receipt,
        wire: &work.wire,
        texts: &scratch.texts,
        before: &outside,
        after: &now,
    };
    let elapsed = work.wire.result_of(Act::ReachOutside.step()).map(|result| result.elapsed);
    told(judged("nothing-outside-changed", &reach.nothing_changed(), elapsed.unwrap_or_default()));

    let begun = Instant::now();
    let remains = remains(request, scratch, &receipts, look)?;
    told(judged("nothing-left", &ending::nothing_left(&remains), begun.elapsed()));
    Ok(if cancel.stopped { Ended::Stopped } else { whole(&work) })
}

fn whole(played: &Played) -> Ended {
    let unproven = played.plan.as_ref().map(|plan| plan.unproven.clone());
    Ended::Played { unproven: unproven.unwrap_or_default() }
}

async fn work(
    request: &RehearsalRequest,
    mode: AccessMode,
    script: &Script,
    scratch: &Scratch,
    stops: &mut mpsc::Receiver<StopRequest>,
) -> Result<Played, RehearsalError> {
    let model = serve(request, script.work(mode), scratch, "work").await?;
    let lane = play::lane(&request.lane, mode, scratch, &model, mode.id().to_owned());
    play::to_the_end(&lane, &model, stops).await
}

async fn cancel(
    request: &RehearsalRequest,
    mode: AccessMode,
    script: &Script,
    scratch: &Scratch,
    marks: &Marks,
    stops: &mut mpsc::Receiver<StopRequest>,
) -> Result<Played, RehearsalError> {
    let model = serve(request, script.cancel, scratch, "cancel").await?;
    let lane = play::lane(&request.lane, mode, scratch, &model, format!("{}-cancel", mode.id()));
    // The workspace is among the arguments of the model, too.
    let mut marks = marks.clone();
    marks.except.push(model.pid());
    let child = commands::left_behind(&scratch.texts);
    play::until_cancelled(&lane, &model, stops, &marks, &child).await
}

async fn serve(
    request: &RehearsalRequest,
    scenario: &str,
    scratch: &Scratch,
    name: &str,
) -> Result<ModelProcess, RehearsalError> {
    let (variables, folder) = (scratch.variables(), scratch.model());
    let program = &request.stockade;
    ModelProcess::start(&Serving { program, scenario, variables: &variables, folder: &folder, name }).await
}

fn judge_work(
    mode: AccessMode,
    script: &Script,
    scratch: &Scratch,
    played: &Played,
    before: &Snapshot,
    after: &Snapshot,
    told: Told<'_>,
) {
    let work = Work { receipt: &played.receipt, wire: &played.wire, texts: &scratch.texts, before, after };
    let (verdict, elapsed) = run::starts(played);
    told(judged("starts", &verdict, elapsed));
    told(judged("reads-a-file", &work::reads_a_file(&work), work.elapsed(&[Act::ReadFile])));
    match mode {
        AccessMode::ReadOnly => {
            let elapsed = work.elapsed(&[Act::EditFile, Act::CreateFile]);
            told(judged("refuses-edits", &work::refuses_edits(&work, script.refusal_words), elapsed));
            told(judged(
                "refuses-shell-write",
                &work::refuses_shell_write(&work),
                work.elapsed(&[Act::ShellWrite]),
            ));
        }
        AccessMode::IsolatedWrite => {
            told(judged("edits-a-file", &work::edits_a_file(&work), work.elapsed(&[Act::EditFile])));
            told(judged("creates-a-file", &work::creates_a_file(&work), work.elapsed(&[Act::CreateFile])));
            told(judged("runs-a-command", &work::runs_a_command(&work), work.elapsed(&[Act::ShellWrite])));
            told(judged("changes-measured", &work::changes_measured(&work), Duration::ZERO));
        }
    }
    let whole = Duration::from_millis(played.receipt.elapsed_ms.unwrap_or_default());
    told(judged("served-model", &run::served_model(&played.receipt, &played.wire), whole));
    told(judged("tool-list", &run::tool_list(&played.planned_tools(), &played.wire), whole));
    told(judged("no-prompt", &run::no_prompt(played), whole));
}

/// Removes the scratch folder, and looks at what is left of everything.
fn remains(
    request: &RehearsalRequest,
    scratch: Scratch,
    receipts: &[&Receipt],
    look: Look,
) -> Result<Remains, RehearsalError> {
    let removed = scratch.remove()?;
    // Every run has made a home in it, so it can be opened; where it cannot be, there is no home to be left.
    let homes = State::open(&request.lane.state_root).and_then(|state| state.homes()).ok();
    let homes =
        homes.iter().flat_map(|homes| receipts.iter().map(move |receipt| homes.join(&receipt.execution_id)));
    Ok(Remains {
        trees_gone: receipts.iter().all(|receipt| receipt.tree.gone),
        look,
        homes: homes.filter(|home| is_there(home)).collect(),
        scratch: Some(removed).filter(|path| is_there(path)),
    })
}

fn is_there(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

fn unseen(path: &Path, source: std::io::Error) -> RehearsalError {
    RehearsalError::Scratch { step: "read", path: path.to_owned(), source }
}

/// The refusal that a receipt records; `None` where the agent ran.
fn refusal_of(receipt: &Receipt) -> Option<Refusal> {
    if receipt.process_started || receipt.status == Status::Cancelled {
        return None;
    }
    let cause = receipt.cause.clone().unwrap_or_else(|| {
        Cause::new(
            "no-cause",
            Boundary::Storage,
            "receipt",
            "the run ended before the agent started, without a cause",
        )
    });
    Some(Refusal::new(receipt.status, cause))
}

fn refused(receipt: &Receipt) -> Check {
    let elapsed = Duration::from_millis(receipt.elapsed_ms.unwrap_or_default());
    Check::new("starts", CheckStatus::Failed, &ending_of(receipt), elapsed)
}
