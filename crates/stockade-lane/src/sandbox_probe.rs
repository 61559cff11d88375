//! Asks a provider's own sandbox, inside the proven fence, whether it works there.
//!
//! Some agents start where their sandbox cannot work, and then fail at each command while the turn goes on. The answer is
//! an exit code, known before the model is paid for.

use std::time::Duration;

use stockade_core::{
    plan::LaunchPlan,
    status::{Boundary, Cause, Refusal, Status},
};
use stockade_fence::Fence;
use tokio::{sync::mpsc, time::Instant};

use crate::{
    clock::RunClock,
    preflight,
    question::{self, Answer, Question, QuestionError},
    request::StopRequest,
};

/// Measured: 50 ms.
const LIMIT: Duration = Duration::from_secs(10);
/// The last that it says is kept up to here.
const SAID_LIMIT_BYTES: usize = 2_000;

/// Refuses the run where the provider's own sandbox is kept and does not work in this fence.
pub(crate) async fn ask(
    fence: &mut Fence,
    plan: &LaunchPlan,
    clock: RunClock,
    stops: &mut mpsc::Receiver<StopRequest>,
) -> Result<(), Refusal> {
    if plan.provider_sandbox.probe.is_empty() {
        return Ok(());
    }
    let own_end = Instant::now() + LIMIT;
    let until = clock.deadline(plan.limits.timeout_ms).map_or(own_end, |d| own_end.min(d.into()));
    let question = Question { argv: &plan.provider_sandbox.probe, until, keeps_bytes: SAID_LIMIT_BYTES };
    match question::ask(fence, plan, &question, stops).await.map_err(|e| broke(&e))? {
        Answer::Exited { code: Some(0), .. } => Ok(()),
        Answer::Exited { code, signal, said } => Err(refused(plan, code, signal, &said)),
        Answer::TooLong if until < own_end => Err(preflight::deadline_passed(plan)),
        Answer::TooLong => Err(refused(plan, None, None, "it did not answer within ten seconds")),
        Answer::Stopped(why) => Err(question::stopped(why)),
    }
}

fn refused(plan: &LaunchPlan, code: Option<i32>, signal: Option<i32>, said: &str) -> Refusal {
    let how = match (code, signal) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "no answer".to_owned(),
    };
    let cause = Cause::new(
        "provider-sandbox-broken",
        Boundary::ProviderSandbox,
        "probe",
        format!("the sandbox that `{}` brings does not work in this fence: {how}", plan.provider),
    )
    .with_evidence(plan.provider_sandbox.probe.join(" "));
    let cause = said
        .lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .map_or(cause.clone(), |line| cause.with_evidence(line.trim().to_owned()));
    let remedy = "let Stockade's fence stand in its place: `--provider-sandbox replace`. To keep it: make the `bwrap` \
                  that is first on `PATH` one that can make namespaces inside others";
    Refusal::new(Status::SandboxUnavailable, cause.with_remedy(remedy))
}

fn broke(e: &QuestionError) -> Refusal {
    let message = format!("the provider's own sandbox cannot be asked: {e}");
    Refusal::new(Status::LauncherFailed, Cause::new("launch", Boundary::Fence, "probe", message))
}
