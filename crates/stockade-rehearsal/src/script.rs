//! The built-in scenarios: what the scripted model makes each provider's agent do.
//!
//! Every provider has four scenarios, written in the names of its own tools. What they do, and in which order, is the
//! same for all, so that the checks need not know the provider.

use std::collections::BTreeMap;

use stockade_core::mode::AccessMode;
use stockade_model::{Scenario, ScenarioError};

/// The name at which the scenario for the cancel holds.
pub(crate) const CANCEL_HOLD: &str = "cancel";

/// The step of the scenario for the probes that takes them.
pub(crate) const PROBES_STEP: usize = 0;
/// The variable of that scenario: the command that takes them.
pub(crate) const PROBES_VARIABLE: &str = "take_probes";

/// One thing the agent is made to do. Each is one step of a scenario with one tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// Reads the existing file with its own tool.
    ReadFile,
    /// Edits the existing file with its own tool.
    EditFile,
    /// Makes a new file with its own tool.
    CreateFile,
    /// Writes a file from the shell.
    ShellWrite,
    /// Reads and writes outside the workspace from the shell.
    ReachOutside,
}

/// The order of the acts in the scenario of either mode.
const ACTS: [Act; 5] = [Act::ReadFile, Act::EditFile, Act::CreateFile, Act::ShellWrite, Act::ReachOutside];

impl Act {
    /// The step of the scenario that does it.
    pub(crate) fn step(self) -> usize {
        ACTS.iter().position(|act| *act == self).unwrap_or(ACTS.len())
    }
}

/// One provider's scenarios.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Script {
    provider: &'static str,
    read_only: &'static str,
    isolated_write: &'static str,
    /// Takes the escape probes from the shell.
    pub(crate) probes: &'static str,
    /// Starts a process that would outlive its tool call, then holds.
    pub(crate) cancel: &'static str,
    /// Words of which one at least is in what the model is told when a tool of the agent's own does not write.
    pub(crate) refusal_words: &'static [&'static str],
}

/// Another provider is one more entry here and four more files.
const SCRIPTS: &[Script] = &[
    Script {
        provider: "claude",
        read_only: include_str!("../scenarios/claude-read-only.json"),
        isolated_write: include_str!("../scenarios/claude-isolated-write.json"),
        probes: include_str!("../scenarios/claude-probes.json"),
        cancel: include_str!("../scenarios/claude-cancel.json"),
        refusal_words: &["No such tool available: Edit", "No such tool available: Write"],
    },
    Script {
        provider: "codex",
        read_only: include_str!("../scenarios/codex-read-only.json"),
        isolated_write: include_str!("../scenarios/codex-isolated-write.json"),
        probes: include_str!("../scenarios/codex-probes.json"),
        cancel: include_str!("../scenarios/codex-cancel.json"),
        // Its own sandbox rejects a patch; without it the patch meets the fence.
        refusal_words: &["patch rejected", "Failed to write file"],
    },
    Script {
        provider: "grok",
        read_only: include_str!("../scenarios/grok-read-only.json"),
        isolated_write: include_str!("../scenarios/grok-isolated-write.json"),
        probes: include_str!("../scenarios/grok-probes.json"),
        cancel: include_str!("../scenarios/grok-cancel.json"),
        // A tool that is not offered is "not found"; one that is offered meets the fence.
        refusal_words: &[
            "Tool not found",
            "Tool `search_replace` not found",
            "Permission denied",
            "Read-only file system",
        ],
    },
    Script {
        provider: "opencode",
        read_only: include_str!("../scenarios/opencode-read-only.json"),
        isolated_write: include_str!("../scenarios/opencode-isolated-write.json"),
        probes: include_str!("../scenarios/opencode-probes.json"),
        cancel: include_str!("../scenarios/opencode-cancel.json"),
        refusal_words: &["unavailable tool 'edit'", "unavailable tool 'write'"],
    },
];

impl Script {
    /// The scenarios of a provider, if there are any.
    pub(crate) fn of(provider: &str) -> Option<&'static Self> {
        SCRIPTS.iter().find(|script| script.provider == provider)
    }

    /// The work to be done in a mode.
    pub(crate) fn work(&self, mode: AccessMode) -> &'static str {
        match mode {
            AccessMode::ReadOnly => self.read_only,
            AccessMode::IsolatedWrite => self.isolated_write,
        }
    }
}

/// Whether a text is a scenario that these variables fill; gives the name it has for itself.
pub(crate) fn check(text: &str, variables: &BTreeMap<String, String>) -> Result<String, ScenarioError> {
    Ok(Scenario::parse(text)?.with_variables(variables)?.name().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Texts;

    #[test]
    fn every_scenario_is_one_and_has_a_step_for_each_act() {
        let variables = Texts::new().variables(std::path::Path::new("/r"));
        for script in SCRIPTS {
            for mode in AccessMode::ALL {
                assert_eq!(check(script.work(mode), &variables).unwrap(), mode.id());
                assert_eq!(Scenario::parse(script.work(mode)).unwrap().step_count(), ACTS.len());
            }
            let cancel = Scenario::parse(script.cancel).unwrap();
            assert_eq!(cancel.hold_names().into_iter().collect::<Vec<_>>(), [CANCEL_HOLD]);
            assert_eq!(check(script.cancel, &variables).unwrap(), "cancel");
            let probes = Scenario::parse(script.probes).unwrap();
            let variables = BTreeMap::from([(PROBES_VARIABLE.to_owned(), "true".to_owned())]);
            assert_eq!((probes.step_count(), probes.name()), (1, "probes"));
            assert!(probes.with_variables(&variables).is_ok());
        }
    }

    #[test]
    fn acts_are_the_steps_in_their_order() {
        assert_eq!(ACTS.map(Act::step), [0, 1, 2, 3, 4]);
    }
}
