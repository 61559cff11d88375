//! `stockade provision`.

use std::{
    ops::ControlFlow,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use indicatif::{ProgressBar, ProgressStyle};
use stockade_core::status::exit_code;
use stockade_pins::{
    NPM_REGISTRY, Network, Outcome, Phase, PinList, Progress, ProviderSpec, ProvisionRequest, Sha256Digest,
    Store,
};

use crate::{cli::ProvisionArgs, error::CliError, render, render::Verbosity, signals, world::World};

pub(crate) fn run(args: &ProvisionArgs, world: &World, verbosity: Verbosity) -> Result<u8, CliError> {
    let store = Store::new(world.state_root()?, PinList::shipped()?);
    match &args.spec {
        Some(spec) => provision(&store, spec, args, world, verbosity),
        None => list(&store, args),
    }
}

fn list(store: &Store, args: &ProvisionArgs) -> Result<u8, CliError> {
    let listing = if args.verify { store.list_verified()? } else { store.list()? };
    if args.json {
        render::json(&listing.listed)?;
    } else if listing.listed.is_empty() && listing.refused.is_empty() {
        let known: Vec<_> =
            store.pins().pins().iter().map(|p| format!("{}@{}", p.provider, p.version)).collect();
        render::out(&format!(
            "nothing is installed; `stockade provision {}` installs it\n",
            known.join("`, `")
        ))?;
    } else {
        for l in &listing.listed {
            render::out(&format!(
                "{}@{} {} {} ({})\n",
                l.provider,
                l.version,
                l.sha256,
                l.path.display(),
                l.pin.id()
            ))?;
        }
    }
    for e in listing.refused {
        render::error(&CliError::from(e), args.json);
    }
    Ok(exit_code::OK)
}

fn provision(
    store: &Store,
    spec: &str,
    args: &ProvisionArgs,
    world: &World,
    verbosity: Verbosity,
) -> Result<u8, CliError> {
    let mut spec: ProviderSpec = spec.parse()?;
    if spec.version.is_none() {
        spec.version = store.pins().default_for(&spec.provider).map(|p| p.version.clone());
    }
    let sha256 = args.sha256.as_deref().map(str::parse::<Sha256Digest>).transpose()?;
    let request = ProvisionRequest {
        spec,
        from: args.from.clone(),
        sha256,
        network: network(world),
        installed_at: stockade_lane::wall_time(),
    };
    let cancelled = Arc::new(AtomicBool::new(false));
    signals::set_on_stop(Arc::clone(&cancelled)).map_err(|e| {
        CliError::new(
            exit_code::CHECK_FAILED,
            "signals",
            stockade_core::status::Boundary::Host,
            e.to_string(),
        )
    })?;
    let bar = bar(verbosity);
    let mut watch = |p: Progress| {
        show(&bar, p);
        if cancelled.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let done = store.provision(&request, &mut watch);
    bar.finish_and_clear();
    let done = done?;
    let verified = store.verify(&done.installed)?;
    if args.json {
        let listing = store.list()?;
        let one: Vec<_> = listing
            .listed
            .into_iter()
            .filter(|l| l.provider == done.installed.provider && l.version == done.installed.version)
            .collect();
        render::json(&one)?;
    } else if verbosity > Verbosity::Quiet {
        let word = match done.outcome {
            Outcome::Installed => "installed",
            Outcome::AlreadyInstalled => "already installed",
            Outcome::Replaced => "replaced: what was there differed from its pin",
        };
        render::say(&format!(
            "{}@{} {word}\n  {}\n  sha256 {} ({})\n",
            done.installed.provider,
            done.installed.version,
            verified.path.display(),
            verified.sha256,
            verified.pin.id()
        ));
    }
    Ok(exit_code::OK)
}

/// The registry by way of the proxy and certificates that the environment names.
fn network(world: &World) -> Network {
    let either = |a: &str, b: &str| world.get(a).or_else(|| world.get(b)).map(str::to_owned);
    Network {
        registry: NPM_REGISTRY.to_owned(),
        https_proxy: either("HTTPS_PROXY", "https_proxy"),
        no_proxy: either("NO_PROXY", "no_proxy"),
        ssl_cert_file: world.get("SSL_CERT_FILE").map(PathBuf::from),
        ssl_cert_dir: world.get("SSL_CERT_DIR").map(Into::into),
    }
}

fn bar(verbosity: Verbosity) -> ProgressBar {
    if verbosity == Verbosity::Quiet || !render::is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(0);
    let style = "{msg:<12} {bytes}/{total_bytes} {bytes_per_sec} [{wide_bar}] {eta}";
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style);
    }
    bar
}

fn show(bar: &ProgressBar, p: Progress) {
    let message = match p.phase {
        Phase::Waiting => "waiting",
        Phase::Connecting => "connecting",
        Phase::Downloading => "downloading",
        Phase::Reading => "reading",
        Phase::Unpacking => "unpacking",
        Phase::Installing => "installing",
        _ => "working",
    };
    if bar.message() != message {
        bar.set_message(message);
        bar.reset_eta();
    }
    bar.set_length(p.total.unwrap_or(p.done));
    bar.set_position(p.done);
}
