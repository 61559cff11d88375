//! Checks of a run as a whole: start, model, tools offered, prompts.

use std::{collections::BTreeSet, time::Duration};

use stockade_core::{
    event::{EventKind, PermissionDecision, TurnOutcome},
    judge::ModelEvidence,
    receipt::Receipt,
    status::Status,
};

use super::{Verdict, ending_of};
use crate::{play::Played, wire::Wire};

/// The fence was proven and the agent started in it.
pub(crate) fn starts(played: &Played) -> (Verdict, Duration) {
    let mut proven = None;
    let mut started = None;
    for event in &played.events {
        match &event.event {
            EventKind::FenceProven { rung, canaries, elapsed_us, .. } => {
                proven = Some((rung.id(), *canaries, *elapsed_us));
            }
            EventKind::AgentStarted { .. } => started = Some(event.elapsed_ms),
            _ => {}
        }
    }
    let elapsed = Duration::from_millis(started.or(played.receipt.elapsed_ms).unwrap_or_default());
    let verdict = match (proven, started) {
        (Some((rung, canaries, us)), Some(_)) if canaries > 0 && played.receipt.process_started => {
            let ms = us / 1000;
            Ok(format!(
                "fence on rung {rung} built and proven by {canaries} canaries in {ms} ms; agent started"
            ))
        }
        _ => Err(ending_of(&played.receipt)),
    };
    (verdict, elapsed)
}

/// The model that was asked for is the one that answered, on the wire.
pub(crate) fn served_model(receipt: &Receipt, wire: &Wire) -> Verdict {
    let Some(identity) = &receipt.model_identity else {
        return Err(format!("no model is known; the run ended as {}", ending_of(receipt)));
    };
    let turns = wire.turns().count();
    let told = format!(
        "asked {}, requested {}, served {} in {turns} turns, by {}",
        identity.asked,
        wire.asked().into_iter().collect::<Vec<_>>().join(", "),
        identity.served.join(", "),
        receipt.model_evidence.as_deref().unwrap_or("nothing"),
    );
    // A short name is another one on the wire; the gateway lets none but the planned one through.
    let requested = identity.requested_seen.first().map_or("none", String::as_str);
    let right = identity.evidence == ModelEvidence::Wire
        && turns > 0
        && !identity.served.is_empty()
        && identity.served.iter().all(|served| served == requested)
        && wire.asked() == BTreeSet::from([requested]);
    if right { Ok(told) } else { Err(told) }
}

/// Every request of the conversation offered the same tools, which are those of one of the planned sets.
pub(crate) fn tool_list(planned: &[&[String]], wire: &Wire) -> Verdict {
    let planned: Vec<BTreeSet<&str>> =
        planned.iter().map(|tools| tools.iter().map(String::as_str).collect()).collect();
    let Some(first) = planned.first() else { return Err("no plan was made".to_owned()) };
    let list = |tools: &BTreeSet<&str>| tools.iter().copied().collect::<Vec<_>>().join(", ");
    let offered = wire.offered();
    let Some(seen) = offered.first() else {
        return Err("no request of the conversation was seen on the wire".to_owned());
    };
    let planned = planned.iter().find(|tools| *tools == seen).unwrap_or(first);
    match offered.iter().find(|tools| *tools != planned) {
        Some(other) => Err(format!("planned {}; on the wire {}", list(planned), list(other))),
        None => Ok(format!("{} on the wire, as planned", list(planned))),
    }
}

/// No question was left to anybody outside the agent, and the turn ended by a result. An agent may log a request for
/// permission and answer it itself at once: that asks nobody.
pub(crate) fn no_prompt(played: &Played) -> Verdict {
    let mut open: Option<&str> = None;
    let mut result = false;
    for event in &played.events {
        match &event.event {
            EventKind::PermissionAsked { tool } => open = Some(tool),
            EventKind::PermissionDecided { tool, decision: PermissionDecision::Cancelled, .. } => {
                return Err(format!("the agent cancelled its turn at a prompt for {tool}"));
            }
            EventKind::PermissionDecided { .. } => open = None,
            EventKind::TurnEnded { outcome: TurnOutcome::Success { .. } } => result = true,
            _ => {}
        }
    }
    if let Some(tool) = open {
        return Err(format!("the agent asked for permission to use {tool} and got no answer"));
    }
    if result && played.receipt.status == Status::Complete {
        Ok(format!("{} tool calls, no prompt, the turn ended by a result", played.receipt.tool_calls))
    } else {
        Err(format!("the turn did not end by a result: {}", ending_of(&played.receipt)))
    }
}

/// A scenario of the caller's own was played to a result, by the model asked for.
pub(crate) fn scenario(played: &Played) -> Verdict {
    let receipt = &played.receipt;
    if receipt.status != Status::Complete {
        return Err(ending_of(receipt));
    }
    let served = receipt.reported_model.as_deref().unwrap_or("none");
    let by = receipt.model_evidence.as_deref().unwrap_or("nothing");
    let told = format!("{} tool calls; model {served} by {by}", receipt.tool_calls);
    // The answer may name the model by another of its names: the run has compared them.
    if receipt.model_verified { Ok(told) } else { Err(told) }
}

#[cfg(test)]
mod tests;
