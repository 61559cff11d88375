//! Orders that cannot be carried out anywhere, and who is told what.

use std::{fmt::Write as _, path::PathBuf};

use super::{super::*, hosts, order, pin, planned, profile, render};
use crate::{
    budget::{Price, Usd},
    limits::{LimitBy, LimitId, LimitState},
    mode::AccessMode,
    order::{
        EndpointOrder, Expectation, Limits, PROMPT_LIMIT_BYTES, ServedModelDemand, Workspace, WorkspaceKind,
        WorkspaceObjection,
    },
    plan::checks::is_loopback,
    profile::Route,
    status::Status,
};

fn endpoint(url: Option<&str>, key_env: Option<&str>, key_present: bool) -> Order {
    let endpoint = EndpointOrder {
        url: url.map(str::to_owned),
        key_env: key_env.map(str::to_owned),
        key_present,
        ..order().endpoint
    };
    Order { endpoint, ..order() }
}

fn prompt(bytes: u64) -> Order {
    Order { prompt: TextFacts { bytes, ..order().prompt }, ..order() }
}

fn workspace(mode: AccessMode, workspace: Workspace) -> Order {
    Order { mode, workspace, ..order() }
}

fn main_tree(in_place: bool) -> Workspace {
    Workspace { kind: WorkspaceKind::MainWorktree, in_place, ..order().workspace }
}

fn objection(modes: &[AccessMode]) -> Workspace {
    let objection = WorkspaceObjection {
        code: "credential-in-git-config".to_owned(),
        modes: modes.to_vec(),
        message: "`/work/tree/.git/config` holds a credential".to_owned(),
        evidence: vec!["url in line 7".to_owned()],
        remedy: "use a credential helper".to_owned(),
    };
    Workspace { objections: vec![objection], ..order().workspace }
}

fn allow(listed: &[&str]) -> Order {
    let allow = listed.iter().map(|text| Destination::parse(text).unwrap()).collect();
    Order { network: NetworkPolicy::Allow, allow, ..order() }
}

#[test]
fn listed_hosts_stand_in_the_plan_the_environment_and_the_guarantee() {
    let plan = planned(&allow(&["a.example", "10.1.2.3:8443", "b.example:80"]), &hosts::plain()).unwrap();
    let listed: Vec<String> = plan.allow.iter().map(ToString::to_string).collect();
    assert_eq!(listed, ["a.example:443", "10.1.2.3:8443", "b.example:80"]);
    assert_eq!(plan.env.get("HTTPS_PROXY").map(String::as_str), Some("http://127.0.0.1:3128"));
    let network = plan.guarantees.iter().find(|g| g.id == Guarantee::Network).unwrap();
    assert!(network.held && network.mechanism.ends_with("only a.example:443, 10.1.2.3:8443, b.example:80"));
    assert!(
        plan.notes.iter().any(|n| n.starts_with("`10.1.2.3:8443` is a private address")),
        "{:?}",
        plan.notes
    );

    let plan = planned(&order(), &hosts::plain()).unwrap();
    assert!(!plan.env.keys().any(|name| name.to_lowercase().ends_with("_proxy")), "{:?}", plan.env);
}

fn with_ca(order: Order) -> Order {
    let endpoint = EndpointOrder { ca: Some(PathBuf::from("/etc/ca.pem")), ..order.endpoint.clone() };
    Order { endpoint, ..order }
}

#[test]
fn an_authority_is_made_known_inside_where_servers_can_be_reached() {
    let host = Order { network: NetworkPolicy::Host, ..order() };
    for (reaches, order) in [(true, allow(&["a.example"])), (true, host), (false, order())] {
        let plan = planned(&with_ca(order.clone()), &hosts::plain()).unwrap();
        assert_eq!(plan.authorities.as_deref(), reaches.then_some("authorities.pem"), "{:?}", order.network);
        let file = reaches.then_some("/home/agent/authorities.pem");
        for name in ["SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO"] {
            assert_eq!(plan.env.get(name).map(String::as_str), file, "{name} {:?}", order.network);
        }
        let without = planned(&order, &hosts::plain()).unwrap();
        assert!(without.authorities.is_none() && !without.env.contains_key("SSL_CERT_FILE"));
    }
}

/// A profile by which the agent speaks to its model itself.
fn routed() -> LoadedProfile {
    let mut loaded = super::profile();
    loaded.profile.wire.route = Route::Egress;
    loaded
}

fn by_itself(url: &str) -> Order {
    Order { network: NetworkPolicy::Allow, allow: Vec::new(), ..endpoint(Some(url), None, false) }
}

#[test]
fn an_agent_that_speaks_to_its_model_itself_is_planned_so_and_it_is_said() {
    let order = with_ca(by_itself("https://model.example:8443/v1/"));
    let plan = super::plan(&order, &super::pin(), &hosts::plain(), &routed()).unwrap();
    assert_eq!(
        plan.home_files[".sample/config.toml"].lines().next(),
        Some("base_url = \"https://model.example:8443/v1\"")
    );
    assert_eq!(serde_json::from_str::<LaunchPlan>(&serde_json::to_string(&plan).unwrap()).unwrap(), plan);
    let listed: Vec<String> = plan.allow.iter().map(ToString::to_string).collect();
    assert_eq!(listed, ["model.example:8443"]);
    let network = plan.guarantees.iter().find(|g| g.id == Guarantee::Network).unwrap();
    assert!(network.held && network.mechanism.ends_with("only model.example:8443"), "{}", network.mechanism);
    insta::assert_json_snapshot!((&plan.wire, &plan.endpoint, &plan.notes, &plan.unproven));

    // A host that is listed anyway is listed once.
    let listed = vec![Destination::parse("model.example").unwrap()];
    let order = Order { allow: listed.clone(), ..by_itself("https://model.example/v1") };
    assert_eq!(super::plan(&order, &super::pin(), &hosts::plain(), &routed()).unwrap().allow, listed);
}

#[test]
fn what_cannot_be_seen_cannot_be_demanded_of_an_agent_that_speaks_to_its_model_itself() {
    let good = || by_itself("https://model.example/v1");
    let limits = |change: fn(&mut Limits)| {
        let mut limits = Limits::default();
        change(&mut limits);
        Order { limits, ..good() }
    };
    let key = EndpointOrder { key_env: Some("K".to_owned()), key_present: true, ..good().endpoint };
    let refused = vec![
        ("another policy", Order { network: NetworkPolicy::Model, ..good() }),
        ("the host's network", Order { network: NetworkPolicy::Host, ..good() }),
        ("turns", limits(|l| l.max_turns = Some(3))),
        ("tokens", limits(|l| l.max_tokens = Some(3))),
        ("money", limits(|l| l.max_cost_usd = Usd::parse("3").ok())),
        ("a served model", Order { served_model: ServedModelDemand::Required, ..good() }),
        ("a key", Order { endpoint: key, ..good() }),
        (
            "the vendor's endpoint",
            Order { endpoint: EndpointOrder { url: None, ..good().endpoint }, ..good() },
        ),
        ("a loopback endpoint", by_itself("https://127.0.0.1:8443/v1")),
        ("plain text", by_itself("http://localhost:8443/v1")),
        ("no version path", by_itself("https://model.example")),
        ("a host in an odd spelling", by_itself("https://0x0a.1/v1")),
    ];
    let mut seen = String::new();
    for (name, order) in refused {
        let refusal = super::plan(&order, &super::pin(), &hosts::plain(), &routed()).expect_err(name);
        assert_eq!(refusal.exit_code(), 64, "{name}");
        write!(seen, "--- {name}\n{}", render::refusal(&refusal)).unwrap();
    }
    insta::assert_snapshot!(seen);
}

#[test]
fn each_bad_order_is_a_clear_refusal() {
    let refused = vec![
        ("empty prompt", prompt(0)),
        ("prompt over the profile's limit", prompt(1_000_001)),
        ("instructions over the limit", Order { instructions: Some("x".repeat(101)), ..order() }),
        ("model with a space", Order { model: Some("a b".to_owned()), ..order() }),
        ("model with a dash first", Order { model: Some("-m".to_owned()), ..order() }),
        ("model that is empty", Order { model: Some(String::new()), ..order() }),
        ("model with a quote", Order { model: Some("a\"b".to_owned()), ..order() }),
        ("unknown effort", Order { effort: Some("maximal".to_owned()), ..order() }),
        ("no network", Order { network: NetworkPolicy::None, ..order() }),
        ("hosts beside another policy", Order { network: NetworkPolicy::Model, ..allow(&["a.example"]) }),
        ("hosts on the host's network", Order { network: NetworkPolicy::Host, ..allow(&["a.example"]) }),
        ("a policy of hosts without one", allow(&[])),
        ("more hosts than are taken", allow(&["a.example"; 257])),
        (
            "unknown api",
            Order { endpoint: EndpointOrder { api: Some(Api::Messages), ..order().endpoint }, ..order() },
        ),
        ("endpoint without a scheme", endpoint(Some("api.sample.test/v1"), None, false)),
        ("endpoint of another scheme", endpoint(Some("ftp://127.0.0.1/v1"), None, false)),
        ("endpoint without a host", endpoint(Some("https:///v1"), None, false)),
        ("endpoint with a password", endpoint(Some("https://u:p@api.sample.test/v1"), None, false)),
        ("endpoint with a password and no scheme", endpoint(Some("u:p@api.sample.test/v1"), None, false)),
        ("endpoint with a line break", endpoint(Some("https://api.sample.test/\r\nx: y"), None, false)),
        ("endpoint in plain text", endpoint(Some("http://api.sample.test/v1"), Some("K"), true)),
        ("nothing to talk to", endpoint(None, None, false)),
        ("endpoint without a key", endpoint(Some("https://api.sample.test/v1"), None, false)),
        ("key that is not set", endpoint(None, Some("SAMPLE_KEY"), false)),
        ("key that is not set for loopback", endpoint(Some("http://127.0.0.1:1/v1"), Some("K"), false)),
        ("main working tree", workspace(AccessMode::IsolatedWrite, main_tree(false))),
        ("objection", workspace(AccessMode::ReadOnly, objection(&AccessMode::ALL))),
    ];
    let mut seen = String::new();
    for (name, order) in refused {
        let refusal = planned(&order, &hosts::plain()).expect_err(name);
        write!(seen, "--- {name}\n{}", render::refusal(&refusal)).unwrap();
    }
    insta::assert_snapshot!(seen);
}

#[test]
fn what_is_delivered_is_not_refused() {
    for (name, order) in [
        ("prompt at the limit", prompt(1_000_000)),
        ("model with every sign", Order { model: Some("ns/m:1.5-b_c@x+y".to_owned()), ..order() }),
        ("instructions with braces", Order { instructions: Some("{model} {nothing}".to_owned()), ..order() }),
        ("vendor with a key", endpoint(None, Some("SAMPLE_KEY"), true)),
        ("own endpoint with a key", endpoint(Some("https://api.sample.test/v1"), Some("K"), true)),
        ("main working tree to read", workspace(AccessMode::ReadOnly, main_tree(false))),
        ("main working tree in place", workspace(AccessMode::IsolatedWrite, main_tree(true))),
        (
            "objection to another mode",
            workspace(AccessMode::ReadOnly, objection(&[AccessMode::IsolatedWrite])),
        ),
        ("reads", Order { reads: vec![PathBuf::from("/data")], ..order() }),
    ] {
        let outcome = planned(&order, &hosts::plain());
        assert!(outcome.is_ok(), "{name}: {outcome:?}");
    }
}

#[test]
fn no_profile_lifts_the_general_prompt_limit() {
    let mut loaded = super::profile();
    loaded.profile.models.prompt_limit_bytes = u64::MAX;
    let refusal = plan(&prompt(PROMPT_LIMIT_BYTES + 1), &super::pin(), &hosts::plain(), &loaded).unwrap_err();
    assert_eq!((refusal.status, refusal.cause.code.as_str()), (None, "prompt-too-large"));
    assert!(plan(&prompt(PROMPT_LIMIT_BYTES), &super::pin(), &hosts::plain(), &loaded).is_ok());
}

#[test]
fn the_order_is_judged_before_the_host() {
    // An order that is wrong is a usage error on every host, so that the same command says the same everywhere.
    let keep = |order: Order| Order { provider_sandbox: ProviderSandbox::Keep, ..order };
    for survey in [hosts::claude_code_web(), hosts::docker(), hosts::no_userns()] {
        assert_eq!(planned(&keep(prompt(0)), &survey).unwrap_err().exit_code(), 64);
        let nobody = planned(&keep(endpoint(None, None, false)), &survey).unwrap_err();
        assert_eq!(nobody.status, Some(Status::Unauthenticated));
        assert_eq!(planned(&keep(order()), &survey).unwrap_err().status, Some(Status::SandboxUnavailable));
    }
}

#[test]
fn only_this_hosts_own_names_are_loopback() {
    for (url, loopback) in [
        ("http://127.0.0.1:80/v1", true),
        ("http://127.8.9.1", true),
        ("http://localhost/v1", true),
        ("http://[::1]:8080", true),
        ("http://localhost.example.com", false),
        ("http://127.0.0.1.example.com", false),
        ("http://example.com/?127.0.0.1", false),
        ("http://example.com#@127.0.0.1", false),
        ("http://10.0.0.1", false),
        ("http://[::ffff:10.0.0.1]", false),
        ("http://0.0.0.0", false),
        ("127.0.0.1", false),
    ] {
        assert_eq!(is_loopback(url), loopback, "{url}");
    }
}

#[test]
fn a_model_is_known_by_its_name_its_aliases_and_the_endpoints_suffixes() {
    let served = |model: Option<&str>| {
        let order = Order { model: model.map(str::to_owned), ..order() };
        let plan = planned(&order, &hosts::plain()).unwrap();
        (plan.model.source, plan.model.served_as)
    };
    assert_eq!(
        served(None),
        ("profile-default".to_owned(), vec!["m-default".to_owned(), "m-default-build".to_owned()])
    );
    assert_eq!(
        served(Some("m-alias")),
        ("order".to_owned(), ["m-alias", "m-real", "m-real-2", "m-alias-build"].map(str::to_owned).to_vec())
    );
}

#[test]
fn a_budget_of_money_needs_a_price() {
    let limits = Limits { max_cost_usd: Some(Usd::of_millionths(1)), ..Limits::default() };
    let unpriced = Order { limits, ..order() };
    let refusal = planned(&unpriced, &hosts::plain()).unwrap_err();
    assert_eq!((refusal.status, refusal.cause.code.as_str()), (None, "price-unknown"));
    assert!(refusal.cause.remedy.unwrap().contains("prices."));
    let price = Price {
        input: Usd::of_millionths(3_000_000),
        cached_input: None,
        cache_write: None,
        output: Usd::of_millionths(15_000_000),
    };
    let plan = planned(&Order { price: Some(price), ..unpriced }, &hosts::plain()).unwrap();
    assert_eq!(plan.budget().price, Some(price));
    let held = plan.held_limits.iter().find(|l| l.id == LimitId::Cost).unwrap();
    assert_eq!((held.limit, held.state, held.by), (1, LimitState::Enforced, LimitBy::Gateway));
}

#[test]
fn a_vendors_price_holds_at_the_vendors_own_service_only() {
    let price = Price {
        input: Usd::of_millionths(1),
        cached_input: None,
        cache_write: None,
        output: Usd::of_millionths(2),
    };
    let mut profile = profile();
    let model = profile.profile.models.default.clone();
    profile.profile.models.prices.insert(model, price);
    let at = |url: Option<&str>| {
        let order = endpoint(url, Some("KEY"), true);
        plan(&order, &pin(), &hosts::plain(), &profile).unwrap().model.price
    };
    assert_eq!(at(None), Some(price));
    assert_eq!(at(Some("https://elsewhere.example/v1")), None);
}

#[test]
fn nothing_can_change_where_nothing_may_be_changed() {
    let order = Order { mode: AccessMode::ReadOnly, expect: Expectation::Changes, ..order() };
    let refusal = planned(&order, &hosts::plain()).unwrap_err();
    assert_eq!((refusal.status, refusal.cause.code.as_str()), (None, "expect-changes-read-only"));
}
