//! From flags and config files to a lane request.

use std::{collections::BTreeMap, io::Read, path::Path};

use stockade_core::{
    limits::LimitDemand,
    mode::{AccessMode, Api, NetworkPolicy, ProviderSandbox},
    network::Destination,
    order::{Expectation, Limits, PROMPT_LIMIT_BYTES, PreflightChoice, ServedModelDemand},
    survey::Rung,
};
use stockade_fence::OwnBinary;
use stockade_lane::{LaneRequest, PromptSource};

use crate::{
    cli::{FenceArgs, ModeArg, OrderArgs, SandboxArg, limits::LimitArgs},
    commands::version,
    config::{Config, Setting},
    error::CliError,
    limits,
    world::World,
};

/// A request and where its settings came from.
#[derive(Debug)]
pub(crate) struct Ordered {
    pub(crate) request: LaneRequest,
    pub(crate) settings: Vec<Setting>,
}

/// What every request needs, whatever command it is for.
pub(crate) struct Basics {
    pub(crate) provider: Option<String>,
    pub(crate) mode: Option<ModeArg>,
    pub(crate) provider_sandbox: Option<SandboxArg>,
    pub(crate) fence: FenceArgs,
    pub(crate) executable: Option<std::path::PathBuf>,
}

/// Builds the request of `run` and `plan`.
pub(crate) fn of_args(args: OrderArgs, world: &World) -> Result<Ordered, CliError> {
    let config = Config::read(world)?;
    let basics = Basics {
        provider: args.provider,
        mode: args.mode,
        provider_sandbox: args.provider_sandbox,
        fence: args.fence,
        executable: args.executable,
    };
    let mut ordered = of_basics(basics, &config, world)?;
    let name = ordered.request.provider.clone();
    let settings = &mut ordered.settings;
    let r = &mut ordered.request;
    let provider = |f: &crate::config::ConfigFile| f.providers.get(&name).cloned();
    r.model = pick(&config, settings, "model", args.model, |f| provider(f).and_then(|p| p.model));
    r.effort = pick(&config, settings, "effort", args.effort, |f| provider(f).and_then(|p| p.effort));
    let named =
        Endpoint { url: args.endpoint, key_env: args.key_env, api: args.api.map(Into::into), ca: args.ca };
    endpoint(named, &config, settings, r);
    (r.network, r.allow) = network(args.network.map(Into::into), &args.allow, &config, settings)?;
    let timeout = config.pick_time(args.timeout, "timeout", |f| f.defaults.timeout.clone())?;
    if let Some((time, source)) = timeout {
        remember(settings, "timeout", &shown(time.0), source);
        r.limits.timeout_ms = time.0;
    }
    let idle = config.pick_time(args.idle_timeout, "idle_timeout", |f| f.defaults.idle_timeout.clone())?;
    if let Some((time, source)) = idle {
        remember(settings, "idle_timeout", &shown(time.0), source);
        r.limits.idle_timeout_ms = time.0;
    }
    limits::apply(&args.limits, &config, settings, r)?;
    limits::apply_budget(&args.budget, &config, settings, r)?;
    r.prices = config.merged(|f| provider(f).map(|p| p.prices));
    if args.require_served_model {
        r.served_model = ServedModelDemand::Required;
    }
    r.expect = args.expect.map(Into::into).unwrap_or_default();
    if let Some(cwd) = args.cwd {
        r.cwd = cwd;
    }
    r.prompt = prompt(&args.prompt)?;
    r.instructions = args.instructions;
    r.pass_env = args.pass_env;
    r.reads = args.reads;
    r.writes = args.writes;
    r.in_place = args.in_place;
    r.worktree = args.worktree.map(Into::into);
    r.include_dirty = args.include_dirty;
    r.git_author = args.git_author;
    r.profile = args.profile;
    Ok(ordered)
}

/// Completes a request of another runner's command line: what that has no flags for comes from config files.
pub(crate) fn with_configured_endpoint(
    mut ordered: Ordered,
    config: &Config,
) -> Result<LaneRequest, CliError> {
    let settings = &mut ordered.settings;
    let r = &mut ordered.request;
    endpoint(Endpoint::default(), config, settings, r);
    (r.network, r.allow) = network(None, &[], config, settings)?;
    limits::apply(&LimitArgs::default(), config, settings, r)?;
    Ok(ordered.request)
}

/// Where the model is, as far as flags say.
#[derive(Default)]
struct Endpoint {
    url: Option<String>,
    key_env: Option<String>,
    api: Option<Api>,
    ca: Option<std::path::PathBuf>,
}

fn endpoint(named: Endpoint, config: &Config, settings: &mut Vec<Setting>, r: &mut LaneRequest) {
    let name = r.provider.clone();
    let provider = |f: &crate::config::ConfigFile| f.providers.get(&name).cloned();
    r.endpoint = pick(config, settings, "endpoint", named.url, |f| provider(f).and_then(|p| p.endpoint));
    r.key_env = pick(config, settings, "key_env", named.key_env, |f| provider(f).and_then(|p| p.key_env));
    r.api = config
        .pick(named.api, |f| provider(f).and_then(|p| p.api))
        .map(|(api, source)| (remember(settings, "api", api.id(), source), api).1);
    r.ca = config.pick(named.ca, |f| provider(f).and_then(|p| p.ca)).map(|(ca, _)| ca);
}

/// Builds a request from what `doctor` and `rehearse` share with `run`.
pub(crate) fn of_basics(basics: Basics, config: &Config, world: &World) -> Result<Ordered, CliError> {
    let mut settings = Vec::new();
    let provider = pick(config, &mut settings, "provider", basics.provider, |f| f.defaults.provider.clone())
        .ok_or_else(|| {
            let names = stockade_providers::built_in().iter().map(|b| b.name).collect::<Vec<_>>().join(", ");
            CliError::usage(
                "provider-missing",
                "no provider is named",
                format!("say `--provider NAME`, one of: {names}"),
            )
        })?;
    let mode = config.pick(basics.mode.map(AccessMode::from), |f| f.defaults.mode);
    let (mode, source) = mode.unwrap_or((AccessMode::ReadOnly, "default".to_owned()));
    remember(&mut settings, "mode", mode.id(), source);
    let chosen = config.pick(basics.provider_sandbox.map(ProviderSandbox::from), |f| {
        f.providers.get(&provider).and_then(|p| p.provider_sandbox).or(f.defaults.provider_sandbox)
    });
    let (sandbox, sandbox_source) = chosen.unwrap_or((ProviderSandbox::Keep, "default".to_owned()));
    remember(&mut settings, "provider_sandbox", sandbox.id(), sandbox_source.clone());
    if sandbox == ProviderSandbox::Replace
        && let Some(file) = config.forbidden(|p| p.forbid_replace)
    {
        return Err(CliError::usage(
            "replace-forbidden",
            format!("`{file}` forbids `--provider-sandbox replace`"),
            "use `keep`, or ask whoever owns that file",
        ));
    }
    if basics.executable.is_some()
        && let Some(file) = config.forbidden(|p| p.forbid_unlisted_pins)
    {
        return Err(CliError::usage(
            "unlisted-pins-forbidden",
            format!("`{file}` forbids executables that are not on Stockade's own pin list"),
            "leave out `--executable`",
        ));
    }
    let rung = config.pick(basics.fence.rung.map(Rung::from), |f| f.defaults.rung).map(|(rung, source)| {
        remember(&mut settings, "rung", rung.id(), source);
        rung
    });
    let mut request = bare(provider, config, world)?;
    request.executable = basics.executable;
    request.mode = mode;
    request.provider_sandbox = sandbox;
    request.provider_sandbox_source = sandbox_source;
    request.rung = rung;
    request.accept_missing = basics.fence.accept_missing;
    Ok(Ordered { request, settings })
}

/// The request of `fence check`: no agent is started, so that none of an agent's settings matters.
pub(crate) fn of_no_agent(config: &Config, world: &World) -> Result<LaneRequest, CliError> {
    let provider = stockade_providers::built_in().first().map(|b| b.name.to_owned()).unwrap_or_default();
    let mut request = bare(provider, config, world)?;
    request.provider_sandbox = ProviderSandbox::Replace;
    Ok(request)
}

/// A request in which nothing is said yet.
fn bare(provider: String, config: &Config, world: &World) -> Result<LaneRequest, CliError> {
    Ok(LaneRequest {
        state_root: world.state_root()?,
        home: world.home(),
        environment: world.environment().clone(),
        provider,
        profile: None,
        executable: None,
        model: None,
        effort: None,
        mode: AccessMode::ReadOnly,
        cwd: ".".into(),
        in_place: false,
        worktree: None,
        include_dirty: false,
        git_author: None,
        prompt: PromptSource::Given(b"doctor".to_vec()),
        instructions: None,
        output: None,
        receipt: None,
        pass_env: Vec::new(),
        reads: Vec::new(),
        writes: Vec::new(),
        endpoint: None,
        api: None,
        key_env: None,
        ca: None,
        network: NetworkPolicy::Model,
        allow: Vec::new(),
        provider_sandbox: ProviderSandbox::Keep,
        provider_sandbox_source: "default".to_owned(),
        preflight: PreflightChoice::LeftOut,
        rung: None,
        accept_missing: Vec::new(),
        limits: Limits::default(),
        require_limits: LimitDemand::Reported,
        prices: BTreeMap::new(),
        served_model: ServedModelDemand::Reported,
        expect: Expectation::Answer,
        only_listed_pins: config.forbidden(|p| p.forbid_unlisted_pins).map(str::to_owned),
        rehearsal: None,
        own_binary: OwnBinary::Absent,
        commit: version::COMMIT.map(str::to_owned),
    })
}

/// The policy and its list: hosts named by flags imply the policy, and a list of a file serves it where flags name none.
fn network(
    flag: Option<NetworkPolicy>,
    named: &[String],
    config: &Config,
    settings: &mut Vec<Setting>,
) -> Result<(NetworkPolicy, Vec<Destination>), CliError> {
    let implied = (!named.is_empty()).then_some(NetworkPolicy::Allow);
    let policy = match config.pick(flag.or(implied), |f| f.defaults.network) {
        Some((policy, source)) => {
            remember(settings, "network", policy.id(), source);
            policy
        }
        None => NetworkPolicy::Model,
    };
    let listed = named.iter().map(|text| destination(text)).collect::<Result<Vec<_>, _>>()?;
    let flag = (!listed.is_empty()).then_some(listed);
    let from_files =
        |f: &crate::config::ConfigFile| f.defaults.allow.clone().filter(|_| policy == NetworkPolicy::Allow);
    let Some((listed, source)) = config.pick(flag, from_files) else { return Ok((policy, Vec::new())) };
    let shown: Vec<String> = listed.iter().map(ToString::to_string).collect();
    remember(settings, "allow", &shown.join(", "), source);
    Ok((policy, listed))
}

fn destination(text: &str) -> Result<Destination, CliError> {
    Destination::parse(text).map_err(|e| {
        // Not repeated where it may hold a password.
        let shown =
            if text.contains('@') { "a value".to_owned() } else { format!("`{}`", text.escape_debug()) };
        CliError::usage(
            "allow-destination",
            format!("{shown} of `--allow` is no destination: {e}"),
            "give HOST[:PORT], such as registry.example or 10.1.2.3:8443",
        )
    })
}

fn pick(
    config: &Config,
    settings: &mut Vec<Setting>,
    name: &str,
    flag: Option<String>,
    from: impl Fn(&crate::config::ConfigFile) -> Option<String>,
) -> Option<String> {
    let (value, source) = config.pick(flag, from)?;
    remember(settings, name, &value, source);
    Some(value)
}

fn remember(settings: &mut Vec<Setting>, name: &str, value: &str, source: String) {
    settings.push(Setting { name: name.to_owned(), value: value.to_owned(), source });
}

fn shown(ms: Option<u64>) -> String {
    ms.map_or_else(|| "none".to_owned(), |ms| format!("{ms}ms"))
}

fn prompt(path: &Path) -> Result<PromptSource, CliError> {
    if path != Path::new("-") {
        return Ok(PromptSource::File(path.to_owned()));
    }
    let mut bytes = Vec::new();
    // One byte more than is taken tells "too large" from "just fits".
    std::io::stdin().lock().take(PROMPT_LIMIT_BYTES + 1).read_to_end(&mut bytes).map_err(|e| {
        CliError::usage(
            "prompt-unreadable",
            format!("standard input cannot be read: {e}"),
            "name a file with `--prompt`",
        )
    })?;
    Ok(PromptSource::Given(bytes))
}
