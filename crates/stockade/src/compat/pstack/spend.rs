//! Whether money may be spent by key. Only names of variables are ever told.

use std::collections::BTreeMap;

use super::args::{ApiSpend, Order};

/// Variables that hold a key when they are not blank, per provider.
const KEYS: [(&str, &[&str]); 6] = [
    ("claude", &["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_AWS_API_KEY"]),
    ("codex", &["OPENAI_API_KEY"]),
    ("grok", &["XAI_API_KEY", "GROK_CODE_XAI_API_KEY"]),
    ("devin", &["DEVIN_API_KEY"]),
    ("cursor", &["CURSOR_API_KEY"]),
    ("antigravity", &["GEMINI_API_KEY"]),
];

/// Variables that lead to a metered service when they are switched on, per provider.
const SWITCHES: [(&str, &[&str]); 4] = [
    (
        "claude",
        &[
            "CLAUDE_CODE_USE_BEDROCK",
            "CLAUDE_CODE_USE_VERTEX",
            "CLAUDE_CODE_USE_FOUNDRY",
            "ANTHROPIC_BASE_URL",
            "ANTHROPIC_CUSTOM_HEADERS",
        ],
    ),
    ("devin", &["DEVIN_API_URL"]),
    ("cursor", &["CURSOR_API_ENDPOINT"]),
    ("antigravity", &["GOOGLE_GEMINI_BASE_URL", "AGY_ADC_AUTH"]),
];

/// Why the order may not run as it stands; `key_env` is the variable that the configuration names for the provider.
pub(super) fn objection(
    order: &Order,
    environment: &BTreeMap<String, String>,
    key_env: Option<&str>,
) -> Option<String> {
    if order.provider == "opencode" && order.api_spend != ApiSpend::Approved {
        return Some("opencode spends by key: it needs --api-spend approved".to_owned());
    }
    if order.api_spend != ApiSpend::Deny {
        return None;
    }
    let value = |name: &str| environment.get(name).map(|v| v.trim()).filter(|v| !v.is_empty());
    let of = |table: &[(&str, &'static [&'static str])]| {
        table
            .iter()
            .filter(|(p, _)| *p == order.provider)
            .flat_map(|(_, names)| *names)
            .copied()
            .collect::<Vec<_>>()
    };
    let is_on = |name: &&str| {
        value(name).is_some_and(|v| !matches!(v.to_ascii_lowercase().as_str(), "0" | "false" | "no"))
    };
    let mut names: Vec<&str> = of(&KEYS).into_iter().filter(|n| value(n).is_some()).collect();
    names.extend(of(&SWITCHES).into_iter().filter(is_on));
    // The runs of Stockade spend on the key that its configuration names.
    names.extend(key_env.filter(|n| value(n).is_some() && !names.contains(n)));
    if !names.is_empty() {
        return Some(format!("--api-spend deny, and these are set: {}", names.join(", ")));
    }
    (order.provider == "grok").then(|| {
        "--api-spend deny: a model of grok can have a key of its own, which nobody can rule out".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use stockade_core::mode::AccessMode;

    use super::*;
    use crate::compat::pstack::args::Contract;

    fn order(provider: &str, api_spend: ApiSpend) -> Order {
        Order {
            parent: "codex".into(),
            provider: provider.into(),
            model: "m".into(),
            effort: "low".into(),
            mode: AccessMode::ReadOnly,
            prompt: "/p".into(),
            cwd: "/".into(),
            output: "/o".into(),
            receipt: "/r".into(),
            progress: None,
            timeout_ms: None,
            api_spend,
            contract: Contract::Legacy,
        }
    }

    fn environment(set: &[(&str, &str)]) -> BTreeMap<String, String> {
        set.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn names_are_told_and_values_are_not() {
        let deny = |provider, set: &[(&str, &str)], key| {
            objection(&order(provider, ApiSpend::Deny), &environment(set), key)
        };
        let text = deny("claude", &[("ANTHROPIC_API_KEY", "secret"), ("ANTHROPIC_AUTH_TOKEN", " ")], None);
        assert_eq!(text.unwrap(), "--api-spend deny, and these are set: ANTHROPIC_API_KEY");
        assert_eq!(deny("claude", &[("CLAUDE_CODE_USE_BEDROCK", "0"), ("XAI_API_KEY", "k")], None), None);
        assert!(deny("claude", &[("CLAUDE_CODE_USE_BEDROCK", "1")], None).is_some());
        assert!(deny("codex", &[("TEAM_KEY", "k")], Some("TEAM_KEY")).unwrap().ends_with("TEAM_KEY"));
        assert!(deny("grok", &[], None).is_some());
    }

    #[test]
    fn nothing_is_in_the_way_of_what_was_not_denied() {
        let set = environment(&[("XAI_API_KEY", "k")]);
        assert_eq!(objection(&order("grok", ApiSpend::Legacy), &set, Some("XAI_API_KEY")), None);
        assert_eq!(objection(&order("grok", ApiSpend::Approved), &set, Some("XAI_API_KEY")), None);
        assert!(objection(&order("opencode", ApiSpend::Legacy), &set, None).is_some());
        assert_eq!(objection(&order("opencode", ApiSpend::Approved), &set, None), None);
    }
}
