//! Where the agent speaks to its model itself: what that takes, and what is not seen then.

use std::borrow::Cow;

use super::checks::{is_loopback, usage};
use crate::{
    mode::NetworkPolicy,
    network::{DEFAULT_PORT, Destination, DestinationError},
    order::{Order, ServedModelDemand},
    profile::{Profile, Route},
    status::Refusal,
};

/// The version path of an endpoint. Agents that are given a URL without it add it.
const VERSION_PATH: &str = "/v1";

/// Whether the order and the route of the profile go together. The endpoint is a URL already.
pub(super) fn check(order: &Order, profile: &Profile) -> Result<(), Refusal> {
    if profile.wire.route == Route::Listener {
        return Ok(());
    }
    policy(order, profile)?;
    unseen(order, profile)?;
    key(order, profile)?;
    endpoint(order)
}

/// The list has to be one that the endpoint can join.
fn policy(order: &Order, profile: &Profile) -> Result<(), Refusal> {
    if order.network == NetworkPolicy::Allow {
        return Ok(());
    }
    Err(usage(
        "route-policy",
        "network",
        format!(
            "by its profile {} speaks to its model itself, which `--network {}` does not let through the egress listener",
            profile.title,
            order.network.id()
        ),
        "say `--network allow`: the endpoint joins the list by itself".to_owned(),
    ))
}

/// What is held by looking at the wire cannot be held where nothing is seen on it.
fn unseen(order: &Order, profile: &Profile) -> Result<(), Refusal> {
    let limits = &order.limits;
    let asked = [
        ("--max-turns", limits.max_turns.is_some()),
        ("--max-tokens", limits.max_tokens.is_some()),
        ("--max-cost", limits.max_cost_usd.is_some()),
        ("--require-served-model", order.served_model == ServedModelDemand::Required),
    ];
    let Some((flag, _)) = asked.into_iter().find(|(_, asked)| *asked) else { return Ok(()) };
    Err(usage(
        "route-unseen",
        flag.trim_start_matches('-'),
        format!(
            "`{flag}` cannot be held: by its profile {} speaks to its model itself, and no call is seen",
            profile.title
        ),
        format!("leave out `{flag}`, or take a profile without `route = \"egress\"`"),
    ))
}

/// The key is added in the gateway, which cannot add one inside the agent's own TLS.
fn key(order: &Order, profile: &Profile) -> Result<(), Refusal> {
    let refuse = |message: String| {
        let remedy = "name an endpoint that needs no key with `--endpoint URL`, without `--key-env` and without `key_env` in \
                      the config file, or take a profile without `route = \"egress\"`";
        Err(usage("route-key", "key", message, remedy.to_owned()))
    };
    let reason = "which never enters the fence, and nothing can add it inside the agent's own TLS";
    match (&order.endpoint.url, &order.endpoint.key_env) {
        (_, Some(name)) => refuse(format!("`{name}` holds the key of the endpoint, {reason}")),
        (None, None) => refuse(format!("`{}` needs a key, {reason}", profile.vendor.endpoint)),
        (Some(_), None) => Ok(()),
    }
}

/// Only TLS goes through a tunnel, and the loopback inside is the fence's own.
fn endpoint(order: &Order) -> Result<(), Refusal> {
    let url = order.endpoint.url.as_deref().unwrap_or_default();
    let refuse =
        |message: String, remedy: &str| Err(usage("route-endpoint", "endpoint", message, remedy.to_owned()));
    if is_loopback(url) || !url.starts_with("https://") {
        return refuse(
            format!("`{url}` is not there inside the fence, where the loopback is its own"),
            "give an https URL with another host; a private or loopback address that its name leads to is listed with \
             `--allow ADDRESS:PORT`",
        );
    }
    if base_of(url).is_none() {
        return refuse(
            format!("`{url}` does not end in {VERSION_PATH}"),
            "give the URL with its version path, such as https://api.example.com/v1",
        );
    }
    match destination(url) {
        Ok(_) => Ok(()),
        Err(e) => refuse(
            format!("the host of `{url}` cannot be listed: {e}"),
            "give a whole name, or an address in its usual spelling",
        ),
    }
}

/// A URL without its version path.
fn base_of(url: &str) -> Option<&str> {
    url.trim_end_matches('/').strip_suffix(VERSION_PATH)
}

fn destination(url: &str) -> Result<Destination, DestinationError> {
    let rest = url.strip_prefix("https://").unwrap_or_default();
    Destination::read(rest.split('/').next().unwrap_or_default(), Some(DEFAULT_PORT))
}

/// The endpoint's host and port, where the agent speaks to it itself.
pub(super) fn tunnel(order: &Order, profile: &Profile) -> Option<Destination> {
    let url = order.endpoint.url.as_deref().filter(|_| profile.wire.route == Route::Egress)?;
    destination(url).ok()
}

/// The order with the endpoint on its list, where the agent speaks to it itself.
pub(super) fn joined<'o>(order: &'o Order, profile: &Profile) -> Cow<'o, Order> {
    match tunnel(order, profile).filter(|tunnel| !order.allow.contains(tunnel)) {
        Some(tunnel) => {
            let allow = order.allow.iter().cloned().chain([tunnel]).collect();
            Cow::Owned(Order { allow, ..order.clone() })
        }
        None => Cow::Borrowed(order),
    }
}

/// The base URL for the agent, without the version path.
pub(super) fn base(order: &Order, profile: &Profile) -> String {
    let own = order.endpoint.url.as_deref().filter(|_| profile.wire.route == Route::Egress).and_then(base_of);
    own.map_or_else(|| format!("http://127.0.0.1:{}", order.listener.port), str::to_owned)
}

/// What the plan and the receipt say of it.
pub(super) fn note(tunnel: &Destination) -> String {
    format!(
        "by its profile the agent speaks to its model itself, by TLS to `{tunnel}`, of which nothing is seen: tools, effort, \
         served model and tokens are the agent's own words, and its retries are not ended"
    )
}

/// What nothing can prove then.
pub(super) fn unproven(profile: &Profile) -> Option<String> {
    (profile.wire.route == Route::Egress).then(|| {
        "what it asks of its model, with which tools and effort, and which model answers: it speaks to it itself, inside TLS"
            .to_owned()
    })
}
