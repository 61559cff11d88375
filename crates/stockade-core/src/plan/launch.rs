//! Puts a launch plan together once everything is settled.

use std::{collections::BTreeMap, path::PathBuf};

use super::{
    LaunchPlan, LoadedProfile, Mount, MountSource, PlannedClass, PlannedEndpoint, PlannedExecutable,
    PlannedIdentity, PlannedModel, PlannedPreflight, PlannedPrompt, PlannedSandbox, PlannedWire,
    ProfileFacts, limits, own_sandbox, route, rungs::Footing,
};
use crate::{
    budget::Price,
    git,
    mode::{AccessMode, NetworkPolicy, ProviderSandbox},
    network::{self, Destination, Host},
    order::{Order, Pin, PreflightChoice, WorkspaceKind, base_environment},
    profile::{Models, Profile, PromptDelivery, RequestClass},
    status::{Boundary, Cause, Refusal},
    survey::{Rung, Survey},
    template,
};

/// The private home inside the fence.
pub const HOME: &str = "/home/agent";
/// Where in the home the authorities of a run are.
pub const AUTHORITIES: &str = "authorities.pem";
/// The provider's folder inside the fence.
pub const PROVIDER_FOLDER: &str = "/provider";

pub(super) fn assemble(
    order: &Order,
    pin: &Pin,
    survey: &Survey,
    loaded: &LoadedProfile,
    footing: Footing,
) -> Result<LaunchPlan, Refusal> {
    let profile = &loaded.profile;
    let model = planned_model(order, profile);
    let prompt_file = match &profile.launch.prompt {
        PromptDelivery::File { path } => Some(path.clone()),
        PromptDelivery::Stdin => None,
    };
    let instructions_file =
        profile.launch.instructions_file.as_ref().filter(|_| order.instructions.is_some());
    let in_home = |path: Option<&String>| path.map(|p| format!("{HOME}/{p}")).unwrap_or_default();
    let base = route::base(order, profile);
    let cwd = order.workspace.path.display().to_string();
    let reaching = reaching(order);
    let values = BTreeMap::from([
        ("home", HOME.to_owned()),
        ("cwd", cwd.clone()),
        ("cwd_encoded", template::percent_encode(&cwd)),
        ("session", order.session.clone()),
        ("model", model.asked.clone()),
        ("effort", order.effort.clone().unwrap_or_default()),
        ("base_url", format!("{base}/v1")),
        ("base_origin", base),
        ("placeholder_key", order.listener.placeholder_key.clone()),
        ("prompt_file", in_home(prompt_file.as_ref())),
        ("instructions", order.instructions.clone().unwrap_or_default()),
        ("instructions_file", in_home(instructions_file)),
        ("instructions_toml", template::toml_string(order.instructions.as_deref().unwrap_or_default())),
        ("provider", PROVIDER_FOLDER.to_owned()),
        ("proxy_toml", network::toml_table(&reaching)),
    ]);
    let fill = |text: &String| template::fill(text, &values).map_err(|e| bad_profile(profile, &e));
    let executable_name = pin
        .path
        .file_name()
        .map_or_else(|| profile.launch.executable.clone(), |n| n.to_string_lossy().into_owned());
    let inside = PathBuf::from(format!("{PROVIDER_FOLDER}/{executable_name}"));
    let mut argv = vec![inside.display().to_string()];
    for part in argv_parts(order, profile) {
        argv.push(fill(part)?);
    }
    let mut env = base_environment();
    for (name, value) in &profile.launch.env {
        env.insert(name.clone(), fill(value)?);
    }
    env.extend(reaching.into_iter().map(|(name, value)| (name.to_owned(), value)));
    let mut home_files = BTreeMap::new();
    for file in &profile.home_files {
        home_files.insert(file.path.clone(), fill(&file.content)?);
    }
    if let (Some(file), Some(text)) = (instructions_file, &order.instructions) {
        home_files.insert(file.clone(), text.clone());
    }
    if order.workspace.git.is_some() {
        // Whoever owns the files on the host: git would not touch what belongs to another number inside.
        home_files.entry(".gitconfig".to_owned()).or_insert_with(|| trusting(&cwd));
    }
    let mut probe = Vec::new();
    for part in probe_parts(order, profile) {
        if probe.is_empty() {
            probe.push(inside.display().to_string());
        }
        probe.push(fill(part)?);
    }
    let preflight = match (&profile.launch.preflight, order.preflight) {
        (Some(command), PreflightChoice::Asked) => {
            let mut argv = vec![inside.display().to_string()];
            for part in &command.argv {
                argv.push(fill(part)?);
            }
            Some(PlannedPreflight {
                argv,
                unauthenticated: command.unauthenticated.clone(),
                words: command.words.iter().map(fill).collect::<Result<_, _>>()?,
                retry_after_ms: command.retry_after_ms,
            })
        }
        _ => None,
    };
    let session_log = profile.output.session_log.as_ref().map(fill).transpose()?;
    let api = order
        .endpoint
        .api
        .or_else(|| profile.vendor.apis.first().copied())
        .ok_or_else(|| bad_profile(profile, &"no API is listed"))?;
    let mut notes = Vec::new();
    if model.source == "profile-default" {
        notes.push(format!("model `{}`: the default of the profile, since none was ordered", model.asked));
    }
    if model.requested_as != model.asked {
        notes.push(format!("model `{}`: `{}`, by the profile", model.asked, model.requested_as));
    }
    let tunnel = route::tunnel(order, profile);
    notes.extend(tunnel.as_ref().map(route::note));
    for destination in &order.allow {
        if let Host::Address(address) = destination.host
            && let Some(what) = network::kept_from(address)
        {
            notes.push(format!("`{destination}` is {what} and can be reached, because it is listed as such"));
        }
    }
    let Footing { rung, rejected, guarantees, limits: held_limits } = footing;
    for trial in &rejected {
        if let Some(r) = &trial.refused {
            notes.push(format!(
                "rung `{}` does not stand here: {} {}",
                trial.rung.id(),
                r.step,
                r.errno_name
            ));
        }
    }
    for g in guarantees.iter().filter(|g| g.required && !g.held) {
        notes.push(format!("`{}` is missing, as the caller accepted: {}", g.id.id(), g.mechanism));
    }
    Ok(LaunchPlan {
        provider: profile.name.clone(),
        profile: ProfileFacts {
            name: profile.name.clone(),
            version: profile.version,
            digest: loaded.digest.clone(),
        },
        executable: PlannedExecutable {
            path: pin.path.clone(),
            inside,
            version: pin.version.clone(),
            sha256: pin.sha256.clone(),
            pin: pin.kind,
        },
        model,
        effort: order.effort.clone(),
        mode: order.mode,
        cwd: order.workspace.path.clone(),
        rung,
        nesting: rung.nests(),
        rejected_rungs: rejected,
        identity: identity(order, survey, rung),
        guarantees,
        provider_sandbox: PlannedSandbox {
            choice: order.provider_sandbox,
            source: order.provider_sandbox_source.clone(),
            probe,
            residue: if own_sandbox::is_kept(order, profile) {
                profile.sandbox.residue.clone()
            } else {
                Vec::new()
            },
            has_own_processes: profile.sandbox.has_own_processes,
        },
        preflight,
        git: order.workspace.git.clone(),
        mounts: mounts(order),
        argv,
        env,
        passed_env: order.pass_env.clone(),
        home_files,
        prompt: PlannedPrompt { text: order.prompt.clone(), file: prompt_file },
        network: order.network,
        allow: order.allow.clone(),
        authorities: trusts_more(order).then(|| AUTHORITIES.to_owned()),
        endpoint: PlannedEndpoint {
            url: order.endpoint.url.clone().unwrap_or_else(|| profile.vendor.endpoint.clone()),
            source: if order.endpoint.url.is_some() { "order" } else { "profile-vendor" }.to_owned(),
            api,
            key_env: order.endpoint.key_env.clone(),
            credential: profile.vendor.credential,
            ca: order.endpoint.ca.clone(),
        },
        wire: wire(order, profile, tunnel),
        expect: order.expect,
        limits: order.limits.clone(),
        cgroups: limits::groups(&held_limits, survey),
        held_limits,
        stop: profile.stop.clone(),
        session: order.session.clone(),
        session_log,
        idle_cpu_percent: profile.output.idle_cpu_percent,
        placeholder_key: order.listener.placeholder_key.clone(),
        unproven: profile.unproven.iter().cloned().chain(route::unproven(profile)).collect(),
        notes,
    })
}

/// What the gateway lets through. Where the agent speaks to its model itself, nothing passes the model listener.
fn wire(order: &Order, profile: &Profile, tunnel: Option<Destination>) -> PlannedWire {
    let wire = &profile.wire;
    let class = |c: &RequestClass| PlannedClass { name: c.name.clone(), tools: c.tools(order.mode).to_vec() };
    let mut planned = PlannedWire {
        tunnel,
        model_paths: wire.model_paths.clone(),
        classes: wire.classes.iter().map(class).collect(),
        side_requests: wire.side_requests.clone(),
        failures_before_stop: wire.failures_before_stop,
        stop_header: wire.stop_header.clone(),
        stop_status: wire.stop_status,
    };
    if planned.tunnel.is_some() {
        planned.model_paths.clear();
        planned.classes.clear();
        planned.side_requests.clear();
    }
    planned
}

/// Whether programs inside are told of an extra authority: where they reach servers themselves.
fn trusts_more(order: &Order) -> bool {
    order.network.reaches_servers() && order.endpoint.ca.is_some()
}

/// The variables by which programs inside reach what the policy names.
fn reaching(order: &Order) -> Vec<(&'static str, String)> {
    let mut environment = Vec::new();
    if order.network == NetworkPolicy::Allow {
        environment.extend(network::proxy_environment());
    }
    if trusts_more(order) {
        environment.extend(network::authority_environment(&format!("{HOME}/{AUTHORITIES}")));
    }
    environment
}

/// A configuration of git's that takes a folder for the agent's own.
fn trusting(folder: &str) -> String {
    let quoted = folder.replace('\\', "\\\\").replace('"', "\\\"");
    format!("[safe]\n\tdirectory = \"{quoted}\"\n")
}

fn planned_model(order: &Order, profile: &Profile) -> PlannedModel {
    let asked = order.model.clone().unwrap_or_else(|| profile.models.default.clone());
    let requested_as = profile.models.aliases.get(&asked).unwrap_or(&asked).clone();
    let mut served_as = vec![requested_as.clone()];
    served_as.extend(profile.models.served_as.get(&requested_as).into_iter().flatten().cloned());
    served_as.extend(profile.models.served_suffixes.iter().map(|suffix| format!("{requested_as}{suffix}")));
    let source = if order.model.is_some() { "order" } else { "profile-default" };
    let price = price(order, profile);
    let served_model = order.served_model;
    PlannedModel { asked, source: source.to_owned(), requested_as, served_as, served_model, price }
}

/// What the ordered model costs. A vendor's prices say nothing about another endpoint's.
pub(super) fn price(order: &Order, profile: &Profile) -> Option<Price> {
    let Models { default, aliases, prices, .. } = &profile.models;
    let asked = order.model.as_ref().unwrap_or(default);
    let vendors = || prices.get(asked).or_else(|| prices.get(aliases.get(asked)?)).copied();
    order.price.or_else(|| vendors().filter(|_| order.endpoint.url.is_none()))
}

fn argv_parts<'p>(order: &Order, profile: &'p Profile) -> Vec<&'p String> {
    let l = &profile.launch;
    let mode = match order.mode {
        AccessMode::ReadOnly => &l.read_only_argv,
        AccessMode::IsolatedWrite => &l.isolated_write_argv,
    };
    let sandbox = match (order.provider_sandbox, order.mode) {
        (ProviderSandbox::Replace, _) => &l.replace_argv,
        (ProviderSandbox::Keep, AccessMode::ReadOnly) => &l.keep_read_only_argv,
        (ProviderSandbox::Keep, AccessMode::IsolatedWrite) => &l.keep_isolated_write_argv,
    };
    let mut parts: Vec<&String> = l.argv.iter().chain(sandbox).chain(mode).collect();
    if order.effort.is_some() {
        parts.extend(&l.effort_argv);
    }
    if order.instructions.is_some() {
        parts.extend(&l.instructions_argv);
    }
    parts
}

/// What asks the provider's own sandbox whether it works, where it is kept.
fn probe_parts<'p>(order: &Order, profile: &'p Profile) -> &'p [String] {
    match (order.provider_sandbox, order.mode) {
        (ProviderSandbox::Replace, _) => &[],
        (ProviderSandbox::Keep, AccessMode::ReadOnly) => &profile.sandbox.read_only_probe,
        (ProviderSandbox::Keep, AccessMode::IsolatedWrite) => &profile.sandbox.isolated_write_probe,
    }
}

pub(super) fn identity(order: &Order, survey: &Survey, rung: Rung) -> PlannedIdentity {
    let ws = &order.workspace;
    if !survey.caller.is_kernel_root() {
        return PlannedIdentity::Caller;
    }
    if rung == Rung::Bs {
        return PlannedIdentity::KernelRoot { reason: "bubblewrap maps no owners".to_owned() };
    }
    if !survey.caller.is_root_host() {
        return PlannedIdentity::KernelRoot { reason: "root without CAP_SYS_ADMIN".to_owned() };
    }
    match &ws.idmap_refused {
        Some(r) => PlannedIdentity::KernelRoot { reason: format!("{} {}", r.step, r.errno_name) },
        // Files made for the run are nobody's yet.
        None if ws.is_replaced() => PlannedIdentity::PrivateUid,
        None if ws.owner_uid != 0 => PlannedIdentity::WorkspaceOwner { uid: ws.owner_uid, gid: ws.owner_gid },
        None => PlannedIdentity::PrivateUid,
    }
}

/// Everything that is mounted beside the system's folders.
pub(super) fn mounts(order: &Order) -> Vec<Mount> {
    let ws = &order.workspace;
    let writable = order.mode == AccessMode::IsolatedWrite;
    let mut mounts = vec![
        Mount { source: MountSource::Provider, target: PathBuf::from(PROVIDER_FOLDER), writable: false },
        Mount { source: MountSource::Home, target: PathBuf::from(HOME), writable: true },
        Mount {
            source: if ws.is_replaced() { MountSource::MadeWorktree } else { MountSource::Workspace },
            target: ws.path.clone(),
            writable,
        },
    ];
    let entry = ws.path.join(".git");
    if writable && ws.kind != WorkspaceKind::Plain && ws.git.as_ref().is_none_or(|g| g.shown_at != entry) {
        mounts.push(Mount { source: MountSource::GitEntry, target: entry, writable: false });
    }
    if let Some(git) = &ws.git {
        mounts.push(Mount { source: MountSource::GitFolder, target: git.shown_at.clone(), writable });
        mounts.push(Mount {
            source: MountSource::GitObjects,
            target: PathBuf::from(git::OBJECTS),
            writable: false,
        });
    }
    let extra = |paths: &[PathBuf], writable: bool| {
        paths
            .iter()
            .map(|p| Mount { source: MountSource::Path { path: p.clone() }, target: p.clone(), writable })
            .collect::<Vec<_>>()
    };
    mounts.extend(extra(&order.reads, false));
    mounts.extend(extra(&order.writes, true));
    mounts
}

fn bad_profile(profile: &Profile, why: &impl std::fmt::Display) -> Refusal {
    Refusal::usage(
        Cause::new(
            "profile",
            Boundary::Order,
            "profile",
            format!("the profile of `{}` cannot be used: {why}", profile.name),
        )
        .with_remedy("correct the file named by `--profile`"),
    )
}
