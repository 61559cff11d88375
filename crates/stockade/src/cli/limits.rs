//! Flags for limits.

use clap::{Args, ValueEnum};
use stockade_core::limits::LimitDemand;

/// What a run may use.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitArgs {
    /// Processes and threads at a time [default: 4096]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(i64::from(LEAST_PROCESSES)..))]
    pub(crate) max_processes: Option<u32>,
    /// Memory of the whole tree, such as 512M or 2G; `none` for no limit [default: 8G]
    #[arg(long, value_name = "SIZE", value_parser = parse_size_or_none)]
    pub(crate) max_memory: Option<SizeArg>,
    /// Open files of one process [default: 65536]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(LEAST_OPEN_FILES..))]
    pub(crate) max_open_files: Option<u64>,
    /// The size of one file [default: 16G]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) max_file_size: Option<u64>,
    /// The size of each private temporary folder, which lies in memory [default: 1G]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) max_temp: Option<u64>,
    /// How much workspace, private home and `--write` paths may grow together; `none` for no limit [default: 16G]
    #[arg(long, value_name = "SIZE", value_parser = parse_size_or_none)]
    pub(crate) max_growth: Option<SizeArg>,
    /// What is kept of each output stream, and how much of it is read in a second [default: 256M,16M/s]
    #[arg(long, value_name = "SIZE[,SIZE/s]", value_parser = parse_output)]
    pub(crate) max_output: Option<OutputArg>,
    /// Refuse the run where one of the limits can only be watched [default: reported]
    #[arg(long, value_enum, value_name = "DEMAND")]
    pub(crate) require_limits: Option<DemandArg>,
}

/// The agent, PID 1 and a few of their threads.
const LEAST_PROCESSES: u32 = 8;
/// Below this few programs start at all.
const LEAST_OPEN_FILES: u64 = 32;
/// Below this nothing useful can be limited.
const LEAST_BYTES: u64 = 1024 * 1024;
/// What is read at once.
const LEAST_RATE: u64 = 64 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DemandArg {
    /// Watching is enough, and the receipt says which limits that was
    Reported,
    /// The kernel has to hold every limit
    Enforced,
}

impl From<DemandArg> for LimitDemand {
    fn from(d: DemandArg) -> Self {
        match d {
            DemandArg::Reported => Self::Reported,
            DemandArg::Enforced => Self::Enforced,
        }
    }
}

/// A size, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SizeArg(pub(crate) Option<u64>);

/// What of the output is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OutputArg {
    /// Bytes kept of each stream.
    pub(crate) total: Option<u64>,
    /// Bytes read in a second.
    pub(crate) per_second: Option<u64>,
}

/// Reads a size with a unit into bytes.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    at_least(text, LEAST_BYTES)
}

/// The same, or none.
pub(crate) fn parse_size_or_none(text: &str) -> Result<SizeArg, String> {
    if text == "none" { Ok(SizeArg(None)) } else { parse_size(text).map(|n| SizeArg(Some(n))) }
}

/// Reads a size, a rate, or both with a comma between.
pub(crate) fn parse_output(text: &str) -> Result<OutputArg, String> {
    let mut output = OutputArg::default();
    for part in text.split(',') {
        let (slot, bytes) = match part.strip_suffix("/s") {
            Some(rate) => (&mut output.per_second, at_least(rate, LEAST_RATE)?),
            None => (&mut output.total, parse_size(part)?),
        };
        if slot.replace(bytes).is_some() {
            return Err("give a size, a rate such as 1M/s, or one of each".to_owned());
        }
    }
    Ok(output)
}

fn at_least(text: &str, least: u64) -> Result<u64, String> {
    let (number, bits) = [("K", 10), ("M", 20), ("G", 30), ("T", 40)]
        .iter()
        .find_map(|(unit, bits)| text.strip_suffix(unit).map(|number| (number, *bits)))
        .ok_or_else(|| "give a number with a unit: K, M, G or T".to_owned())?;
    let is_number = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    let bytes = is_number
        .then(|| number.parse::<u64>().ok())
        .flatten()
        .and_then(|n| n.checked_mul(1 << bits))
        // What the kernel takes as a limit is a signed number.
        .filter(|n| i64::try_from(*n).is_ok())
        .ok_or_else(|| "give a whole number with a unit: K, M, G or T".to_owned())?;
    if bytes < least {
        return Err(format!("give {} or more", stockade_core::limits::size_text(least)));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_need_a_unit_and_a_whole_number() {
        assert_eq!(parse_size("512M"), Ok(512 << 20));
        assert_eq!(parse_size("2G"), Ok(2 << 30));
        assert_eq!(parse_size("1T"), Ok(1 << 40));
        assert_eq!(parse_size("1024K"), Ok(1 << 20));
        for bad in ["", "512", "M", "-1M", "+1M", "1.5G", "1m", "1MB", "0M", "1K", "99999999999T", "none"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_size_or_none("none"), Ok(SizeArg(None)));
        assert_eq!(parse_size_or_none("1M"), Ok(SizeArg(Some(1 << 20))));
    }

    #[test]
    fn output_is_a_size_a_rate_or_both() {
        let both = OutputArg { total: Some(4 << 20), per_second: Some(1 << 20) };
        assert_eq!(parse_output("4M,1M/s"), Ok(both));
        assert_eq!(parse_output("1M/s,4M"), Ok(both));
        assert_eq!(parse_output("4M"), Ok(OutputArg { per_second: None, ..both }));
        assert_eq!(parse_output("64K/s"), Ok(OutputArg { total: None, per_second: Some(64 << 10) }));
        for bad in ["", "4M,5M", "1K/s", "1M/m", "4M,", "none", "1M/s,1M/s"] {
            assert!(parse_output(bad).is_err(), "{bad}");
        }
    }
}
