//! `stockade plan`.

use crate::{cli::PlanArgs, error::CliError, order, render};

pub(crate) fn run(args: PlanArgs, world: &crate::world::World) -> Result<u8, CliError> {
    let ordered = order::of_args(args.order, world)?;
    let plan = stockade_lane::preview(&ordered.request)?;
    if args.json {
        render::json(&plan)?;
    } else {
        render::out(&render::plan::summary(&plan))?;
    }
    Ok(0)
}
