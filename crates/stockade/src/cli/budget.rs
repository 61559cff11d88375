//! Flags for what a run may spend, and for what makes it a success.

use clap::{Args, ValueEnum};
use stockade_core::{budget::Usd, order::Expectation};

/// What a run may spend.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Budget")]
#[expect(clippy::struct_field_names, reason = "these are the names of the flags")]
pub(crate) struct BudgetArgs {
    /// Answers of the model to the main turn; the call after them is refused and the run ends [default: no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_turns: Option<u64>,
    /// Tokens sent and generated, over all calls; none is made once they are used up [default: no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_tokens: Option<u64>,
    /// Money in US dollars, by the price of the model; no call is made once it is spent [default: no limit]
    #[arg(long, value_name = "USD", value_parser = parse_cost)]
    pub(crate) max_cost: Option<Usd>,
}

/// What makes a run a success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExpectArg {
    /// An answer that is not empty
    Answer,
    /// Measured changes in the workspace, with an answer or without
    Changes,
}

impl From<ExpectArg> for Expectation {
    fn from(expect: ExpectArg) -> Self {
        match expect {
            ExpectArg::Answer => Self::Answer,
            ExpectArg::Changes => Self::Changes,
        }
    }
}

/// Reads a sum of money that is not zero.
pub(crate) fn parse_cost(text: &str) -> Result<Usd, String> {
    let sum = Usd::parse(text)?;
    if sum == Usd::default() { Err("give more than nothing".to_owned()) } else { Ok(sum) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_of_nothing_is_none() {
        assert_eq!(parse_cost("0.5").map(Usd::millionths), Ok(500_000));
        for bad in ["0", "0.00", "", "five"] {
            assert!(parse_cost(bad).is_err(), "{bad}");
        }
    }
}
