//! Admission: everything about an order that can be known without creating anything.
//!
//! What fails here is a usage error: exit 64, no receipt, nothing created. What is wrong with the workspace itself is
//! kept as an objection, because such an order ends with a receipt.

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
};

use stockade_core::{
    git::WorkTree,
    mode::{AccessMode, NetworkPolicy},
    network,
    order::{
        EndpointOrder, Listener, Order, PROMPT_LIMIT_BYTES, TextFacts, Workspace, WorkspaceKind,
        WorkspaceObjection,
    },
    plan::LoadedProfile,
    profile::Profile,
    status::{Boundary, Cause, Refusal, Status},
    survey::Refused,
    text,
};
use stockade_fence::survey::{Extent, Measuring, SurveyRequest};
use stockade_journal::{
    digest::sha256_hex,
    walk::{self, WorkspaceSurvey},
};

use crate::{
    exposure,
    repository::{self, Found, Served},
    request::{LaneRequest, PromptSource},
    settings, writable,
};

/// The longest instructions file that is read, in bytes; profiles ask for less.
const INSTRUCTIONS_LIMIT_BYTES: u64 = 1024 * 1024;
/// The longest certificate file that is read, in bytes.
const CA_LIMIT_BYTES: u64 = 1024 * 1024;
/// Variables that Stockade sets itself in every fence.
const OWN_VARIABLES: [&str; 9] = ["HOME", "USER", "LOGNAME", "PATH", "SHELL", "TMPDIR", "LANG", "TERM", "TZ"];

/// An order that was admitted, with the texts that belong to it.
#[derive(Debug)]
pub(crate) struct Admitted {
    /// The order.
    pub(crate) order: Order,
    /// The profile.
    pub(crate) profile: LoadedProfile,
    /// The prompt.
    pub(crate) prompt: Vec<u8>,
    /// Extra certificates, PEM.
    pub(crate) ca_pem: Option<Vec<u8>>,
    /// The host's authorities and the extra ones (PEM), where programs inside are told to trust them.
    pub(crate) authorities: Option<Vec<u8>>,
    /// The workspace before the run; `None` for a folder that is no workspace.
    pub(crate) before: Option<walk::Snapshot>,
    /// The repository, where git works inside the fence.
    pub(crate) served: Option<Served>,
    /// Notes for the receipt.
    pub(crate) notes: Vec<String>,
}

/// Begins the survey that a request needs. It goes on beside the admission.
pub(crate) fn survey(request: &LaneRequest, extent: Extent) -> Measuring {
    Measuring::begin(SurveyRequest { path: request.environment.get("PATH").map(Into::into), extent })
}

/// Checks a request and reads what it names.
pub(crate) fn admit(
    request: &LaneRequest,
    session: &str,
    listener: Listener,
    measuring: &Measuring,
) -> Result<Admitted, Refusal> {
    let profile = profile(request)?;
    let prompt = prompt(&request.prompt)?;
    let text = text_of(&prompt)?;
    if text.trim().is_empty() {
        return Err(Refusal::usage(
            usage("prompt-empty", "prompt", "the prompt is empty".to_owned())
                .with_remedy("write what the agent is to do into the file named by `--prompt`"),
        ));
    }
    if let Some(command) = stockade_providers::command_in_prompt(&profile.profile, text) {
        return Err(Refusal::usage(
            usage(
                "prompt-is-command",
                "prompt",
                format!("{} would run `{command}` as a command of its own", profile.profile.title),
            )
            .with_remedy("begin the prompt with another word"),
        ));
    }
    let instructions = request.instructions.as_deref().map(instructions).transpose()?;
    let ca = request.ca.as_deref().map(|p| canonical("ca", p)).transpose()?;
    let ca_pem =
        ca.as_deref().map(|p| read_bounded("ca", "certificate file", p, CA_LIMIT_BYTES)).transpose()?;
    let authorities = authorities(request, ca_pem.as_deref())?;
    let homes = exposure::homes(request.home.as_deref());
    let reads = exposed("read", &request.reads, &homes, &request.state_root)?;
    let writes = exposed("write", &request.writes, &homes, &request.state_root)?;
    let mut notes = Vec::new();
    passed_variables(request, &profile, &mut notes)?;
    let (workspace, before, served) = workspace(request, &profile.profile, &homes, measuring, &mut notes)?;
    writable::check(&request.writes, &writes, &workspace, measuring)?;
    let key = request.key_env.as_ref().and_then(|name| request.environment.get(name));
    let order = Order {
        provider: profile.profile.name.clone(),
        model: request.model.clone(),
        effort: request.effort.clone(),
        mode: request.mode,
        workspace,
        prompt: facts_of(&prompt),
        instructions,
        reads,
        writes,
        pass_env: request.pass_env.clone(),
        endpoint: EndpointOrder {
            url: request.endpoint.clone(),
            api: request.api,
            key_env: request.key_env.clone(),
            key_present: key.is_some_and(|k| !k.trim().is_empty()),
            ca,
        },
        network: request.network,
        allow: listed_once(&request.allow),
        provider_sandbox: request.provider_sandbox,
        provider_sandbox_source: request.provider_sandbox_source.clone(),
        preflight: request.preflight,
        rung: request.rung,
        accept_missing: request.accept_missing.clone(),
        limits: request.limits.clone(),
        require_limits: request.require_limits,
        price: request.prices.get(request.model.as_ref().unwrap_or(&profile.profile.models.default)).copied(),
        served_model: request.served_model,
        expect: request.expect,
        session: session.to_owned(),
        listener,
    };
    stockade_core::plan::check_order(&order, &profile.profile)?;
    Ok(Admitted { order, profile, prompt, ca_pem, authorities, before, served, notes })
}

/// Whether programs inside reach servers themselves and are to trust one more authority.
fn trusts_more(request: &LaneRequest) -> bool {
    request.network.reaches_servers() && request.ca.is_some()
}

/// The file of authorities for programs inside, where they need one.
fn authorities(request: &LaneRequest, extra: Option<&[u8]>) -> Result<Option<Vec<u8>>, Refusal> {
    let Some(extra) = extra.filter(|_| trusts_more(request)) else { return Ok(None) };
    stockade_gateway::authorities_pem(extra).map(Some).map_err(|e| {
        Refusal::usage(
            usage("ca-unusable", "ca", e.to_string())
                .with_remedy("name a file of certificates in PEM with `--ca FILE`"),
        )
    })
}

/// Named twice is named once.
fn listed_once(named: &[network::Destination]) -> Vec<network::Destination> {
    let mut listed = Vec::new();
    for destination in named {
        if !listed.contains(destination) {
            listed.push(destination.clone());
        }
    }
    listed
}

fn facts_of(bytes: &[u8]) -> TextFacts {
    TextFacts { bytes: bytes.len() as u64, sha256: sha256_hex(bytes) }
}

fn usage(code: &str, step: &str, message: String) -> Cause {
    Cause::new(code, Boundary::Order, step, message)
}

fn io_refusal(code: &str, step: &str, what: &str, path: &Path, e: &std::io::Error) -> Refusal {
    Refusal::usage(
        usage(code, step, format!("{what} `{}` cannot be read: {}", path.display(), reason(e)))
            .with_errno(e.raw_os_error().unwrap_or(0))
            .with_remedy("check the path and its permissions"),
    )
    .with_path(path)
}

/// The reason of an error without its number, which stands beside it.
pub(crate) fn reason(e: &std::io::Error) -> String {
    let text = e.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_lowercase()
}

fn profile(request: &LaneRequest) -> Result<LoadedProfile, Refusal> {
    if let Some(path) = &request.profile {
        let bytes = read_bounded("profile", "profile", path, 1024 * 1024)?;
        let text = String::from_utf8_lossy(&bytes);
        let parsed = stockade_providers::parse(&text).map_err(|e| {
            Refusal::usage(
                usage("profile", "profile", format!("the profile `{}` cannot be used: {e}", path.display()))
                    .with_remedy("correct the line named"),
            )
        })?;
        if parsed.profile.name != request.provider {
            return Err(Refusal::usage(
                usage(
                    "profile-provider",
                    "profile",
                    format!(
                        "the profile `{}` is of `{}`, but `{}` was ordered",
                        path.display(),
                        parsed.profile.name,
                        request.provider
                    ),
                )
                .with_remedy(format!("say `--provider {}`", parsed.profile.name)),
            ));
        }
        return Ok(parsed);
    }
    let built_in = stockade_providers::find(&request.provider).ok_or_else(|| {
        let names = stockade_providers::built_in().iter().map(|b| b.name).collect::<Vec<_>>();
        Refusal::usage(
            usage(
                "provider-unknown",
                "provider",
                format!("there is no provider `{}`", text::head(&request.provider, 80)),
            )
            .with_remedy(format!("one of: {}", names.join(", "))),
        )
    })?;
    built_in.load().map_err(|e| {
        Refusal::new(
            Status::LauncherFailed,
            Cause::new(
                "profile",
                Boundary::Order,
                "profile",
                format!("a built-in profile cannot be read: {e}"),
            ),
        )
    })
}

fn prompt(source: &PromptSource) -> Result<Vec<u8>, Refusal> {
    match source {
        PromptSource::Given(bytes) => Ok(bytes.clone()),
        PromptSource::File(path) => {
            // One byte more than the limit is read, so that the plan can tell "too large" from "just fits".
            let bytes = read_bounded("prompt", "prompt", path, u64::MAX)?;
            Ok(bytes)
        }
    }
}

/// The prompt as text. It reaches the model inside JSON, which holds nothing else: an agent would refuse or change it.
fn text_of(prompt: &[u8]) -> Result<&str, Refusal> {
    std::str::from_utf8(prompt).map_err(|e| {
        Refusal::usage(
            usage(
                "prompt-not-text",
                "prompt",
                format!(
                    "the prompt is not UTF-8 from byte {} of {} on, and a model is sent only text",
                    e.valid_up_to(),
                    prompt.len()
                ),
            )
            .with_remedy("convert it to UTF-8, or put the material into a file of the workspace"),
        )
    })
}

fn instructions(path: &Path) -> Result<String, Refusal> {
    let bytes = read_bounded("instructions", "instructions", path, INSTRUCTIONS_LIMIT_BYTES)?;
    String::from_utf8(bytes).map_err(|_| {
        Refusal::usage(
            usage("instructions-not-text", "instructions", format!("`{}` is not UTF-8", path.display()))
                .with_remedy("instructions travel in a configuration or an argument and have to be text"),
        )
    })
}

fn read_bounded(code: &str, what: &str, path: &Path, limit: u64) -> Result<Vec<u8>, Refusal> {
    let unreadable = |e: &std::io::Error| io_refusal(&format!("{code}-unreadable"), code, what, path, e);
    let file = fs::File::open(path).map_err(|e| unreadable(&e))?;
    let meta = file.metadata().map_err(|e| unreadable(&e))?;
    if !meta.is_file() {
        return Err(Refusal::usage(
            usage(
                &format!("{code}-no-file"),
                code,
                format!("{what} `{}` is not a regular file", path.display()),
            )
            .with_remedy("name a file"),
        )
        .with_path(path));
    }
    let limit = limit.min(PROMPT_LIMIT_BYTES.max(INSTRUCTIONS_LIMIT_BYTES));
    if meta.len() > limit {
        return Err(Refusal::usage(
            usage(
                &format!("{code}-too-large"),
                code,
                format!("{what} `{}` has {} bytes; at most {limit} are taken", path.display(), meta.len()),
            )
            .with_remedy("put the material into files of the workspace and name them in the prompt"),
        )
        .with_path(path));
    }
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes).map_err(|e| unreadable(&e))?;
    Ok(bytes)
}

fn canonical(step: &str, path: &Path) -> Result<PathBuf, Refusal> {
    let found = fs::canonicalize(path).map_err(|e| {
        Refusal::usage(
            usage(
                &format!("{step}-missing"),
                step,
                format!("`{}` cannot be used: {}", path.display(), reason(&e)),
            )
            .with_errno(e.raw_os_error().unwrap_or(0))
            .with_remedy("check the path"),
        )
        .with_path(path)
    })?;
    if found.to_str().is_none() {
        return Err(Refusal::usage(
            usage("path-not-text", step, format!("`{}` is not UTF-8", found.display()))
                .with_remedy("rename the folder"),
        ));
    }
    Ok(found)
}

fn exposed(step: &str, paths: &[PathBuf], homes: &[PathBuf], state: &Path) -> Result<Vec<PathBuf>, Refusal> {
    paths
        .iter()
        .map(|p| {
            let found = canonical(step, p)?;
            exposure::check(&found, homes, state).map_err(|e| {
                Refusal::usage(usage(e.code, step, e.message).with_remedy(e.remedy)).with_path(p)
            })?;
            Ok(found)
        })
        .collect()
}

fn passed_variables(
    request: &LaneRequest,
    profile: &LoadedProfile,
    notes: &mut Vec<String>,
) -> Result<(), Refusal> {
    for name in &request.pass_env {
        let refuse = |code: &str, message: String, remedy: &str| {
            Err(Refusal::usage(usage(code, "env", message).with_remedy(remedy)))
        };
        if name.is_empty() || name.contains(['=', '\0']) {
            return refuse("env-name", format!("`{name}` is no variable name"), "give a name, not a value");
        }
        let proxied = request.network == NetworkPolicy::Allow
            && network::proxy_environment().iter().any(|(own, _)| own == name);
        let trusting =
            trusts_more(request) && network::authority_environment("").iter().any(|(own, _)| own == name);
        if proxied
            || trusting
            || OWN_VARIABLES.contains(&name.as_str())
            || profile.profile.launch.env.contains_key(name)
        {
            return refuse(
                "env-reserved",
                format!("`{name}` is set by Stockade inside the fence"),
                "leave it out",
            );
        }
        if request.key_env.as_ref() == Some(name) {
            return refuse(
                "env-credential",
                format!("`{name}` holds the run's credential, which never enters the fence"),
                "leave it out: the gateway adds the key to each model call",
            );
        }
        if !request.environment.contains_key(name) {
            notes.push(format!("the variable `{name}` named by `--env` is not set here"));
        }
    }
    Ok(())
}

fn workspace(
    request: &LaneRequest,
    profile: &Profile,
    homes: &[PathBuf],
    measuring: &Measuring,
    notes: &mut Vec<String>,
) -> Result<(Workspace, Option<walk::Snapshot>, Option<Served>), Refusal> {
    let path = canonical("cwd", &request.cwd)?;
    if !path.is_dir() {
        return Err(Refusal::usage(
            usage("cwd-no-folder", "cwd", format!("`{}` is not a folder", path.display()))
                .with_remedy("name the folder the agent is to work in"),
        )
        .with_path(&path));
    }
    let mut objections = place_objections(&path, homes, &request.state_root);
    let unreadable = |e: &stockade_journal::JournalError| {
        Refusal::usage(
            usage("cwd-unreadable", "cwd", e.to_string())
                .with_errno(e.errno().unwrap_or(0))
                .with_remedy("check the folder's permissions"),
        )
    };
    // A folder that is no workspace at all is not walked: a home or `/` could be huge.
    let mut looked = Looked { kind: WorkspaceKind::Plain, uid: 0, gid: 0, before: None };
    let found = if objections.is_empty() { repository::look(request, &path)? } else { Found::default() };
    objections.extend(found.objections);
    notes.extend(found.notes);
    let is_replaced = found.git.as_ref().is_some_and(|g| g.tree == WorkTree::Made);
    if objections.is_empty() && is_replaced {
        // The caller's own files are not there at all: nothing about them matters.
        let linked = found.served.as_ref().is_some_and(|s| !s.repository.is_main());
        looked.kind = if linked { WorkspaceKind::LinkedWorktree } else { WorkspaceKind::MainWorktree };
    } else if objections.is_empty() {
        let (survey, before) =
            walk::survey_workspace(&path, &walk::Bounds::default()).map_err(|e| unreadable(&e))?;
        found_objections(&survey, request, &mut objections);
        objections.extend(settings::objection(&path, profile));
        objections.extend(writable::objections(&request.cwd, &path, survey.owner_uid));
        // A private git folder shows nothing of the configuration.
        if found.git.is_none() {
            objections.extend(credential_objection(&survey));
        }
        looked =
            Looked { kind: survey.kind, uid: survey.owner_uid, gid: survey.owner_gid, before: Some(before) };
    }
    let idmap_refused = if rustix::process::geteuid().is_root() && objections.is_empty() {
        let made_at = is_replaced.then(|| existing(&request.state_root));
        let folders = [Some(path.as_path()), made_at];
        let refused = folders.into_iter().flatten().find_map(|f| measuring.can_idmap(f).err());
        refused.map(|e| Refused::from(&e))
    } else {
        None
    };
    let workspace = Workspace {
        path,
        kind: looked.kind,
        owner_uid: looked.uid,
        owner_gid: looked.gid,
        in_place: request.in_place,
        git: found.git,
        idmap_refused,
        objections,
    };
    Ok((workspace, looked.before, found.served))
}

/// The part of a path that is there.
fn existing(path: &Path) -> &Path {
    path.ancestors().find(|p| p.exists()).unwrap_or(path)
}

/// What a look at the workspace gave.
struct Looked {
    kind: WorkspaceKind,
    uid: u32,
    gid: u32,
    before: Option<walk::Snapshot>,
}

fn objection(code: &str, modes: &[AccessMode], message: String, remedy: &str) -> WorkspaceObjection {
    WorkspaceObjection {
        code: code.to_owned(),
        modes: modes.to_vec(),
        message,
        evidence: Vec::new(),
        remedy: remedy.to_owned(),
    }
}

fn place_objections(path: &Path, homes: &[PathBuf], state: &Path) -> Vec<WorkspaceObjection> {
    let mut found = Vec::new();
    if path == Path::new("/") {
        found.push(objection(
            "workspace-is-root",
            &AccessMode::ALL,
            "`/` cannot be a workspace".to_owned(),
            "use a folder of its own",
        ));
    } else if exposure::is_system_folder(path) {
        found.push(objection(
            "workspace-is-system",
            &AccessMode::ALL,
            format!("`{}` is a folder of the system", path.display()),
            "use a folder of its own",
        ));
    } else if let Err(e) = exposure::check(path, homes, state) {
        let code = match e.code {
            "path-is-home" => "workspace-is-home",
            "path-holds-state" => "workspace-holds-state",
            _ => "workspace-holds-credentials",
        };
        found.push(objection(code, &AccessMode::ALL, e.message, "use a folder of its own"));
    }
    found
}

fn credential_objection(survey: &WorkspaceSurvey) -> Option<WorkspaceObjection> {
    let found = survey.git_credentials.iter().map(|c| format!("{}: {}", c.file.display(), c.key));
    let mut o = objection(
        "credential-in-git-config",
        &AccessMode::ALL,
        "the repository's configuration holds a credential that the agent could read".to_owned(),
        "move it to a credential helper (`git config --unset KEY`), then run again",
    );
    o.evidence = found.collect();
    (!o.evidence.is_empty()).then_some(o)
}

fn found_objections(survey: &WorkspaceSurvey, request: &LaneRequest, found: &mut Vec<WorkspaceObjection>) {
    let mut push = |code: &str, modes: &[AccessMode], message: &str, evidence: Vec<String>, remedy: &str| {
        if !evidence.is_empty() {
            let mut o = objection(code, modes, message.to_owned(), remedy);
            o.evidence = evidence;
            found.push(o);
        }
    };
    let paths = |list: &[PathBuf]| list.iter().map(|p| p.display().to_string()).collect::<Vec<_>>();
    push(
        "socket-in-workspace",
        &AccessMode::ALL,
        "the workspace holds a socket: whoever listens on it would be reachable through the fence",
        paths(&survey.sockets),
        "stop the service or move its socket out of the workspace",
    );
    if rustix::process::geteuid().is_root() && request.mode == AccessMode::IsolatedWrite {
        push(
            "foreign-owners",
            &[AccessMode::IsolatedWrite],
            "the workspace holds files of other owners, which an id-mapped mount cannot write",
            paths(&survey.foreign_owners),
            "give the whole workspace to one owner (`chown -R`)",
        );
        push(
            "submounts",
            &[AccessMode::IsolatedWrite],
            "file systems are mounted inside the workspace; the fence would show what lies under them",
            paths(&survey.submounts),
            "unmount them, or use another folder",
        );
    }
}
