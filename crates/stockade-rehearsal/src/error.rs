//! Why a rehearsal cannot be held.

use std::{io, path::PathBuf};

use stockade_core::status::{Refusal, exit_code};
use stockade_model::{ClientError, ScenarioError};

/// A rehearsal could not be held, which says nothing about the host or the agent.
#[derive(Debug, thiserror::Error)]
pub enum RehearsalError {
    /// There is no built-in scenario for this provider.
    #[error("there is no scenario for `{provider}`")]
    NoScenario {
        /// The provider.
        provider: String,
    },
    /// The caller's scenario cannot be read.
    #[error("read the scenario `{path}`")]
    ScenarioFile {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A scenario is malformed or names an unknown variable.
    #[error("understand the scenario")]
    Scenario {
        /// What is wrong with it.
        #[from]
        source: ScenarioError,
    },
    /// The order itself cannot be carried out: nothing was created.
    #[error("{refusal}")]
    Order {
        /// Why.
        refusal: Refusal,
    },
    /// A folder or file of the rehearsal's own.
    #[error("{step} `{path}`")]
    Scratch {
        /// What was being done: `make`, `read`, `remove`.
        step: &'static str,
        /// The folder or file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The scripted model did not start.
    #[error("start the scripted model: {problem}")]
    Model {
        /// What happened, with what it printed on standard error.
        problem: String,
    },
    /// What the scripted model saw cannot be read.
    #[error("read what the scripted model saw")]
    Log {
        /// Why.
        #[from]
        source: ClientError,
    },
}

impl RehearsalError {
    /// The exit code of the process.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NoScenario { .. } | Self::ScenarioFile { .. } | Self::Scenario { .. } => exit_code::USAGE,
            Self::Order { refusal } => refusal.exit_code(),
            Self::Scratch { .. } => exit_code::STORAGE,
            Self::Model { .. } | Self::Log { .. } => exit_code::CHECK_FAILED,
        }
    }
}
