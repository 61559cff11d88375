//! The few parts of a model call that are checked. Everything else is skipped without being kept.
//!
//! An endpoint may read JSON more loosely than this: deciding keys given twice, or spelled with other capitals, are
//! refused, because another reader could take the other value.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{Error, IgnoredAny, MapAccess, Visitor},
};

use super::{
    input::Input,
    tool::{Named, Tool},
};

/// The keys that decide, whatever their capitals.
const DECIDING_KEYS: [&str; 10] = [
    "model",
    "tools",
    "input",
    "functions",
    "mcp_servers",
    "prompt",
    "reasoning_effort",
    "reasoning",
    "output_config",
    "thinking",
];

/// What a model call asks for.
#[derive(Debug, Default)]
pub(super) struct Asked {
    pub(super) model: Option<String>,
    pub(super) tools: Vec<String>,
    pub(super) effort: Option<String>,
}

impl<'de> Deserialize<'de> for Asked {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(AskedVisitor)
    }
}

/// The deciding keys of an object that have been seen.
pub(super) struct Keys {
    deciding: &'static [&'static str],
    seen: u32,
}

impl Keys {
    /// `deciding` has at most 32 keys.
    pub(super) fn of(deciding: &'static [&'static str]) -> Self {
        Self { deciding, seen: 0 }
    }

    /// Takes a key: an error where a deciding one comes twice or is spelled with other capitals.
    pub(super) fn take<E: Error>(&mut self, key: &str) -> Result<(), E> {
        let found = self.deciding.iter().enumerate().find(|(_, known)| known.eq_ignore_ascii_case(key));
        let Some((index, known)) = found else { return Ok(()) };
        if key != *known {
            return Err(E::custom(format_args!("the key `{known}` is spelled `{key}`")));
        }
        let bit = 1u32 << (index % 32);
        if self.seen & bit != 0 {
            return Err(E::duplicate_field(known));
        }
        self.seen |= bit;
        Ok(())
    }
}

struct AskedVisitor;

impl<'de> Visitor<'de> for AskedVisitor {
    type Value = Asked;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Asked, A::Error> {
        let mut asked = Asked::default();
        let mut keys = Keys::of(&DECIDING_KEYS);
        let mut thinking = None;
        while let Some(key) = map.next_key::<String>()? {
            keys.take(&key)?;
            match key.as_str() {
                "model" => asked.model = map.next_value()?,
                "tools" => {
                    for tool in map.next_value::<Option<Vec<Tool>>>()?.unwrap_or_default() {
                        asked.tools.extend(tool.into_names().map_err(A::Error::custom)?);
                    }
                }
                // Responses: an item of the conversation may offer tools as well.
                "input" => {
                    for tool in map.next_value::<Input>()?.tools {
                        asked.tools.extend(tool.into_names().map_err(A::Error::custom)?);
                    }
                }
                // The older spelling of tools in chat completions.
                "functions" => {
                    let functions = map.next_value::<Option<Vec<Named>>>()?.unwrap_or_default();
                    asked.tools.extend(functions.into_iter().map(|f| f.name));
                }
                // Tools that the endpoint fetches itself, named as a set because their list is not in the request.
                "mcp_servers" => {
                    let servers = map.next_value::<Option<Vec<Named>>>()?.unwrap_or_default();
                    asked.tools.extend(servers.into_iter().map(|s| format!("mcp_servers/{}", s.name)));
                }
                // A prompt kept by the endpoint may bring tools of its own.
                "prompt" => {
                    let kept = map.next_value::<Option<Kept>>()?;
                    asked.tools.extend(kept.map(|kept| format!("prompt/{}", kept.id)));
                }
                "reasoning_effort" => asked.effort = map.next_value::<Option<String>>()?.or(asked.effort),
                "reasoning" | "output_config" => {
                    let holder = map.next_value::<Option<EffortHolder>>()?;
                    asked.effort = holder.and_then(|h| h.effort).or(asked.effort);
                }
                "thinking" => thinking = map.next_value::<Option<Thinking>>()?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        asked.effort = asked.effort.or_else(|| thinking.map(Thinking::into_text));
        Ok(asked)
    }
}

#[derive(Deserialize)]
struct Kept {
    id: String,
}

#[derive(Deserialize)]
struct EffortHolder {
    #[serde(default)]
    effort: Option<String>,
}

/// How much a model may think, where nothing else says it.
#[derive(Deserialize)]
struct Thinking {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    budget_tokens: Option<u64>,
}

impl Thinking {
    fn into_text(self) -> String {
        match self.budget_tokens {
            Some(budget) => format!("thinking {} ({budget} tokens)", self.kind),
            None => format!("thinking {}", self.kind),
        }
    }
}
