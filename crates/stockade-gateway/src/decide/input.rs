//! Tools that stand in the conversation: some agents offer theirs as an item of the input of Responses.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{Error, IgnoredAny, MapAccess, SeqAccess, Visitor},
};

use super::{body::Keys, tool::Tool};

/// The input of a request, of which only the tools are kept, whatever the item that has them calls itself.
#[derive(Debug, Default)]
pub(super) struct Input {
    pub(super) tools: Vec<Tool>,
}

impl<'de> Deserialize<'de> for Input {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(InputVisitor)
    }
}

struct InputVisitor;

impl<'de> Visitor<'de> for InputVisitor {
    type Value = Input;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a list of items")
    }

    fn visit_str<E: Error>(self, _text: &str) -> Result<Input, E> {
        Ok(Input::default())
    }

    fn visit_unit<E: Error>(self) -> Result<Input, E> {
        Ok(Input::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Input, A::Error> {
        let mut input = Input::default();
        while let Some(item) = items.next_element::<Item>()? {
            input.tools.extend(item.tools);
        }
        Ok(input)
    }
}

/// An item of the input.
#[derive(Default)]
struct Item {
    tools: Vec<Tool>,
}

impl<'de> Deserialize<'de> for Item {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ItemVisitor)
    }
}

struct ItemVisitor;

impl<'de> Visitor<'de> for ItemVisitor {
    type Value = Item;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an item of the input")
    }

    // Embeddings and the like: a list of texts.
    fn visit_str<E: Error>(self, _text: &str) -> Result<Item, E> {
        Ok(Item::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Item, A::Error> {
        let mut item = Item::default();
        let mut keys = Keys::of(&["tools"]);
        while let Some(key) = map.next_key::<String>()? {
            keys.take(&key)?;
            if key == "tools" {
                item.tools = map.next_value::<Option<_>>()?.unwrap_or_default();
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(item)
    }
}
