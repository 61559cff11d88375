//! The few parts of a model call that are checked. Everything else is skipped without being kept.
//!
//! An endpoint may read JSON more loosely than this: keys given twice, or spelled with other capitals, are refused,
//! because another reader could take the other value.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{Error, IgnoredAny, MapAccess, Visitor},
};

/// The keys that decide, whatever their capitals.
const DECIDING_KEYS: [&str; 4] = ["model", "tools", "functions", "mcp_servers"];

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

struct AskedVisitor;

impl<'de> Visitor<'de> for AskedVisitor {
    type Value = Asked;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Asked, A::Error> {
        let mut asked = Asked::default();
        let mut seen: Vec<&'static str> = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            if let Some(known) = DECIDING_KEYS.iter().find(|k| k.eq_ignore_ascii_case(&key)) {
                if key != **known {
                    return Err(A::Error::custom(format_args!("the key `{known}` is spelled `{key}`")));
                }
                if seen.contains(known) {
                    return Err(A::Error::duplicate_field(known));
                }
                seen.push(known);
            }
            match key.as_str() {
                "model" => asked.model = map.next_value()?,
                "tools" => {
                    for tool in map.next_value::<Option<Vec<Tool>>>()?.unwrap_or_default() {
                        asked.tools.push(tool.into_name().map_err(A::Error::custom)?);
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
                "reasoning_effort" => asked.effort = map.next_value::<Option<String>>()?.or(asked.effort),
                "reasoning" | "output_config" => {
                    let holder = map.next_value::<Option<EffortHolder>>()?;
                    asked.effort = holder.and_then(|h| h.effort).or(asked.effort);
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(asked)
    }
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

#[derive(Deserialize)]
struct EffortHolder {
    #[serde(default)]
    effort: Option<String>,
}

/// A tool in any of the three wire formats.
#[derive(Deserialize)]
struct Tool {
    #[serde(default, rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    function: Option<Named>,
    #[serde(default)]
    custom: Option<Named>,
}

impl Tool {
    /// Its one name; a tool without a name (those of the endpoint itself) is named by its type.
    fn into_name(self) -> Result<String, &'static str> {
        let mut names =
            [self.function.map(|f| f.name), self.custom.map(|c| c.name), self.name].into_iter().flatten();
        let first = names.next();
        if names.next().is_some_and(|second| Some(second) != first) {
            return Err("a tool has two names");
        }
        first.or(self.kind).ok_or("a tool has neither name nor type")
    }
}
