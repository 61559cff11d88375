//! Budgets: turns, tokens and money, counted from what goes over the wire.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{event::Usage, limits::LimitId};

/// The most that a sum of money may be, in US dollars.
const LARGEST_USD: u64 = 1_000_000_000;
/// Millionths in one.
const MILLION: u64 = 1_000_000;

/// US dollars, in millionths. Written as a number of dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Usd(u64);

impl Usd {
    /// So many millionths of a dollar.
    pub const fn of_millionths(millionths: u64) -> Self {
        Self(millionths)
    }

    /// In millionths.
    pub const fn millionths(self) -> u64 {
        self.0
    }

    /// Reads a sum with at most six digits after the point: `2`, `0.50`.
    pub fn parse(text: &str) -> Result<Self, String> {
        const FORM: &str = "give US dollars with at most six digits after the point, such as 2 or 0.50";
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(part) || part.len() > 6 {
            return Err(FORM.to_owned());
        }
        let whole: u64 = whole.parse().map_err(|_| FORM.to_owned())?;
        let part: u64 = format!("{part:0<6}").parse().map_err(|_| FORM.to_owned())?;
        if whole > LARGEST_USD {
            return Err(format!("give at most {LARGEST_USD}"));
        }
        Ok(Self(whole * MILLION + part))
    }
}

impl fmt::Display for Usd {
    /// `2 USD`, `0.5 USD`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.0 / MILLION, self.0 % MILLION);
        if part == 0 {
            write!(f, "{whole} USD")
        } else {
            let part = format!("{part:06}");
            write!(f, "{whole}.{} USD", part.trim_end_matches('0'))
        }
    }
}

impl Serialize for Usd {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(in_dollars(u128::from(self.0), MILLION))
    }
}

impl<'de> Deserialize<'de> for Usd {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UsdVisitor)
    }
}

struct UsdVisitor;

impl de::Visitor<'_> for UsdVisitor {
    type Value = Usd;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of US dollars")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Usd, E> {
        Usd::parse(&number.to_string()).map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Usd, E> {
        Usd::parse(&number.to_string()).map_err(E::custom)
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Usd, E> {
        Usd::parse(&number.to_string()).map_err(E::custom)
    }
}

/// What a model costs, in US dollars for a million tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// Tokens sent.
    #[schemars(with = "f64")]
    pub input: Usd,
    /// Tokens read from a cache; without it they cost what others do.
    #[serde(default)]
    #[schemars(with = "Option<f64>")]
    pub cached_input: Option<Usd>,
    /// Tokens written to a cache; without it they cost what others do.
    #[serde(default)]
    #[schemars(with = "Option<f64>")]
    pub cache_write: Option<Usd>,
    /// Tokens generated, reasoning included.
    #[schemars(with = "f64")]
    pub output: Usd,
}

impl Price {
    /// What these tokens cost; `None`: the numbers that it takes are not all known.
    pub fn cost(&self, usage: &Usage) -> Option<Cost> {
        let (input, output) = (usage.input_tokens?, usage.output_tokens?);
        let cached = usage.cached_input_tokens.unwrap_or(0).min(input);
        let written = usage.cache_creation_input_tokens.unwrap_or(0).min(input - cached);
        let of = |tokens: u64, price: Usd| u128::from(tokens) * u128::from(price.0);
        Some(Cost(
            of(input - cached - written, self.input)
                + of(cached, self.cached_input.unwrap_or(self.input))
                + of(written, self.cache_write.unwrap_or(self.input))
                + of(output, self.output),
        ))
    }
}

/// A cost, exact to a millionth of a millionth of a US dollar.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cost(u128);

impl Cost {
    /// In US dollars.
    pub fn dollars(self) -> f64 {
        in_dollars(self.0, MILLION * MILLION)
    }

    /// In millionths of a dollar, rounded up.
    pub fn millionths(self) -> u64 {
        u64::try_from(self.0.div_ceil(u128::from(MILLION))).unwrap_or(u64::MAX)
    }

    fn reaches(self, limit: Usd) -> bool {
        self.0 >= u128::from(limit.0) * u128::from(MILLION)
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a sum for people and receipts; it is compared as a whole number"
)]
fn in_dollars(amount: u128, parts: u64) -> f64 {
    amount as f64 / parts as f64
}

/// What a run may spend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// Answers to calls of the main turn.
    pub max_turns: Option<u64>,
    /// Tokens sent and generated, over all calls.
    pub max_tokens: Option<u64>,
    /// Money.
    pub max_cost: Option<Usd>,
    /// What the model costs; needed for `max_cost`.
    pub price: Option<Price>,
}

/// What a call of the model is for, as far as a budget is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// The main turn.
    Turn,
    /// A title, a summary.
    Side,
}

/// A budget that is used up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reached {
    /// Which.
    pub id: LimitId,
    /// The limit, with its unit.
    pub value: String,
    /// What was counted.
    pub measured: String,
}

/// What a run has spent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Main turns that were answered, and those under way.
    pub turns: u64,
    /// Tokens, as far as they were stated.
    pub tokens: u64,
    /// Money, as far as tokens were stated and the price is known.
    pub cost: Cost,
    /// The first answer that did not state its tokens.
    pub unstated: Option<u64>,
}

impl Spent {
    /// What keeps another call from being made, if anything does. What an answer did not state cannot be counted, so
    /// that nothing comes after it where it would have to be.
    pub fn reached(&self, budget: &Budget, kind: CallKind) -> Option<Reached> {
        if let Some(max) = budget.max_turns.filter(|max| kind == CallKind::Turn && self.turns >= *max) {
            let measured = format!("{} turns answered; one more was asked for", self.turns);
            return Some(Reached { id: LimitId::Turns, value: max.to_string(), measured });
        }
        let counted = |amount: String| match self.unstated {
            Some(request) => format!("unknown: the answer to request {request} states no tokens"),
            None => amount,
        };
        if let Some(max) = budget.max_tokens.filter(|max| self.unstated.is_some() || self.tokens >= *max) {
            let measured = counted(format!("{} tokens", self.tokens));
            return Some(Reached { id: LimitId::Tokens, value: max.to_string(), measured });
        }
        let max = budget.max_cost.filter(|max| self.unstated.is_some() || self.cost.reaches(*max))?;
        let measured = counted(Usd(self.cost.millionths()).to_string());
        Some(Reached { id: LimitId::Cost, value: max.to_string(), measured })
    }

    /// A call is made.
    pub fn begin(&mut self, kind: CallKind) {
        self.turns += u64::from(kind == CallKind::Turn);
    }

    /// A call was not answered, or by an error: it has cost nothing.
    pub fn failed(&mut self, kind: CallKind) {
        self.turns = self.turns.saturating_sub(u64::from(kind == CallKind::Turn));
    }

    /// A call was answered.
    pub fn answered(&mut self, budget: &Budget, request: u64, usage: Option<&Usage>) {
        let tokens = usage.and_then(|u| match (u.input_tokens, u.output_tokens) {
            (Some(input), Some(output)) => Some(input.saturating_add(output)),
            _ => None,
        });
        match tokens {
            Some(tokens) => self.tokens = self.tokens.saturating_add(tokens),
            None => _ = self.unstated.get_or_insert(request),
        }
        if let (Some(price), Some(usage)) = (&budget.price, usage) {
            let cost = price.cost(usage).unwrap_or_default();
            self.cost = Cost(self.cost.0.saturating_add(cost.0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usd(text: &str) -> Usd {
        Usd::parse(text).unwrap()
    }

    fn usage(input: u64, cached: u64, written: u64, output: u64) -> Usage {
        Usage {
            input_tokens: Some(input),
            cached_input_tokens: Some(cached),
            cache_creation_input_tokens: Some(written),
            output_tokens: Some(output),
            ..Usage::default()
        }
    }

    #[test]
    fn sums_are_exact_and_read_back() {
        for (text, millionths, shown) in [
            ("2", 2_000_000, "2 USD"),
            ("0.50", 500_000, "0.5 USD"),
            ("0.000001", 1, "0.000001 USD"),
            ("1000000000", 1_000_000_000_000_000, "1000000000 USD"),
        ] {
            let sum = usd(text);
            assert_eq!((sum.millionths(), sum.to_string().as_str()), (millionths, shown));
            let json = serde_json::to_string(&sum).unwrap();
            assert_eq!(serde_json::from_str::<Usd>(&json).unwrap(), sum, "{json}");
        }
        for bad in ["", "-1", "+1", "1.", ".5", "1e3", "0.0000001", "1,5", "1000000001", "$1", "inf"] {
            assert!(Usd::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(serde_json::from_str::<Usd>("3").unwrap(), usd("3"));
        assert!(serde_json::from_str::<Usd>("-3").is_err());
        assert!(serde_json::from_str::<Usd>("\"3\"").is_err());
    }

    #[test]
    fn a_cost_counts_each_kind_of_token_by_its_price() {
        let price = Price {
            input: usd("3"),
            cached_input: Some(usd("0.3")),
            cache_write: Some(usd("3.75")),
            output: usd("15"),
        };
        // 600 * 3 + 300 * 0.3 + 100 * 3.75 + 40 * 15, all by a million.
        let cost = price.cost(&usage(1_000, 300, 100, 40)).unwrap();
        assert_eq!(cost.millionths(), 2_865);
        assert!((cost.dollars() - 0.002_865).abs() < 1e-12);
        let plain = Price { cached_input: None, cache_write: None, ..price };
        assert_eq!(plain.cost(&usage(1_000, 300, 100, 0)).unwrap().millionths(), 3_000);
        assert_eq!(price.cost(&Usage { output_tokens: None, ..usage(1, 0, 0, 0) }), None);
        // Nonsense costs something, and does not overflow.
        assert!(price.cost(&usage(10, u64::MAX, u64::MAX, u64::MAX)).is_some());
    }

    fn ids(spent: &Spent, budget: &Budget) -> [Option<LimitId>; 2] {
        [CallKind::Turn, CallKind::Side].map(|kind| spent.reached(budget, kind).map(|r| r.id))
    }

    #[test]
    fn turns_are_those_that_were_answered() {
        let budget = Budget { max_turns: Some(2), ..Budget::default() };
        let mut spent = Spent::default();
        for _ in 0..3 {
            assert_eq!(ids(&spent, &budget), [None; 2]);
            spent.begin(CallKind::Turn);
            spent.failed(CallKind::Turn);
            spent.begin(CallKind::Side);
        }
        for request in 1..=2 {
            spent.begin(CallKind::Turn);
            spent.answered(&budget, request, None);
        }
        assert_eq!(ids(&spent, &budget), [Some(LimitId::Turns), None], "titles are no turns");
    }

    #[test]
    fn tokens_and_money_are_those_of_all_answers() {
        let price = Price { input: usd("1"), cached_input: None, cache_write: None, output: usd("2") };
        let budget = Budget {
            max_tokens: Some(30),
            max_cost: Some(usd("0.00004")),
            price: Some(price),
            max_turns: None,
        };
        let mut spent = Spent::default();
        spent.answered(&budget, 1, Some(&usage(10, 0, 0, 5)));
        assert_eq!(ids(&spent, &budget), [None; 2]);
        spent.answered(&budget, 2, Some(&usage(10, 0, 0, 4)));
        assert_eq!(ids(&spent, &budget), [None; 2]);
        spent.answered(&budget, 3, Some(&usage(1, 0, 0, 0)));
        assert_eq!(ids(&spent, &budget), [Some(LimitId::Tokens); 2]);
        let only_cost = Budget { max_tokens: None, ..budget };
        assert_eq!(ids(&spent, &only_cost), [None; 2]);
        spent.answered(&only_cost, 4, Some(&usage(1, 0, 0, 0)));
        let reached = spent.reached(&only_cost, CallKind::Side).unwrap();
        assert_eq!(
            (reached.id, reached.value.as_str(), reached.measured.as_str()),
            (LimitId::Cost, "0.00004 USD", "0.00004 USD")
        );
    }

    #[test]
    fn what_was_not_stated_cannot_be_counted() {
        let budget = Budget { max_tokens: Some(1_000_000), ..Budget::default() };
        let mut spent = Spent::default();
        spent.answered(&budget, 7, None);
        let reached = spent.reached(&budget, CallKind::Turn).unwrap();
        assert_eq!(reached.measured, "unknown: the answer to request 7 states no tokens");
        assert_eq!(spent.reached(&Budget { max_turns: Some(1), ..Budget::default() }, CallKind::Turn), None);
    }
}
