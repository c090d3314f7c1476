//! The command line of rollouts: the flags that make a change a rollout, and `rollout VERB NAME`.

use clap::{ArgAction, Args, Subcommand};
use jiff::{SignedDuration, Timestamp, Zoned};
use shared::annotation::format::whole_seconds;
use shared::duration::parse_positive;
use shared::rollout::Share;

use super::layout::help;
use super::time::{TimeError, moment};
use super::values::{self, WriteFlags};

/// How long a rollout may start targets, if `--not-after` does not say.
const HOURS: i64 = 2;
/// Longest duration in characters.
const LONGEST: usize = 32;

/// Beside each flag: of all of them at once it would be the heading of the flags behind them, too.
const HEADING: &str = "Options for a rollout";

/// Flags that make a change a rollout.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct RolloutFlags {
    /// Targets in progress at once: a number, or a percentage of all [default: 20]
    #[arg(long, help_heading = HEADING, value_name = "N | N%", value_parser = positive_share,
          allow_hyphen_values = true)]
    pub(crate) max_concurrency: Option<Share>,
    /// Targets that go first: NAME, NAMESPACE/NAME, or a label selector; label:KEY for those with a label. Each is a
    /// group of its own; repeatable
    #[arg(long, help_heading = HEADING, value_name = "NAME | SELECTOR", action = ArgAction::Append)]
    pub(crate) canary: Vec<String>,
    /// Failures of the remaining targets before it halts: a number, or a percentage of them [default: 100% for sleep,
    /// 10% for wake]
    #[arg(long, help_heading = HEADING, value_name = "N | N%", value_parser = share, allow_hyphen_values = true)]
    pub(crate) max_failures: Option<Share>,
    /// Targets that start in a minute [default: unlimited for sleep, 30 for wake]
    #[arg(long, help_heading = HEADING, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000),
          allow_hyphen_values = true)]
    pub(crate) starts_per_minute: Option<u32>,
    /// How long a target may take, such as 20m [default: 15m for sleep, 30m for wake]
    #[arg(long, help_heading = HEADING, value_name = "DURATION", value_parser = length, allow_hyphen_values = true)]
    pub(crate) deadline: Option<String>,
    /// Start nothing before this time; forms as for --until
    #[arg(long, help_heading = HEADING, value_name = "TIME")]
    pub(crate) not_before: Option<String>,
    /// Start nothing after this time; forms as for --until [default: 2 hours from now, or from --not-before]
    #[arg(long, help_heading = HEADING, value_name = "TIME")]
    pub(crate) not_after: Option<String>,
    /// Create the rollout paused: it shows its plan and starts nothing
    #[arg(long, help_heading = HEADING)]
    pub(crate) paused: bool,
    /// Pause after every group of canaries, until `rollout resume`
    #[arg(long, help_heading = HEADING, requires = "canary")]
    pub(crate) pause_after_canary: bool,
}

/// When a rollout may start targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hours {
    pub(crate) not_before: Option<Timestamp>,
    pub(crate) not_after: Timestamp,
}

impl RolloutFlags {
    /// The flags that were given.
    pub(crate) fn given(&self) -> Vec<&'static str> {
        [
            ("--max-concurrency", self.max_concurrency.is_some()),
            ("--canary", !self.canary.is_empty()),
            ("--max-failures", self.max_failures.is_some()),
            ("--starts-per-minute", self.starts_per_minute.is_some()),
            ("--deadline", self.deadline.is_some()),
            ("--not-before", self.not_before.is_some()),
            ("--not-after", self.not_after.is_some()),
            ("--paused", self.paused),
            ("--pause-after-canary", self.pause_after_canary),
        ]
        .into_iter()
        .filter_map(|(flag, given)| given.then_some(flag))
        .collect()
    }

    /// When targets may start.
    ///
    /// # Errors
    /// When a time is none, has passed, or the times are in the wrong order.
    pub(crate) fn hours(&self, now: &Zoned) -> Result<Hours, TimeError> {
        let read = |flag, text: &Option<String>| {
            text.as_ref().map(|text| moment(flag, text, now).map(whole_seconds)).transpose()
        };
        let not_before = read("--not-before", &self.not_before)?;
        let not_after = match read("--not-after", &self.not_after)? {
            Some(not_after) => not_after,
            None => default_end(not_before.unwrap_or(now.timestamp())),
        };
        match not_before.filter(|not_before| *not_before >= not_after) {
            None => Ok(Hours { not_before, not_after }),
            Some(not_before) => Err(TimeError::order(not_before, not_after)),
        }
    }
}

/// When a rollout ends to start targets, by default.
fn default_end(begin: Timestamp) -> Timestamp {
    whole_seconds(begin.checked_add(SignedDuration::from_hours(HOURS)).unwrap_or(Timestamp::MAX))
}

fn share(text: &str) -> Result<Share, String> {
    text.parse().map_err(|_| "write a number such as 5, or a percentage from 0% to 100%".to_owned())
}

fn positive_share(text: &str) -> Result<Share, String> {
    match text.parse() {
        Ok(Share::Count(0) | Share::Percent(0)) | Err(_) => {
            Err("write a number from 1 such as 20, or a percentage from 1% to 100%".to_owned())
        }
        Ok(share) => Ok(share),
    }
}

/// A duration as the API server takes it: ASCII, without a sign.
fn length(text: &str) -> Result<String, String> {
    parse_positive(text).map_err(|error| error.to_string())?;
    if text.starts_with('+') || !text.is_ascii() || text.len() > LONGEST {
        return Err(format!("write it without a sign, in ASCII, and with at most {LONGEST} characters, such as 20m"));
    }
    Ok(text.to_owned())
}

/// `rollout`.
#[derive(Debug, Args)]
pub(crate) struct RolloutArgs {
    /// What to do with it.
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// What can be done with a rollout.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Start no more targets; those in progress go on
    Pause(VerbArgs),
    /// Go on after a pause, or after a group of canaries that waits for approval
    Resume(VerbArgs),
    /// Accept the failures so far, and go on
    Accept(VerbArgs),
    /// Start the failed targets again
    Retry(VerbArgs),
    /// Start no more targets, for good; nothing is reversed
    Abort(VerbArgs),
    /// Abort it, and give its targets the state back that they had before
    #[command(before_help = help!("undo-examples"), after_long_help = help!("undo-steps", "exit-codes"))]
    Undo(UndoArgs),
}

/// Flags of every verb.
#[derive(Debug, Args)]
#[command(before_help = help!("verb-examples"), after_long_help = help!("verb-limits", "exit-codes"),
          mut_arg("output", |arg| arg.help("Print the object instead of messages").hide_short_help(false)))]
pub(crate) struct VerbArgs {
    /// The rollout
    #[arg(value_name = "NAME | rollout/NAME")]
    pub(crate) name: String,
    /// Skip the confirmation, which only undo asks for
    ///
    /// Implied if stdin is not a terminal.
    #[arg(long, short = 'y')]
    pub(crate) yes: bool,
    /// How it is written and reported.
    #[command(flatten)]
    pub(crate) write: WriteFlags,
}

/// Flags of `undo`.
#[derive(Debug, Args)]
pub(crate) struct UndoArgs {
    /// Those of every verb.
    #[command(flatten)]
    pub(crate) verb: VerbArgs,
    /// Reason, stored on every target that changes [default: names the rollout]
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Start nothing after this time; forms as for --until [default: 2 hours from now]
    #[arg(long, value_name = "TIME")]
    pub(crate) not_after: Option<String>,
    /// Wait until every target has its state back
    #[arg(long)]
    pub(crate) wait: bool,
    /// Timeout of --wait, such as 20m; 0 means no timeout
    #[arg(long, value_name = "DURATION", default_value = "0", value_parser = values::limit, hide_default_value = true,
          hide_short_help = true)]
    pub(crate) timeout: values::Limit,
}

impl UndoArgs {
    /// When targets may start.
    ///
    /// # Errors
    /// As [`RolloutFlags::hours`].
    pub(crate) fn hours(&self, now: &Zoned) -> Result<Hours, TimeError> {
        RolloutFlags { not_after: self.not_after.clone(), ..RolloutFlags::default() }.hours(now)
    }
}

impl Verb {
    /// Whether it changes something.
    pub(crate) fn changes(&self) -> bool {
        let args = match self {
            Self::Pause(args) | Self::Resume(args) | Self::Accept(args) | Self::Retry(args) | Self::Abort(args) => args,
            Self::Undo(args) => &args.verb,
        };
        args.write.changes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{self, Cli, Command};

    fn read(line: &str) -> Result<Cli, clap::Error> {
        cli::read::<Cli>(std::iter::once("kubectl-hibernate").chain(line.split_whitespace()).map(Into::into))
    }

    #[test]
    fn every_flag_of_a_rollout_makes_one() {
        for (flags, given) in [
            ("", vec![]),
            ("--reason x --wait --timeout 20m --yes --for 14h", vec![]),
            ("--max-concurrency 20", vec!["--max-concurrency"]),
            ("--canary a --canary b=c", vec!["--canary"]),
            ("--max-failures=0", vec!["--max-failures"]),
            ("--starts-per-minute 5 --deadline 20m", vec!["--starts-per-minute", "--deadline"]),
            ("--not-before 18:00 --not-after 19:00", vec!["--not-before", "--not-after"]),
            ("--paused", vec!["--paused"]),
            ("--canary a --pause-after-canary", vec!["--canary", "--pause-after-canary"]),
        ] {
            assert_eq!(read(&format!("demo {flags}")).unwrap().sleep.act.rollout.given(), given, "{flags}");
            let Some(Command::Plan(plan)) =
                read(&format!("plan demo {}", flags.split("--reason").next().unwrap())).unwrap().command
            else {
                panic!()
            };
            assert_eq!(plan.rollout.given(), given, "{flags}");
        }
    }

    #[test]
    fn what_cannot_be_is_wrong_usage_that_names_the_flag() {
        for (flags, flag, found, right) in [
            ("--max-concurrency 0", "--max-concurrency", "'0'", "from 1"),
            ("--max-concurrency -1", "--max-concurrency", "'-1'", "from 1"),
            ("--max-concurrency 0%", "--max-concurrency", "'0%'", "1% to 100%"),
            ("--max-concurrency 101%", "--max-concurrency", "'101%'", "1% to 100%"),
            ("--max-failures -1", "--max-failures", "'-1'", "a number such as 5"),
            ("--max-failures 101%", "--max-failures", "'101%'", "0% to 100%"),
            ("--starts-per-minute 0", "--starts-per-minute", "0", "1..=100000"),
            ("--starts-per-minute -1", "--starts-per-minute", "-1", "1..=100000"),
            ("--deadline 0s", "--deadline", "0s", "longer than nothing"),
            ("--deadline -5m", "--deadline", "-5m", "not positive"),
            ("--deadline +5m", "--deadline", "+5m", "without a sign"),
            ("--pause-after-canary", "--canary", "", ""),
        ] {
            let error = read(&format!("demo {flags}")).unwrap_err();
            let text = error.to_string();
            assert_eq!(error.exit_code(), 2, "{flags}");
            assert!([flag, found, right].iter().all(|part| text.contains(part)), "{flags}: {text}");
        }
    }

    #[test]
    fn hours_are_two_by_default_and_in_order() {
        let now: Zoned = "2026-11-21T20:30:00.9+02:00[+02:00]".parse().unwrap();
        for (line, expected) in [
            ("--paused", Ok((None, "2026-11-21T20:30:00Z"))),
            ("--not-before=21:00", Ok((Some("2026-11-21T19:00:00Z"), "2026-11-21T21:00:00Z"))),
            ("--not-after=21:00", Ok((None, "2026-11-21T19:00:00Z"))),
            ("--not-before=21:00 --not-after=22:00", Ok((Some("2026-11-21T19:00:00Z"), "2026-11-21T20:00:00Z"))),
            (
                "--not-before=22:00 --not-after=22:00",
                Err(
                    "--not-before 2026-11-21T20:00:00Z is not earlier than --not-after 2026-11-21T20:00:00Z: give an earlier --not-before, or a later --not-after",
                ),
            ),
            (
                "--not-after=2026-01-01T00:00:00Z",
                Err(
                    "--not-after \"2026-01-01T00:00:00Z\" has passed: it means 2026-01-01T00:00:00Z, and now it is 2026-11-21T18:30:00Z",
                ),
            ),
            (
                "--not-before=soon",
                Err(
                    "--not-before \"soon\" is not a time: write 2026-12-24T18:00:00Z, or local time as 2026-12-24T18:00, 18:00 or \"tomorrow 08:00\"",
                ),
            ),
        ] {
            let hours = read(&format!("demo {line}")).unwrap().sleep.act.rollout.hours(&now);
            let time = |text: &str| text.parse::<Timestamp>().unwrap();
            let expected = expected
                .map(|(not_before, not_after)| Hours { not_before: not_before.map(time), not_after: time(not_after) });
            assert_eq!(hours.map_err(|error| error.to_string()), expected.map_err(str::to_owned), "{line}");
        }
    }

    #[test]
    fn verbs_are_words_and_take_a_name() {
        for verb in ["pause", "resume", "accept", "retry", "abort", "undo"] {
            for flags in ["", " --yes", " -y"] {
                let line = format!("rollout {verb} rollout/night{flags}");
                let Some(Command::Rollout(args)) = read(&line).unwrap().command else { panic!("{line}") };
                assert!(args.verb.changes());
            }
            assert_eq!(read(&format!("rollout {verb}")).unwrap_err().exit_code(), 2, "{verb}");
        }
        assert_eq!(read("rollout stop night").unwrap_err().exit_code(), 2);
    }
}
