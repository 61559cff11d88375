//! `stockade fence check`.

use std::sync::{Arc, atomic::AtomicBool};

use stockade_core::{
    mode::AccessMode,
    status::{Boundary, exit_code},
    survey::Rung,
};
use stockade_lane::{Checked, FenceCheckRequest, Part, Progress, check_fence};

use crate::{
    cli::FenceCheckArgs, config::Config, error::CliError, order, render, render::Verbosity, signals,
    world::World,
};

pub(crate) fn check(args: &FenceCheckArgs, world: &World, verbosity: Verbosity) -> Result<u8, CliError> {
    let config = Config::read(world)?;
    let mut lane = order::of_no_agent(&config, world)?;
    lane.rung = if args.keep { Some(Rung::NsNest) } else { args.rung.map(Rung::from) };
    let request = FenceCheckRequest {
        lane,
        modes: args.mode.map_or_else(|| AccessMode::ALL.to_vec(), |mode| vec![mode.into()]),
        program: "/proc/self/exe".into(),
        parent: super::TEMPORARY.into(),
    };
    let stop = Arc::new(AtomicBool::new(false));
    signals::set_on_stop(Arc::clone(&stop)).map_err(|e| {
        CliError::new(
            exit_code::CHECK_FAILED,
            "signals",
            Boundary::Host,
            format!("signals cannot be listened to: {e}"),
        )
    })?;
    let shows = !args.json && verbosity > Verbosity::Quiet && render::is_terminal();
    let mut progress = |progress: Progress| {
        if shows {
            render::say(&format!("\r{}\x1b[K", line(progress)));
        }
    };
    let checked = check_fence(&request, &mut progress, &stop);
    if shows {
        render::say("\r\x1b[K");
    }
    match checked? {
        Checked::Stopped => Ok(exit_code::CANCELLED),
        Checked::Done(check) => {
            if args.json {
                render::json(&check)?;
            } else {
                render::out(&render::fence::summary(&check, verbosity))?;
            }
            Ok(if check.is_sound() { exit_code::OK } else { exit_code::CHECK_FAILED })
        }
    }
}

fn line(progress: Progress) -> String {
    let part = match progress.part {
        Part::Outside => "outside the fence, as the control".to_owned(),
        Part::Inside(mode) => format!("inside, {}", mode.id()),
    };
    format!("{part}: {} of {} probes", progress.taken, progress.probes)
}
