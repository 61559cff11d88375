//! Reading the few members of an answer that matter. Everything else is skipped without being kept, whatever it is: an
//! endpoint's answer is not refused for what nobody asks of it.

use std::{borrow::Cow, fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use stockade_core::text;

use super::NAME_LIMIT_BYTES;

/// An object of which some members are read.
pub(super) trait Shape: Default {
    /// Takes the value of a member, or skips it.
    fn member<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error>;
}

/// Skips the value of a member.
pub(super) fn skip<'de, A: MapAccess<'de>>(map: &mut A) -> Result<(), A::Error> {
    map.next_value::<IgnoredAny>().map(drop)
}

/// What one value gives: an object, the members of a list, or a scalar. What it has no use for is skipped.
pub(super) trait Taken: Default {
    /// Takes a text.
    fn text(&mut self, _text: &str) {}
    /// Takes a number that is not negative.
    fn number(&mut self, _number: u64) {}
    /// Anything but null was there.
    fn there(&mut self) {}
    /// Takes the members of an object.
    fn object<'de, A: MapAccess<'de>>(&mut self, map: &mut A) -> Result<(), A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(())
    }
    /// Takes the entries of a list.
    fn list<'de, A: SeqAccess<'de>>(&mut self, seq: &mut A) -> Result<(), A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }
}

/// Reads whatever stands there.
#[derive(Debug, Default)]
pub(super) struct Loose<T>(pub(super) T);

impl<'de, T: Taken> Deserialize<'de> for Loose<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LooseVisitor(PhantomData))
    }
}

struct LooseVisitor<T>(PhantomData<T>);

impl<T: Taken> LooseVisitor<T> {
    fn with(take: impl FnOnce(&mut T)) -> Loose<T> {
        let mut taken = T::default();
        taken.there();
        take(&mut taken);
        Loose(taken)
    }
}

impl<'de, T: Taken> Visitor<'de> for LooseVisitor<T> {
    type Value = Loose<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(Loose(T::default()))
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Self::Value, E> {
        Ok(Self::with(|_| {}))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Self::with(|taken| taken.number(number)))
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Self::Value, E> {
        Ok(Self::with(|_| {}))
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Self::Value, E> {
        Ok(Self::with(|_| {}))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Self::with(|taken| taken.text(text)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut taken = T::default();
        taken.there();
        taken.object(&mut map)?;
        Ok(Loose(taken))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut taken = T::default();
        taken.there();
        taken.list(&mut seq)?;
        Ok(Loose(taken))
    }
}

/// The members of an object, one after the other, by keys that are not kept.
pub(super) fn members<'de, S: Shape, A: MapAccess<'de>>(shape: &mut S, map: &mut A) -> Result<(), A::Error> {
    while let Some(key) = map.next_key_seed(Key)? {
        shape.member(&key, map)?;
    }
    Ok(())
}

/// A key, borrowed where it has no escapes.
struct Key;

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Key {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_borrowed_str<E: Error>(self, key: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(key))
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(key.to_owned()))
    }
}

/// A name or a word, bounded.
#[derive(Debug, Default)]
pub(super) struct Word(pub(super) Option<String>);

impl Taken for Word {
    fn text(&mut self, text: &str) {
        self.0 = Some(text::head(text, NAME_LIMIT_BYTES)).filter(|word| !word.is_empty());
    }
}

/// A number that is not negative.
#[derive(Debug, Default)]
pub(super) struct Number(pub(super) Option<u64>);

impl Taken for Number {
    fn number(&mut self, number: u64) {
        self.0 = Some(number);
    }
}

/// Reads the value of a member.
pub(super) fn value<'de, T: Taken, A: MapAccess<'de>>(map: &mut A) -> Result<T, A::Error> {
    map.next_value::<Loose<T>>().map(|loose| loose.0)
}
