//! The command line of schedules: `schedule VERB`.

use clap::{ArgGroup, Args, Subcommand};
use shared::rollout::api::MAX_MEMBERS;

use super::layout::help;
use super::values::{ReportOutput, WriteFlags};

/// `schedule`.
#[derive(Debug, Args)]
pub(crate) struct ScheduleArgs {
    /// What to do.
    #[command(subcommand)]
    pub(crate) verb: ScheduleVerb,
}

/// What can be done with schedules.
#[derive(Debug, Subcommand)]
pub(crate) enum ScheduleVerb {
    /// Create a schedule
    #[command(before_help = help!("schedule-create-examples"),
              after_long_help = help!("schedule-targets", "exit-codes"))]
    Create(CreateArgs),
    /// List when targets will sleep and wake
    #[command(before_help = help!("schedule-next-examples"), after_long_help = help!("schedule-next", "exit-codes"))]
    Next(NextArgs),
    /// Show which schedule governs a target, and what it will do
    #[command(before_help = help!("schedule-explain-examples"),
              after_long_help = help!("schedule-explain", "exit-codes"))]
    Explain(ExplainArgs),
    /// Leave targets as they are at the next edge, or until a time
    #[command(before_help = help!("schedule-skip-examples"), after_long_help = help!("schedule-skip", "exit-codes"))]
    Skip(SkipArgs),
    /// Apply the state that a schedule asks for now
    Apply(ChangeArgs),
    /// Do nothing until `schedule resume`
    Suspend(ChangeArgs),
    /// Act again, from the next edge on
    Resume(ChangeArgs),
}

/// Flags of `schedule create`.
#[derive(Debug, Args)]
#[command(override_usage = "kubectl hibernate schedule create [OPTIONS] <NAME> [TARGET]...",
          group(ArgGroup::new("times").required(true).multiple(true).args(["awake", "sleep_at", "wake_at"])),
          mut_arg("output", |arg| arg.help("Print the object instead of messages").hide_short_help(false)))]
pub(crate) struct CreateArgs {
    /// Name of the schedule
    #[arg(value_name = "NAME")]
    pub(crate) schedule_name: String,
    /// Targets
    #[arg(value_name = "TARGET")]
    pub(crate) targets: Vec<String>,
    /// When targets are awake, as "Mon-Fri 07:30-18:00"
    ///
    /// They sleep at all other times. Repeatable; without days it is every day.
    #[arg(long, value_name = "DAYS FROM-TO", conflicts_with_all = ["sleep_at", "wake_at"])]
    pub(crate) awake: Vec<String>,
    /// When targets fall asleep, as "0 18 * * 1-5"
    ///
    /// Minute, hour, day of the month, month and day of the week. Repeatable.
    #[arg(long, value_name = "CRON")]
    pub(crate) sleep_at: Vec<String>,
    /// When targets wake, as "30 7 * * 1-5"
    ///
    /// Of two events at one time this one counts. Repeatable.
    #[arg(long, value_name = "CRON")]
    pub(crate) wake_at: Vec<String>,
    /// Time zone of all times, such as Europe/Berlin
    #[arg(long, value_name = "ZONE")]
    pub(crate) zone: String,
    /// Select targets of any namespace
    ///
    /// Creates a cluster-wide schedule.
    #[arg(long)]
    pub(crate) cluster_wide: bool,
    /// All targets of the namespace
    ///
    /// With --cluster-wide, of all namespaces.
    #[arg(long)]
    pub(crate) all: bool,
    /// Kind of the targets; workloads are those of ns/NAME, and of operators those of --operator-kinds
    #[arg(long, value_name = "KIND", value_parser = ["clusterdeployment", "cluster", "workloads", "virtualmachine", "shoot"],
          default_value = "clusterdeployment", hide_short_help = true)]
    pub(crate) kind: String,
    /// Kinds of operators to include, with --kind workloads, such as clusters.postgresql.cnpg.io
    ///
    /// Comma-separated; "" includes none. Default: those that the hub serves and you may patch, but virtual machines, which
    /// have schedules of their own; none with --dry-run=client.
    #[arg(long, value_name = "RESOURCES", value_delimiter = ',', hide_short_help = true)]
    pub(crate) operator_kinds: Option<Vec<String>>,
    /// How much earlier wakes begin, so that targets are ready on time, such as 20m
    #[arg(long, value_name = "DURATION", hide_short_help = true)]
    pub(crate) lead: Option<String>,
    /// Of several schedules for a target the one with the highest priority governs it [default: 0]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(-1_000..=1_000),
          allow_hyphen_values = true, hide_short_help = true)]
    pub(crate) priority: Option<i32>,
    /// Change nothing if it governs more targets than this [default: 1000]
    ///
    /// Of workloads it counts the namespaces.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_MEMBERS)),
          hide_short_help = true)]
    pub(crate) max_targets: Option<u32>,
    /// Skip the confirmation
    ///
    /// Implied if stdin is not a terminal.
    #[arg(long, short = 'y', hide_short_help = true)]
    pub(crate) yes: bool,
    /// How it is written and reported.
    #[command(flatten)]
    pub(crate) write: WriteFlags,
}

/// Where calendars are.
#[derive(Debug, Args)]
pub(crate) struct CalendarArgs {
    /// Namespace of the calendars of cluster-wide schedules [default: that of the controller]
    #[arg(long, value_name = "NAMESPACE", hide_short_help = true)]
    pub(crate) calendar_namespace: Option<String>,
}

/// Flags of what only reads.
#[derive(Debug, Args)]
pub(crate) struct ReadArgs {
    /// Format
    #[arg(long, short = 'o', value_enum, default_value_t = ReportOutput::Table, value_name = "FORMAT")]
    pub(crate) output: ReportOutput,
    #[command(flatten)]
    pub(crate) calendars: CalendarArgs,
}

/// Flags of `schedule next`.
#[derive(Debug, Args)]
pub(crate) struct NextArgs {
    /// The schedule [default: all schedules of the namespace, and all cluster-wide ones]
    #[arg(value_name = "NAME | TYPE/NAME")]
    pub(crate) schedule: Option<String>,
    /// How many days ahead
    #[arg(long, value_name = "N", default_value_t = 14, value_parser = clap::value_parser!(u16).range(1..=366))]
    pub(crate) days: u16,
    #[command(flatten)]
    pub(crate) read: ReadArgs,
}

/// Flags of `schedule explain`.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// The target
    #[arg(value_name = "NAME | TYPE/NAME", required = true, num_args = 1..=2)]
    pub(crate) targets: Vec<String>,
    #[command(flatten)]
    pub(crate) read: ReadArgs,
}

/// Flags of `schedule skip`.
#[derive(Debug, Args)]
pub(crate) struct SkipArgs {
    /// Those of every change.
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
    /// Until when [default: one minute after the next edge]
    ///
    /// An edge that begins an exception or a calendar day is skipped until that ends.
    ///
    /// 2026-12-24T18:00:00Z, or local time as 2026-12-24T18:00, 18:00 (the next one) or "tomorrow 08:00".
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,
    /// Skip the next sleep, also if a wake comes before it
    #[arg(long, conflicts_with = "until")]
    pub(crate) sleep: bool,
}

/// Flags of every change of a schedule.
#[derive(Debug, Args)]
#[command(before_help = help!("schedule-change-examples"), after_long_help = help!("schedule-names", "exit-codes"),
          mut_arg("output", |arg| arg.help("Print the object instead of messages").hide_short_help(false)))]
pub(crate) struct ChangeArgs {
    /// The schedule
    #[arg(value_name = "NAME | TYPE/NAME")]
    pub(crate) schedule: String,
    #[command(flatten)]
    pub(crate) calendars: CalendarArgs,
    /// How it is written and reported.
    #[command(flatten)]
    pub(crate) write: WriteFlags,
}

impl ScheduleVerb {
    /// Whether it changes something.
    pub(crate) fn changes(&self) -> bool {
        match self {
            Self::Create(args) => args.write.changes(),
            Self::Skip(SkipArgs { change, .. })
            | Self::Apply(change)
            | Self::Suspend(change)
            | Self::Resume(change) => change.write.changes(),
            Self::Next(_) | Self::Explain(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{self, Cli, Command};

    fn read(words: &[&str]) -> Result<ScheduleVerb, clap::Error> {
        let words = ["kubectl-hibernate", "schedule"].iter().chain(words).map(Into::into);
        let Some(Command::Schedule(args)) = cli::read::<Cli>(words)?.command else { panic!("another command") };
        Ok(args.verb)
    }

    #[test]
    fn every_verb_is_read() {
        for line in [
            "skip night",
            "skip schedule/night --until 18:00",
            "skip night --sleep",
            "apply night",
            "suspend night",
            "resume cpsch/x",
        ] {
            let words: Vec<&str> = line.split(' ').collect();
            assert!(read(&words).unwrap().changes(), "{line}");
            assert!(!read(&[&words[..], &["--dry-run=client"]].concat()).unwrap().changes(), "{line}");
        }
        for line in ["next", "next night --days 3 -o json", "explain cd/demo", "explain cd demo"] {
            assert!(!read(&line.split(' ').collect::<Vec<_>>()).unwrap().changes(), "{line}");
        }
        for line in [
            "",
            "stop night",
            "skip",
            "skip night --sleep --until 18:00",
            "next a b",
            "next --days 0",
            "next --days 367",
            "explain",
            "explain a b c",
        ] {
            assert_eq!(read(&line.split(' ').collect::<Vec<_>>()).unwrap_err().exit_code(), 2, "{line}");
        }
    }

    #[test]
    fn a_schedule_has_windows_or_events() {
        let create = ["create", "night", "--zone", "UTC", "--all"];
        let with = |more: &[&str]| read(&[&create, more].concat());
        for more in [
            &["--awake", "Mon-Fri 07:30-18:00", "--awake", "Sat 10:00-12:00"][..],
            &["--sleep-at", "0 18 * * *", "--wake-at", "30 7 * * 1-5"],
            &["--sleep-at", "0 18 * * *", "--priority", "-5", "--max-targets", "20", "--lead", "20m"],
        ] {
            assert!(with(more).unwrap().changes(), "{more:?}");
        }
        for more in [
            &[][..],
            &["--awake", "07:30-18:00", "--sleep-at", "0 18 * * *"],
            &["--awake", "07:30-18:00", "--kind", "pod"],
            &["--awake", "07:30-18:00", "--priority", "1001"],
            &["--awake", "07:30-18:00", "--max-targets", "0"],
        ] {
            assert_eq!(with(more).unwrap_err().exit_code(), 2, "{more:?}");
        }
    }
}
