//! Access modes, network policies and the choice about a provider's own sandbox.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a lane may do to its workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AccessMode {
    /// Nothing under the workspace changes.
    ReadOnly,
    /// The workspace is writable, nothing else is.
    IsolatedWrite,
}

impl AccessMode {
    /// Every mode, in the order of the documentation.
    pub const ALL: [Self; 2] = [Self::ReadOnly, Self::IsolatedWrite];

    /// The name used in flags, receipts and documentation.
    pub const fn id(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only",
            Self::IsolatedWrite => "isolated-write",
        }
    }
}

/// Which network the agent and its tools reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NetworkPolicy {
    /// Nothing at all: probes and offline questions only, refused for a run.
    None,
    /// The model listener of the gateway and nothing else.
    Model,
    /// The model listener, and listed hosts through the egress listener.
    Allow,
    /// The host's network: its own consent, and the guarantee `network` is missing.
    Host,
}

impl NetworkPolicy {
    /// The name used in flags, receipts and documentation.
    pub const fn id(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Model => "model",
            Self::Allow => "allow",
            Self::Host => "host",
        }
    }

    /// Whether programs inside reach servers themselves.
    pub const fn reaches_servers(self) -> bool {
        matches!(self, Self::Allow | Self::Host)
    }
}

/// What happens to the sandbox that the provider brings itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProviderSandbox {
    /// It runs inside the fence, or the run is refused.
    Keep,
    /// The fence stands in its place: the caller's explicit choice.
    Replace,
}

impl ProviderSandbox {
    /// The name used in flags, receipts and documentation.
    pub const fn id(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Replace => "replace",
        }
    }
}

/// The wire format spoken with the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Api {
    /// OpenAI chat completions.
    ChatCompletions,
    /// OpenAI Responses.
    Responses,
    /// Anthropic Messages.
    Messages,
}

impl Api {
    /// The name used in flags, receipts and documentation.
    pub const fn id(self) -> &'static str {
        match self {
            Self::ChatCompletions => "chat-completions",
            Self::Responses => "responses",
            Self::Messages => "messages",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_the_serialised_names() {
        let name = |value: serde_json::Value| value.as_str().unwrap().to_owned();
        for mode in AccessMode::ALL {
            assert_eq!(name(serde_json::to_value(mode).unwrap()), mode.id());
        }
        for policy in [NetworkPolicy::None, NetworkPolicy::Model, NetworkPolicy::Allow, NetworkPolicy::Host] {
            assert_eq!(name(serde_json::to_value(policy).unwrap()), policy.id());
        }
        for choice in [ProviderSandbox::Keep, ProviderSandbox::Replace] {
            assert_eq!(name(serde_json::to_value(choice).unwrap()), choice.id());
        }
        for api in [Api::ChatCompletions, Api::Responses, Api::Messages] {
            assert_eq!(name(serde_json::to_value(api).unwrap()), api.id());
        }
    }
}
