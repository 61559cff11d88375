//! `stockade scripted-model`: a process of its own, ended by the end of its standard input.

use stockade_core::status::{Boundary, exit_code};
use stockade_model::{ServeArgs, ServeOptions, run_blocking};

use crate::{cli::ScriptedModelArgs, error::CliError};

pub(crate) fn run(args: ScriptedModelArgs) -> Result<u8, CliError> {
    let mut options = ServeOptions::new();
    options.listen = args.listen;
    options.tls = args.tls;
    options.tls_names = args.tls_names;
    options.ca_out = args.ca_out;
    options.control = args.control;
    options.log = args.log;
    options.api_key = args.api_key;
    options.variables = args.variables.into_iter().collect();
    let serve = ServeArgs { scenario: args.scenario, options };
    run_blocking(serve, std::io::stdin(), &mut std::io::stdout())
        .map(|()| exit_code::OK)
        .map_err(|e| CliError::new(exit_code::CHECK_FAILED, "scripted-model", Boundary::Model, e.to_string()))
}
