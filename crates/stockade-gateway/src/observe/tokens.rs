//! Tokens, as each format counts them.

use serde::de::MapAccess;
use stockade_core::event::Usage;

use super::loose::{Number, Shape, Taken, members, skip, value};

/// A usage object.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    pub(super) is_object: bool,
    /// Chat completions: those from a cache included.
    prompt: Option<u64>,
    completion: Option<u64>,
    /// Responses: those from a cache included. Messages: without them.
    input: Option<u64>,
    output: Option<u64>,
    total: Option<u64>,
    cache_read: Option<u64>,
    cache_created: Option<u64>,
    input_details: Details,
    output_details: Details,
}

/// The finer numbers of input or output.
#[derive(Debug, Default)]
struct Details {
    cached: Option<u64>,
    reasoning: Option<u64>,
}

impl Tokens {
    /// Takes over the numbers that are stated; later objects of a stream replace earlier ones.
    pub(super) fn merge_into(&self, usage: &mut Usage) {
        let input = self.prompt.or_else(|| {
            // Messages count cached tokens apart; the other formats have no such keys.
            let apart = self.cache_read.unwrap_or(0).saturating_add(self.cache_created.unwrap_or(0));
            self.input.map(|input| input.saturating_add(apart))
        });
        let reasoning = self.output_details.reasoning;
        let generated = self.completion.or(self.output);
        // Some endpoints leave reasoning out of the generated tokens; their total shows it.
        let output = match (input, generated, reasoning, self.total) {
            (Some(i), Some(g), Some(r), Some(t)) if r > 0 && i.saturating_add(g).saturating_add(r) == t => {
                Some(g.saturating_add(r))
            }
            _ => generated,
        };
        for (to, from) in [
            (&mut usage.input_tokens, input),
            (&mut usage.cached_input_tokens, self.input_details.cached.or(self.cache_read)),
            (&mut usage.cache_creation_input_tokens, self.cache_created),
            (&mut usage.output_tokens, output),
            (&mut usage.reasoning_tokens, reasoning),
            (&mut usage.total_tokens, self.total),
        ] {
            *to = from.or(*to);
        }
    }
}

impl Taken for Tokens {
    fn object<'de, A: MapAccess<'de>>(&mut self, map: &mut A) -> Result<(), A::Error> {
        self.is_object = true;
        members(self, map)
    }
}

impl Shape for Tokens {
    fn member<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        let place = match key {
            "prompt_tokens" => &mut self.prompt,
            "completion_tokens" => &mut self.completion,
            "input_tokens" => &mut self.input,
            "output_tokens" => &mut self.output,
            "total_tokens" => &mut self.total,
            "cache_read_input_tokens" => &mut self.cache_read,
            "cache_creation_input_tokens" => &mut self.cache_created,
            "prompt_tokens_details" | "input_tokens_details" => {
                self.input_details = value(map)?;
                return Ok(());
            }
            "completion_tokens_details" | "output_tokens_details" => {
                self.output_details = value(map)?;
                return Ok(());
            }
            _ => return skip(map),
        };
        *place = value::<Number, _>(map)?.0;
        Ok(())
    }
}

impl Taken for Details {
    fn object<'de, A: MapAccess<'de>>(&mut self, map: &mut A) -> Result<(), A::Error> {
        members(self, map)
    }
}

impl Shape for Details {
    fn member<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        let place = match key {
            "cached_tokens" => &mut self.cached,
            "reasoning_tokens" | "thinking_tokens" => &mut self.reasoning,
            _ => return skip(map),
        };
        *place = value::<Number, _>(map)?.0;
        Ok(())
    }
}
