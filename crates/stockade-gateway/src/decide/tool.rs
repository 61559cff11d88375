//! The names of a tool, in any of the three wire formats.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{Error, IgnoredAny, MapAccess, Visitor},
};

use super::body::Keys;

/// Something with a name.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) name: String,
}

/// A tool as offered.
#[derive(Debug, Default)]
pub(super) struct Tool {
    kind: Option<String>,
    name: Option<String>,
    function: Option<Named>,
    custom: Option<Named>,
    /// The tools of a group.
    inner: Vec<Tool>,
}

impl Tool {
    /// Its names: one, or those of the group's tools.
    ///
    /// A tool of the endpoint itself is named by its type as well, so that it cannot pass under the name of one of the
    /// agent's.
    pub(super) fn into_names(self) -> Result<Vec<String>, &'static str> {
        let mut names =
            [self.function.map(|f| f.name), self.custom.map(|c| c.name), self.name].into_iter().flatten();
        let first = names.next();
        if names.next().is_some_and(|second| Some(second) != first) {
            return Err("a tool has two names");
        }
        let is_group = self.kind.as_deref() == Some("namespace");
        if !is_group && !self.inner.is_empty() {
            return Err("a tool that is no group holds tools");
        }
        match (self.kind.as_deref(), first) {
            (Some("namespace"), Some(group)) => {
                let mut all = Vec::new();
                for tool in self.inner {
                    all.extend(tool.into_names()?.into_iter().map(|name| format!("{group}/{name}")));
                }
                // A group without tools is told all the same.
                Ok(if all.is_empty() { vec![group] } else { all })
            }
            (None | Some("function" | "custom"), Some(name)) => Ok(vec![name]),
            (Some(kind), Some(name)) => Ok(vec![format!("{kind}/{name}")]),
            (Some("namespace" | "function" | "custom") | None, None) => {
                Err("a tool has neither name nor a type that names it")
            }
            (Some(kind), None) => Ok(vec![kind.to_owned()]),
        }
    }
}

impl<'de> Deserialize<'de> for Tool {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ToolVisitor)
    }
}

struct ToolVisitor;

impl<'de> Visitor<'de> for ToolVisitor {
    type Value = Tool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a tool")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tool, A::Error> {
        let mut tool = Tool::default();
        let mut keys = Keys::of(&["type", "name", "function", "custom", "tools"]);
        while let Some(key) = map.next_key::<String>()? {
            keys.take(&key)?;
            match key.as_str() {
                "type" => tool.kind = map.next_value()?,
                "name" => tool.name = map.next_value()?,
                "function" => tool.function = map.next_value()?,
                "custom" => tool.custom = map.next_value()?,
                "tools" => tool.inner = map.next_value::<Option<_>>()?.unwrap_or_default(),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(tool)
    }
}

impl<'de> Deserialize<'de> for Named {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(NamedVisitor)
    }
}

struct NamedVisitor;

impl<'de> Visitor<'de> for NamedVisitor {
    type Value = Named;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with a name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Named, A::Error> {
        let mut name = None;
        let mut keys = Keys::of(&["name"]);
        while let Some(key) = map.next_key::<String>()? {
            keys.take(&key)?;
            if key == "name" {
                name = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(Named { name: name.ok_or_else(|| A::Error::missing_field("name"))? })
    }
}
