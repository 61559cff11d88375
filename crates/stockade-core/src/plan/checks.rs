//! Checks of the order itself: they need no host.

use super::{launch, route};
use crate::{
    mode::{AccessMode, NetworkPolicy},
    network::DESTINATION_LIMIT,
    order::{Expectation, Order, PROMPT_LIMIT_BYTES, WorkspaceKind},
    profile::{Profile, Route},
    status::{Boundary, Cause, Refusal, Status},
};

/// Model names are put into configuration files and URLs of agents, so only plain ones are taken.
fn is_plain_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 200
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._:/@+".contains(&b))
        && !name.starts_with('-')
}

pub(super) fn usage(code: &str, step: &str, message: String, remedy: String) -> Refusal {
    Refusal::usage(Cause::new(code, Boundary::Order, step, message).with_remedy(remedy))
}

/// Prompt, model, effort, instructions, endpoint and network policy.
pub(super) fn order(order: &Order, profile: &Profile) -> Result<(), Refusal> {
    if order.prompt.bytes == 0 {
        return Err(usage(
            "prompt-empty",
            "prompt",
            "the prompt is empty".to_owned(),
            "write what the agent is to do into the file named by `--prompt`".to_owned(),
        ));
    }
    let limit = PROMPT_LIMIT_BYTES.min(profile.models.prompt_limit_bytes);
    if order.prompt.bytes > limit {
        return Err(usage(
            "prompt-too-large",
            "prompt",
            format!("the prompt has {} bytes; {} takes at most {limit}", order.prompt.bytes, profile.title),
            "put the material into files of the workspace and name them in the prompt".to_owned(),
        ));
    }
    if let Some(text) = &order.instructions
        && text.len() as u64 > profile.models.instructions_limit_bytes
    {
        return Err(usage(
            "instructions-too-large",
            "instructions",
            format!(
                "the instructions have {} bytes; {} takes at most {}",
                text.len(),
                profile.title,
                profile.models.instructions_limit_bytes
            ),
            "move the longer part into the prompt".to_owned(),
        ));
    }
    if let Some(model) = order.model.as_deref().filter(|m| !is_plain_name(m)) {
        return Err(usage(
            "model-name",
            "model",
            format!("`{}` is no model name", crate::text::head(model, 80)),
            "use letters, digits and `-._:/@+` only, 200 at most".to_owned(),
        ));
    }
    if let Some(effort) = order.effort.as_deref().filter(|e| !profile.models.efforts.iter().any(|k| k == e)) {
        return Err(usage(
            "effort-unknown",
            "effort",
            format!("{} has no effort `{}`", profile.title, crate::text::head(effort, 80)),
            format!("one of: {}", profile.models.efforts.join(", ")),
        ));
    }
    if order.expect == Expectation::Changes && order.mode == AccessMode::ReadOnly {
        return Err(usage(
            "expect-changes-read-only",
            "expect",
            "changes are expected and nothing may be changed".to_owned(),
            "use `--mode isolated-write`, or leave out `--expect changes`".to_owned(),
        ));
    }
    if order.network == NetworkPolicy::None {
        return Err(usage(
            "network-none",
            "network",
            "`--network none` leaves the agent without its model".to_owned(),
            "use `--network model`, the default".to_owned(),
        ));
    }
    destinations(order, profile)?;
    if let Some(api) = order.endpoint.api.filter(|a| !profile.vendor.apis.contains(a)) {
        return Err(usage(
            "api-unknown",
            "api",
            format!("{} does not speak `{}`", profile.title, api.id()),
            format!("one of: {}", profile.vendor.apis.iter().map(|a| a.id()).collect::<Vec<_>>().join(", ")),
        ));
    }
    if let Some(url) = &order.endpoint.url {
        endpoint_url(url)?;
    }
    route::check(order, profile)?;
    spending(order, profile)
}

/// A budget of money needs a price.
fn spending(order: &Order, profile: &Profile) -> Result<(), Refusal> {
    if order.limits.max_cost_usd.is_none() || launch::price(order, profile).is_some() {
        return Ok(());
    }
    let model = order.model.as_ref().unwrap_or(&profile.models.default);
    Err(usage(
        "price-unknown",
        "max-cost",
        format!("`--max-cost` cannot be held: what `{model}` costs there is not known"),
        format!(
            "say it in the config file: [providers.{}.prices.\"{model}\"] with `input` and `output`, in US dollars for a \
             million tokens; or use `--max-tokens`",
            profile.name
        ),
    ))
}

/// A list without its policy, or a policy without its list, says two things at once.
fn destinations(order: &Order, profile: &Profile) -> Result<(), Refusal> {
    let refuse =
        |code: &str, message: String, remedy: &str| Err(usage(code, "network", message, remedy.to_owned()));
    match (order.network, order.allow.len()) {
        // The endpoint's own host joins the list.
        (NetworkPolicy::Allow, 0) if profile.wire.route == Route::Listener => refuse(
            "allow-empty",
            "`--network allow` names no host".to_owned(),
            "name each host with `--allow HOST[:PORT]`, or use `--network model`",
        ),
        (NetworkPolicy::Allow, count) if count > DESTINATION_LIMIT => refuse(
            "allow-too-many",
            format!("{count} hosts are allowed; at most {DESTINATION_LIMIT} are taken"),
            "name fewer hosts",
        ),
        (NetworkPolicy::Allow, _) | (_, 0) => Ok(()),
        (policy, _) => refuse(
            "allow-without-policy",
            format!("`--allow` has no meaning with `--network {}`", policy.id()),
            "leave out `--network`, or say `--network allow`",
        ),
    }
}

fn endpoint_url(url: &str) -> Result<(), Refusal> {
    let refuse =
        |code: &str, message: String, remedy: &str| Err(usage(code, "endpoint", message, remedy.to_owned()));
    let (scheme, rest) = url.split_once("://").unwrap_or(("", ""));
    if url.contains('@') {
        return refuse(
            "endpoint-url",
            // Not repeated: it may hold a password.
            "the endpoint holds a user or a password".to_owned(),
            "give a base URL without them; a key is named with `--key-env NAME`",
        );
    }
    let shown = crate::text::head(url, 200).escape_debug().to_string();
    let hostless = rest.is_empty() || rest.starts_with(['/', '?', '#', ':']);
    let unprintable = url.chars().any(|c| c.is_whitespace() || c.is_control());
    if !matches!(scheme, "http" | "https") || hostless || unprintable {
        return refuse(
            "endpoint-url",
            format!("`{shown}` is no endpoint"),
            "give a base URL such as https://api.example.com/v1",
        );
    }
    if scheme == "http" && !is_loopback(url) {
        return refuse(
            "endpoint-plaintext",
            format!("`{shown}` would carry the prompt and the key unencrypted"),
            "use https; plain http is for loopback only",
        );
    }
    Ok(())
}

/// Whether a URL names this host's loopback.
pub(super) fn is_loopback(url: &str) -> bool {
    let rest = url.split_once("://").map_or("", |(_, r)| r);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => authority.rsplit_once(':').map_or(authority, |(h, _)| h),
    };
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// The workspace.
pub(super) fn workspace(order: &Order) -> Result<(), Refusal> {
    let ws = &order.workspace;
    let refuse = |cause: Cause| Err(Refusal::new(Status::WorkspaceRefused, cause));
    if let Some(o) = ws.objections.iter().find(|o| o.modes.contains(&order.mode)) {
        let mut cause = Cause::new(o.code.clone(), Boundary::Workspace, "workspace", o.message.clone())
            .with_remedy(o.remedy.clone());
        for line in &o.evidence {
            cause = cause.with_evidence(line.clone());
        }
        return refuse(cause);
    }
    if order.mode == AccessMode::IsolatedWrite
        && ws.kind == WorkspaceKind::MainWorktree
        && !ws.in_place
        && ws.git.is_none()
    {
        return refuse(
            Cause::new(
                "main-worktree",
                Boundary::Workspace,
                "workspace",
                format!("`{}` is the main working tree of a repository", ws.path.display()),
            )
            .with_evidence(format!("{}/.git is a folder", ws.path.display()))
            .with_remedy(
                "use a linked worktree (`git worktree add ../lane`), a plain folder, or say `--in-place`",
            ),
        );
    }
    Ok(())
}

/// The credential: a key is needed unless the endpoint is on loopback, or the agent speaks to it itself.
pub(super) fn credential(order: &Order, profile: &Profile) -> Result<(), Refusal> {
    let e = &order.endpoint;
    if e.key_present || profile.wire.route == Route::Egress {
        return Ok(());
    }
    let refuse = |code: &str, message: String, remedy: String| {
        Err(Refusal::new(
            Status::Unauthenticated,
            Cause::new(code, Boundary::Credential, "key", message).with_remedy(remedy),
        ))
    };
    if let Some(name) = &e.key_env {
        return refuse(
            "key-missing",
            format!("the variable `{name}` named by `--key-env` is not set or empty"),
            format!("put the key into `{name}`; {}", profile.vendor.key_hint),
        );
    }
    match &e.url {
        Some(url) if is_loopback(url) => Ok(()),
        Some(url) => refuse(
            "key-missing",
            format!("`{url}` needs a key and none was named"),
            "name the variable that holds it with `--key-env NAME`".to_owned(),
        ),
        None => refuse(
            "key-missing",
            format!("no endpoint and no key: {} has nothing to talk to", profile.title),
            format!(
                "name the variable that holds a key with `--key-env NAME` ({}), or an endpoint of your own \
                 with `--endpoint URL`; logins are not supported yet",
                profile.vendor.key_hint
            ),
        ),
    }
}
