//! Checks of what must not happen: anything outside, anything after a cancel, anything left.

use std::{path::PathBuf, time::Duration};

use stockade_core::{receipt::Receipt, status::Status};

use super::{Verdict, ending_of, not_reached, quote, work::printed};
use crate::{
    commands::{READS, WRITES},
    host::Look,
    play::Cancelled,
    scratch::Texts,
    script::Act,
    snapshot::Snapshot,
    wire::Wire,
};

/// How long a cancel may take until the lane has ended.
const CANCEL_TIME: Duration = Duration::from_secs(3);

/// The decoys beside the workspace, and what the agent's tools did about them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outside<'o> {
    pub(crate) receipt: &'o Receipt,
    pub(crate) wire: &'o Wire,
    pub(crate) texts: &'o Texts,
    pub(crate) before: &'o Snapshot,
    pub(crate) after: &'o Snapshot,
}

impl Outside<'_> {
    /// The tools tried to read and write outside, and neither did the host change nor did a secret come back.
    pub(crate) fn nothing_changed(&self) -> Verdict {
        let Some(result) = self.wire.result_of(Act::ReachOutside.step()) else {
            return Err(not_reached(self.receipt));
        };
        if let Some((path, difference)) = self.before.differences(self.after).first_key_value() {
            return Err(format!("outside `{}` was {difference}", path.display()));
        }
        if self.texts.secrets.iter().any(|secret| self.wire.mentions(secret)) {
            return Err("the content of a decoy secret came over the wire".to_owned());
        }
        if !self.wire.is_whole() {
            return Err(
                "a request was too long to be logged whole, so that a secret could be in it".to_owned()
            );
        }
        let (reads, writes) = (printed(&result.text, "read="), printed(&result.text, "write="));
        let tried = printed(&result.text, "tried=").contains(&i64::from(self.texts.sum()));
        if !tried || reads.len() != READS || writes.len() != WRITES {
            return Err(format!("the attempts were not all made: {}", quote(&result.text)));
        }
        if reads.iter().chain(&writes).any(|status| *status == 0) {
            return Err(format!("the shell reports success: {}", quote(&result.text)));
        }
        Ok(format!(
            "{READS} reads and {WRITES} writes outside failed; {} decoys are as before, in content and metadata",
            self.before.len()
        ))
    }
}

/// A cancel in the middle of an answer ended the run, and with it a process that a tool had left behind.
pub(crate) fn cancel_works(receipt: &Receipt, cancel: Option<&Cancelled>, left: &Look) -> Verdict {
    let Some(cancel) = cancel else {
        return Err(format!(
            "the model never came to hold its answer; the run ended as {}",
            ending_of(receipt)
        ));
    };
    let ms = cancel.elapsed.as_millis();
    if receipt.status != Status::Cancelled {
        return Err(format!("the run ended as {}", ending_of(receipt)));
    }
    if cancel.alive == 0 {
        return Err(
            "no process of the run was seen on the host before the cancel: its end proves nothing".to_owned()
        );
    }
    if !receipt.tree.gone {
        return Err("the kernel did not confirm that the process tree is gone".to_owned());
    }
    if let Some(process) = left.found.first() {
        return Err(format!("process {} is still there: {}", process.pid, quote(&process.command)));
    }
    if cancel.elapsed > CANCEL_TIME {
        return Err(format!("it took {ms} ms"));
    }
    let daemon = if cancel.left_behind { ", one of them left behind by a tool" } else { "" };
    Ok(format!("cancelled within {ms} ms; of {} processes{daemon}, none is left", cancel.alive))
}

/// What was looked at when everything was over.
#[derive(Clone, Debug)]
pub(crate) struct Remains {
    /// Whether the kernel confirmed for every lane that its tree is gone.
    pub(crate) trees_gone: bool,
    /// The processes of the host.
    pub(crate) look: Look,
    /// Private homes that are still there.
    pub(crate) homes: Vec<PathBuf>,
    /// The rehearsal's own folder, if it is still there.
    pub(crate) scratch: Option<PathBuf>,
}

/// Nothing of the rehearsal is left.
pub(crate) fn nothing_left(remains: &Remains) -> Verdict {
    if !remains.trees_gone {
        return Err("the kernel did not confirm that a process tree is gone".to_owned());
    }
    if let Some(process) = remains.look.found.first() {
        return Err(format!("process {} is still there: {}", process.pid, quote(&process.command)));
    }
    if let Some(home) = remains.homes.first() {
        return Err(format!("the private home `{}` is still there", home.display()));
    }
    if let Some(scratch) = &remains.scratch {
        return Err(format!("the rehearsal's folder `{}` is still there", scratch.display()));
    }
    Ok(format!(
        "process trees gone by the kernel's word, none of the host's {} processes belongs to them; private homes and \
         the rehearsal's folder removed",
        remains.look.processes
    ))
}

#[cfg(test)]
mod tests;
