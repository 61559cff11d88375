//! Prints the survey of this host as JSON, so that tests can run it under the host classes.
#![expect(clippy::disallowed_methods, clippy::print_stdout, reason = "a test tool with a process of its own")]

use std::process::ExitCode;

use stockade_core::survey::Rung;
use stockade_fence::survey::{Extent, SurveyRequest, measure};

fn main() -> ExitCode {
    stockade_fence::helper::enter_if_asked();
    let extent = if std::env::args_os().any(|argument| argument == "every-rung") {
        Extent::EveryRung
    } else {
        Extent::FirstThatStands
    };
    let survey = measure(SurveyRequest { path: std::env::var_os("PATH"), extent }, &Rung::ALL);
    match serde_json::to_string(&survey) {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(_) => ExitCode::FAILURE,
    }
}
