//! Limits from flags and config files.

use stockade_core::limits::{LimitDemand, size_text};
use stockade_lane::LaneRequest;

use crate::{
    cli::budget::{BudgetArgs, parse_cost},
    cli::limits::{DemandArg, LimitArgs, OutputArg, SizeArg, parse_output, parse_size, parse_size_or_none},
    config::{Config, Defaults, Setting},
    error::CliError,
};

/// Sets what is said; what is not keeps its default.
pub(crate) fn apply(
    args: &LimitArgs,
    config: &Config,
    settings: &mut Vec<Setting>,
    request: &mut LaneRequest,
) -> Result<(), CliError> {
    let mut set = Set { config, settings };
    let limits = &mut request.limits;
    if let Some(n) = set.count("max_processes", args.max_processes, |d| d.max_processes) {
        limits.max_processes = n;
    }
    if let Some(n) = set.count("max_open_files", args.max_open_files, |d| d.max_open_files) {
        limits.max_open_files = n;
    }
    let size = |d: &Option<String>| d.clone();
    if let Some(SizeArg(n)) =
        set.text("max_memory", args.max_memory, |d| size(&d.max_memory), parse_size_or_none, shown_size)?
    {
        limits.max_memory_bytes = n;
    }
    if let Some(SizeArg(n)) =
        set.text("max_growth", args.max_growth, |d| size(&d.max_growth), parse_size_or_none, shown_size)?
    {
        limits.max_growth_bytes = n;
    }
    let bytes = |n: &u64| size_text(*n);
    if let Some(n) =
        set.text("max_file_size", args.max_file_size, |d| size(&d.max_file_size), parse_size, bytes)?
    {
        limits.max_file_bytes = n;
    }
    if let Some(n) = set.text("max_temp", args.max_temp, |d| size(&d.max_temp), parse_size, bytes)? {
        limits.temp_bytes = n;
    }
    if let Some(output) =
        set.text("max_output", args.max_output, |d| size(&d.max_output), parse_output, shown_output)?
    {
        limits.output_bytes = output.total.unwrap_or(limits.output_bytes);
        limits.output_bytes_per_s = output.per_second.unwrap_or(limits.output_bytes_per_s);
    }
    let demand = config.pick(args.require_limits.map(DemandArg::into), |f| f.defaults.require_limits);
    if let Some((demand, source)) = demand {
        let value = match demand {
            LimitDemand::Reported => "reported",
            LimitDemand::Enforced => "enforced",
        };
        set.settings.push(Setting { name: "require_limits".to_owned(), value: value.to_owned(), source });
        request.require_limits = demand;
    }
    Ok(())
}

/// Sets what may be spent; what is not said is not limited.
pub(crate) fn apply_budget(
    args: &BudgetArgs,
    config: &Config,
    settings: &mut Vec<Setting>,
    request: &mut LaneRequest,
) -> Result<(), CliError> {
    let mut set = Set { config, settings };
    let limits = &mut request.limits;
    let positive = |n: &u64| *n > 0;
    limits.max_turns = set.count("max_turns", args.max_turns, |d| d.max_turns).filter(positive);
    limits.max_tokens = set.count("max_tokens", args.max_tokens, |d| d.max_tokens).filter(positive);
    limits.max_cost_usd =
        set.text("max_cost", args.max_cost, |d| d.max_cost.clone(), parse_cost, ToString::to_string)?;
    Ok(())
}

struct Set<'s> {
    config: &'s Config,
    settings: &'s mut Vec<Setting>,
}

impl Set<'_> {
    fn count<T: Copy + ToString>(
        &mut self,
        name: &str,
        flag: Option<T>,
        from: impl Fn(&Defaults) -> Option<T>,
    ) -> Option<T> {
        let (value, source) = self.config.pick(flag, |f| from(&f.defaults))?;
        self.settings.push(Setting { name: name.to_owned(), value: value.to_string(), source });
        Some(value)
    }

    fn text<T>(
        &mut self,
        name: &str,
        flag: Option<T>,
        from: impl Fn(&Defaults) -> Option<String>,
        parse: impl Fn(&str) -> Result<T, String>,
        show: impl Fn(&T) -> String,
    ) -> Result<Option<T>, CliError> {
        let (value, source) = match flag {
            Some(value) => (value, "flag".to_owned()),
            None => match self.config.pick(None, |f| from(&f.defaults)) {
                None => return Ok(None),
                Some((text, source)) => {
                    let value = parse(&text).map_err(|e| {
                        CliError::usage(
                            "config-value",
                            format!("`{source}`: `{name} = \"{text}\"`: {e}"),
                            "correct the value",
                        )
                    })?;
                    (value, source)
                }
            },
        };
        self.settings.push(Setting { name: name.to_owned(), value: show(&value), source });
        Ok(Some(value))
    }
}

fn shown_size(size: &SizeArg) -> String {
    size.0.map_or_else(|| "none".to_owned(), size_text)
}

fn shown_output(output: &OutputArg) -> String {
    let rate = output.per_second.map(|n| format!("{}/s", size_text(n)));
    [output.total.map(size_text), rate].into_iter().flatten().collect::<Vec<_>>().join(", ")
}
