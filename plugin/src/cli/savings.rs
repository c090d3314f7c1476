//! Flags of `savings`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use shared::savings::ledger::MAX_DAYS;
use shared::savings::period::Month;
use shared::savings::report::By;

/// Flags of `savings`.
#[derive(Debug, Args)]
pub(crate) struct SavingsArgs {
    /// Targets [default: all clusters in the namespace]
    #[arg(value_name = "NAME | TYPE/NAME | TYPE")]
    pub(crate) targets: Vec<String>,
    /// Group by target, namespace, platform, type (instance type), or label=KEY
    #[arg(long, default_value = "target", value_parser = by)]
    pub(crate) by: By,
    /// Report a UTC month, such as 2026-11
    #[arg(long, conflicts_with = "since", value_parser = str::parse::<Month>)]
    pub(crate) month: Option<Month>,
    /// Report the last days, today included: 1d to 31d
    #[arg(long, value_name = "DAYS", default_value = "30d", value_parser = days)]
    pub(crate) since: u8,
    /// CSV of list prices [default: those on the hub]
    #[arg(long, value_name = "FILE")]
    pub(crate) prices: Option<PathBuf>,
    /// Check a CSV of list prices, and name the instance types that lack one
    #[arg(long, value_name = "FILE", conflicts_with_all = ["prices", "by", "month", "since", "output"])]
    pub(crate) check_prices: Option<PathBuf>,
    /// Format
    #[arg(long, short = 'o', value_enum, default_value_t = SavingsOutput::Table, value_name = "FORMAT")]
    pub(crate) output: SavingsOutput,
}

/// Formats of `savings`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SavingsOutput {
    // A table
    Table,
    // The documented list
    Json,
    // The documented list
    Yaml,
    // A line per row and instance type
    Csv,
}

fn by(text: &str) -> Result<By, String> {
    match text {
        "target" => Ok(By::Target),
        "namespace" => Ok(By::Namespace),
        "platform" => Ok(By::Platform),
        "type" => Ok(By::Type),
        _ => match text.strip_prefix("label=") {
            Some(key) if !key.is_empty() => Ok(By::Label(key.to_owned())),
            _ => Err("must be target, namespace, platform, type, or label=KEY".to_owned()),
        },
    }
}

fn days(text: &str) -> Result<u8, String> {
    let number = text.strip_suffix('d').and_then(|number| number.parse().ok());
    let is_kept = |days: &u8| *days > 0 && usize::from(*days) <= MAX_DAYS;
    number.filter(is_kept).ok_or_else(|| format!("must be 1d to {MAX_DAYS}d; for a longer period, use --month"))
}
