//! What flags can be set to. Help texts stand beside the flags: a doc comment here would be printed with every value.

use std::time::Duration;

use clap::{Args, ValueEnum};
use hub::Write;
use shared::duration::{self, DurationError};

/// A limit of time; none for `0`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limit(pub(crate) Option<Duration>);

/// A limit in kubectl's style: `30s`, `1h30m`, a bare number of seconds, and `0` for no limit.
///
/// # Errors
/// When the text is neither a Go duration nor a number of seconds, or is negative.
pub(crate) fn limit(text: &str) -> Result<Limit, DurationError> {
    let with_unit = if text.parse::<u32>().is_ok() { format!("{text}s") } else { text.to_owned() };
    match duration::parse_positive(&with_unit) {
        Ok(duration) => Ok(Limit(Some(duration))),
        Err(DurationError::NotPositive(_)) if !text.starts_with('-') => Ok(Limit(None)),
        Err(error) => Err(error),
    }
}

/// Values of `--dry-run`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DryRun {
    // Write.
    None,
    // Only print.
    Client,
    // Send, but do not keep.
    Server,
}

impl DryRun {
    /// What kubectl appends to its messages.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Client => " (dry run)",
            Self::Server => " (server dry run)",
        }
    }
}

/// Formats of the commands that change something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ActOutput {
    // `type/name`
    Name,
    // The object after the change
    Json,
    // The object after the change
    Yaml,
}

/// How a change is written and reported.
#[derive(Clone, Debug, Args)]
pub(crate) struct WriteFlags {
    /// Only print (client), or validate (server)
    ///
    /// `client` only prints the changes; `server` validates them on the API server without storing them; `none` makes them.
    #[arg(long, value_enum, default_value_t = DryRun::None, value_name = "STRATEGY", default_missing_value = "client",
          num_args = 0..=1, require_equals = true, hide_default_value = true, hide_possible_values = true)]
    pub(crate) dry_run: DryRun,
    /// Name under which the API server tracks the fields written
    #[arg(long, value_name = "NAME", default_value = shared::annotation::keys::PLUGIN, hide_short_help = true)]
    pub(crate) field_manager: String,
    /// Print objects instead of messages
    #[arg(long, short = 'o', value_enum, value_name = "FORMAT", hide_short_help = true)]
    pub(crate) output: Option<ActOutput>,
}

impl WriteFlags {
    /// Whether anything is changed.
    pub(crate) fn changes(&self) -> bool {
        self.dry_run == DryRun::None
    }
}

impl From<&WriteFlags> for Write {
    fn from(flags: &WriteFlags) -> Self {
        Self::new(&flags.field_manager, flags.dry_run == DryRun::Server)
    }
}

/// Values of `--include`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Include {
    // Run fdbcli in a Pod of the cluster.
    Auto,
    // Leave the database alone.
    Never,
}

/// Formats of `status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StatusOutput {
    // A table
    Table,
    // A table with more columns
    Wide,
    // The documented list
    Json,
    // The documented list
    Yaml,
    // `type/name`
    Name,
}

impl StatusOutput {
    /// Whether a person reads it.
    pub(crate) fn is_table(self) -> bool {
        matches!(self, Self::Table | Self::Wide)
    }
}

/// Formats of `plan` and `check`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportOutput {
    // For people
    Table,
    // The documented list
    Json,
    // The documented list
    Yaml,
}

/// Formats of `version`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum VersionOutput {
    // JSON
    Json,
    // YAML
    Yaml,
}

/// Who is to complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Completer {
    // kubectl 1.26 and later
    Kubectl,
    // The shell, for `kubectl-hibernate`
    Bash,
    // The shell, for `kubectl-hibernate`
    Zsh,
    // The shell, for `kubectl-hibernate`
    Fish,
    // The shell, for `kubectl-hibernate`
    Powershell,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_limits_that_kubectl_reads() {
        for (text, seconds) in [("30s", Some(30)), ("45", Some(45)), ("1h30m", Some(5400)), ("0", None), ("0s", None)] {
            assert_eq!(limit(text), Ok(Limit(seconds.map(Duration::from_secs))), "{text}");
        }
        for text in ["-1s", "soon", "", "5 m", "-0"] {
            assert!(limit(text).is_err(), "{text}");
        }
    }
}
