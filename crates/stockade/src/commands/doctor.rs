//! `stockade doctor`.

use serde_json::json;
use stockade_core::status::{Status, exit_code};

use crate::{
    cli::{DoctorArgs, limits::LimitArgs},
    config::Config,
    error::CliError,
    limits,
    order::{self, Basics},
    render,
    world::World,
};

pub(crate) fn run(args: DoctorArgs, world: &World) -> Result<u8, CliError> {
    let config = Config::read(world)?;
    let basics = Basics {
        provider: args.provider,
        mode: args.mode,
        provider_sandbox: args.provider_sandbox,
        fence: args.fence,
        executable: None,
    };
    let mut ordered = order::of_basics(basics, &config, world)?;
    limits::apply(&LimitArgs::default(), &config, &mut ordered.settings, &mut ordered.request)?;
    let diagnosis = stockade_lane::diagnose(&ordered.request)?;
    if args.json {
        render::json(&json!({ "diagnosis": diagnosis, "settings": ordered.settings }))?;
    } else {
        render::out(&render::doctor::summary(&diagnosis, &ordered.settings))?;
    }
    Ok(if diagnosis.ready {
        exit_code::OK
    } else {
        diagnosis.status.map_or(exit_code::USAGE, Status::exit_code)
    })
}
