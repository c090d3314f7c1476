//! The command line: what can be asked, and by which flags. Names and meanings are kubectl's wherever kubectl has them.

pub(crate) mod argv;
mod hub;
mod layout;
mod power;
pub(crate) mod recover;
pub(crate) mod rollout;
pub(crate) mod savings;
pub(crate) mod schedule;
pub(crate) mod time;
pub(crate) mod values;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::LazyLock;

use clap::error::{ContextKind, ContextValue};
use clap::parser::ValueSource;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

pub(crate) use self::hub::HubArgs;
use self::layout::{arranged, help};
pub(crate) use self::power::{ActArgs, ResumeArgs, SleepArgs};
use self::rollout::{RolloutArgs, RolloutFlags};
use self::savings::SavingsArgs;
use self::schedule::ScheduleArgs;
use self::time::TimeFlags;
pub(crate) use self::values::{
    ActOutput, Completer, DryRun, Include, ReportOutput, StatusOutput, VersionOutput, WriteFlags,
};

/// Hibernate and resume clusters and workloads.
#[derive(Debug, Parser)]
#[command(
    name = "kubectl-hibernate",
    bin_name = "kubectl hibernate",
    disable_version_flag = true,
    disable_help_subcommand = true,
    override_usage = "kubectl hibernate [OPTIONS] <NAME | TYPE/NAME>...\n       kubectl hibernate <COMMAND> ...",
    before_help = help!("hibernate-examples"),
    after_long_help = help!("targets", "rollouts", "confirmation", "flags", "exit-codes"),
    long_about = help!("about"),
    subcommand_help_heading = "Commands",
    max_term_width = 120
)]
pub(crate) struct Cli {
    /// What to do; putting to sleep if absent.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    /// What to put to sleep.
    #[command(flatten)]
    pub(crate) sleep: SleepArgs,
    /// How to reach the hub.
    #[command(flatten)]
    pub(crate) hub: HubArgs,
}

/// Commands besides putting to sleep.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Put targets to sleep, as the form without a command does
    #[command(before_help = help!("dehydrate-examples"),
              after_long_help = help!("targets", "confirmation", "exit-codes"))]
    Dehydrate(SleepArgs),
    /// Wake targets
    #[command(visible_aliases = ["wake", "hydrate"], before_help = help!("resume-examples"),
              after_long_help = help!("targets", "exit-codes"))]
    Resume(ResumeArgs),
    /// Show what would block or slow a hibernation or resume
    #[command(before_help = help!("plan-examples"), after_long_help = help!("plan-output", "exit-codes"))]
    Plan(PlanArgs),
    /// List the kinds that sleep, and what a sleep writes
    #[command(before_help = help!("kinds-examples"), after_long_help = help!("kinds-file", "exit-codes"))]
    Kinds(KindsArgs),
    /// Check the installation on the hub
    #[command(before_help = help!("check-examples"), after_long_help = help!("checks", "exit-codes"))]
    Check(CheckArgs),
    /// Show the power state of targets and the transitions in progress
    #[command(before_help = help!("status-examples"), after_long_help = help!("status-output", "exit-codes"))]
    Status(StatusArgs),
    /// Show hours asleep and the list cost that they avoided
    #[command(before_help = help!("savings-examples"), after_long_help = help!("savings", "exit-codes"))]
    Savings(SavingsArgs),
    /// Serve a web page of the fleet on 127.0.0.1
    #[command(before_help = help!("ui-examples"), after_long_help = help!("ui", "exit-codes"))]
    Ui(UiArgs),
    /// Pause, resume, accept, retry, abort or undo a rollout
    #[command(before_help = help!("rollout-examples"), after_long_help = help!("rollout-names", "exit-codes"))]
    Rollout(RolloutArgs),
    /// Create, explain, skip, apply, suspend or resume schedules
    #[command(before_help = help!("schedule-examples"), after_long_help = help!("schedule-names", "exit-codes"))]
    Schedule(ScheduleArgs),
    /// Recover resources that their own system is about to delete
    #[command(before_help = help!("recover-examples"))]
    Recover(recover::RecoverArgs),
    /// Let `kubectl fdb recover` run this program too, by a link
    #[command(before_help = help!("alias-examples"), after_long_help = help!("alias-effect"))]
    InstallAlias(recover::AliasArgs),
    /// Print the version of this program
    #[command(before_help = help!("version-examples"))]
    Version(VersionArgs),
    /// Print or install shell completion
    #[command(before_help = help!("completion-examples"))]
    Completion(CompletionArgs),
    /// Answer kubectl's question for completions
    #[command(name = "__complete", hide = true)]
    Complete {
        /// The words typed so far, the last one being completed.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
}

/// Words that are commands and therefore never bare names of targets.
pub(crate) static COMMANDS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let root = Cli::command();
    let shown = root.get_subcommands().filter(|command| !command.is_hide_set());
    shown.flat_map(clap::Command::get_name_and_visible_aliases).map(str::to_owned).collect()
});

/// Flags of `plan`.
#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// Targets
    #[arg(value_name = "NAME | TYPE/NAME")]
    pub(crate) targets: Vec<String>,
    /// All clusters of the namespace
    #[arg(long)]
    pub(crate) all: bool,
    /// Check the cloud and the cluster now
    ///
    /// Asks hibernate-controller to do it, and waits for the result.
    #[arg(long)]
    pub(crate) fresh: bool,
    /// Timeout of --fresh; 0 means no timeout
    #[arg(long, hide_short_help = true, value_name = "DURATION", default_value = "30s", value_parser = values::limit)]
    pub(crate) timeout: values::Limit,
    /// How long the sleep is to last.
    #[command(flatten)]
    pub(crate) time: TimeFlags,
    /// How many at a time, which first.
    #[command(flatten)]
    pub(crate) rollout: RolloutFlags,
    /// Format
    #[arg(long, short = 'o', value_enum, default_value_t = ReportOutput::Table, value_name = "FORMAT")]
    pub(crate) output: ReportOutput,
    /// Name under which the API server tracks the annotation that --fresh writes
    #[arg(long, value_name = "NAME", default_value = shared::annotation::keys::PLUGIN, hide_short_help = true)]
    pub(crate) field_manager: String,
}

/// Flags of `kinds`.
#[derive(Debug, Args)]
pub(crate) struct KindsArgs {
    /// Check the kinds of a file against the definitions of the hub
    #[arg(long, value_name = "FILE", conflicts_with = "output")]
    pub(crate) check: Option<PathBuf>,
    /// Format
    #[arg(long, short = 'o', value_enum, default_value_t = ReportOutput::Table, value_name = "FORMAT")]
    pub(crate) output: ReportOutput,
}

/// Flags of `check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Check a hub before you install
    #[arg(long, conflicts_with = "before_uninstall")]
    pub(crate) pre: bool,
    /// List what uninstalling would lose
    #[arg(long)]
    pub(crate) before_uninstall: bool,
    /// Format
    #[arg(long, short = 'o', value_enum, default_value_t = ReportOutput::Table, value_name = "FORMAT")]
    pub(crate) output: ReportOutput,
}

/// Flags of `status`.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Targets [default: all clusters in the namespace]
    #[arg(value_name = "NAME | TYPE/NAME | TYPE")]
    pub(crate) targets: Vec<String>,
    /// Format
    #[arg(long, short = 'o', value_enum, default_value_t = StatusOutput::Table, value_name = "FORMAT")]
    pub(crate) output: StatusOutput,
    /// Watch for changes after the first output
    #[arg(long, short = 'w')]
    pub(crate) watch: bool,
    /// Do not print headers
    #[arg(long)]
    pub(crate) no_headers: bool,
}

/// Flags of `ui`.
#[derive(Debug, Args)]
pub(crate) struct UiArgs {
    /// Type of the targets [default: all clusters of the namespace]
    #[arg(value_name = "TYPE")]
    pub(crate) kind: Option<String>,
    /// Port on 127.0.0.1 [default: random]
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    pub(crate) port: u16,
    /// Print the URL, and open no browser
    #[arg(long)]
    pub(crate) no_open: bool,
    /// Serve the page without actions
    #[arg(long)]
    pub(crate) read_only: bool,
}

/// Flags of `version`.
#[derive(Debug, Args)]
pub(crate) struct VersionArgs {
    /// Format
    #[arg(long, short = 'o', value_enum, value_name = "FORMAT")]
    pub(crate) output: Option<VersionOutput>,
}

/// Flags of `completion`.
#[derive(Debug, Args)]
pub(crate) struct CompletionArgs {
    /// Which program completes: kubectl, or a shell for kubectl-hibernate itself
    #[arg(value_enum, default_value_t = Completer::Kubectl, value_name = "FOR")]
    pub(crate) completer: Completer,
    /// Write the script for kubectl into the folder on PATH in which kubectl found this program
    #[arg(long)]
    pub(crate) install: bool,
    /// Remove that script
    #[arg(long, conflicts_with = "install")]
    pub(crate) remove: bool,
}

/// Reads a program's arguments.
///
/// # Errors
/// On wrong usage, and when help was asked for.
pub(crate) fn read<T: CommandFactory + FromArgMatches>(
    words: impl IntoIterator<Item = OsString>,
) -> Result<T, clap::Error> {
    let mut command = arranged(T::command());
    let words = argv::normalized(&command, words);
    let matches = command.try_get_matches_from_mut(words).map_err(with_the_way_of_kubectl)?;
    if let Some((name, _)) = matches.subcommand() {
        refuse_flags_before(&command, &matches, name)?;
    }
    T::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// How a flag or a format of kubectl's `get` and `scale` that this program does not have is replaced.
fn with_the_way_of_kubectl(mut error: clap::Error) -> clap::Error {
    const FIELDS: &str = "`status -o json` prints every field, as for jq; labels, columns and templates of the objects \
                          themselves are printed by `kubectl get`";
    const OBJECTS: &str = "targets are names, or labels by --selector; of a file or a field selector: \
                           `kubectl get ... -o name | xargs kubectl hibernate`";
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.as_str(),
        _ => "",
    };
    let (flag, value) = (context(ContextKind::InvalidArg), context(ContextKind::InvalidValue));
    let tip = match flag.split([' ', '=']).next().unwrap_or_default() {
        "--output" if value.contains("jsonpath") || value.contains("template") || value.contains("columns") => FIELDS,
        "--show-labels" | "--sort-by" | "--label-columns" | "--template" | "-L" => FIELDS,
        "--field-selector" | "--filename" | "--kustomize" | "--recursive" | "--ignore-not-found" | "-f" | "-k"
        | "-R" => OBJECTS,
        _ => return error,
    };
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    error
}

/// `kubectl hibernate --reason x resume demo` would lose the reason: flags of one command belong behind its name.
fn refuse_flags_before(command: &clap::Command, matches: &clap::ArgMatches, name: &str) -> Result<(), clap::Error> {
    let stray = command
        .get_arguments()
        .filter(|arg| !arg.is_global_set())
        .find(|arg| matches.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine));
    match stray {
        None => Ok(()),
        Some(arg) => {
            Err(command.clone().error(clap::error::ErrorKind::ArgumentConflict, format!("{arg} must follow `{name}`")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::time::TimeError;
    use super::*;

    fn read(line: &str) -> Result<Cli, clap::Error> {
        let words = std::iter::once("kubectl-hibernate").chain(line.split_whitespace());
        super::read(words.map(Into::into))
    }

    #[test]
    fn what_only_kubectl_has_is_answered_with_the_way_there() {
        for (line, part) in [
            ("status -o jsonpath={.items}", "`status -o json` prints every field"),
            ("status demo -o go-template-file=x", "`status -o json` prints every field"),
            ("status -o custom-columns=A:.b", "`status -o json` prints every field"),
            ("status --show-labels", "by `kubectl get`"),
            ("status --sort-by=.metadata.name", "by `kubectl get`"),
            ("status --field-selector a=b", "targets are names, or labels by --selector"),
            ("resume -f cluster.yaml", "targets are names, or labels by --selector"),
            ("demo --ignore-not-found", "targets are names, or labels by --selector"),
            ("status -o nonsense", "[possible values: table"),
        ] {
            let error = read(line).map(drop).unwrap_err();
            let text = error.to_string();
            assert!(text.contains(part) && error.exit_code() == 2, "{line}: {text}");
            assert_eq!(text.contains("kubectl get"), !line.contains("nonsense"), "{line}: {text}");
        }
        // As advised: what `kubectl get -o name` prints is a target.
        assert_eq!(read("clusterdeployment.hive.openshift.io/demo").unwrap().sleep.act.targets.len(), 1);
    }

    #[test]
    fn every_command_is_a_reserved_word() {
        for word in ["dehydrate", "resume", "wake", "hydrate", "install-alias", "completion"] {
            assert!(COMMANDS.iter().any(|command| command == word), "{word}");
        }
        assert!(!COMMANDS.iter().any(|command| command == "__complete"));
    }

    #[test]
    fn the_bare_form_hibernates() {
        let cli = read("demo other --wait --timeout 20m -n x").unwrap();
        assert!(cli.command.is_none());
        assert_eq!(cli.sleep.act.targets, ["demo", "other"]);
        assert_eq!(cli.sleep.act.timeout, values::limit("20m").unwrap());
        assert_eq!(cli.hub.connection.namespace.as_deref(), Some("x"));
    }

    #[test]
    fn dehydrate_is_the_bare_form_and_hydrate_is_resume() {
        let Some(Command::Dehydrate(args)) = read("dehydrate cluster/abc --force --yes").unwrap().command else {
            panic!()
        };
        assert!(args.force && args.act.yes);
        assert_eq!(args.act.targets, ["cluster/abc"]);
        let Some(Command::Resume(args)) = read("hydrate cluster/abc").unwrap().command else { panic!() };
        assert_eq!(args.act.targets, ["cluster/abc"]);
        assert!(read("cluster/abc --force").unwrap().sleep.force);
        for line in ["hydrate cluster/abc --force", "--force hydrate cluster/abc"] {
            assert_eq!(read(line).unwrap_err().exit_code(), 2, "{line}");
        }
    }

    #[test]
    fn hub_flags_stand_before_or_behind_a_command() {
        for line in ["-n x resume demo", "resume -n x demo", "wake demo -n x"] {
            let cli = read(line).unwrap();
            assert_eq!(cli.hub.connection.namespace.as_deref(), Some("x"), "{line}");
            let Some(Command::Resume(resume)) = cli.command else { panic!("{line}") };
            assert_eq!(resume.act.targets, ["demo"]);
        }
    }

    #[test]
    fn only_what_can_be_a_namespace_is_taken_for_one() {
        let read = |name: &str| {
            super::read::<Cli>(["kubectl-hibernate", "demo", &format!("--namespace={name}")].map(Into::into))
        };
        for name in ["", "shop", "7", "kube-system"] {
            assert_eq!(read(name).unwrap().hub.connection.namespace.as_deref(), Some(name));
        }
        for name in [" ", "Shop", "a.b", "-a", "a/../b", "a?x=y", "a".repeat(64).as_str()] {
            assert_eq!(read(name).unwrap_err().exit_code(), 2, "{name:?}");
        }
    }

    #[test]
    fn flags_of_a_command_do_not_get_lost_before_it() {
        for line in ["--reason x resume demo", "--wait resume demo", "-y wake demo", "--all status"] {
            let error = read(line).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{line}");
            assert!(error.to_string().contains("must follow"), "{line}: {error}");
        }
    }

    #[test]
    fn a_sleep_has_one_end_and_only_a_wake_is_held() {
        for line in ["demo --for 14h", "demo --until 18:00", "resume demo --hold-awake --for 4h"] {
            assert!(read(line).is_ok(), "{line}");
        }
        for line in ["demo --for 14h --until 18:00", "demo --for 30s", "demo --hold-awake", "resume demo --hold-awake"]
        {
            assert_eq!(read(line).unwrap_err().exit_code(), 2, "{line}");
        }
        let Some(Command::Resume(loose)) = read("resume demo --for 4h").unwrap().command else { panic!() };
        assert_eq!(loose.check(), Err(TimeError::NothingHeld));
    }

    #[test]
    fn verbosity_takes_kubectls_forms() {
        for (line, level) in [("demo", 0), ("demo -v", 6), ("-v demo", 6), ("demo -v=8", 8), ("demo --v=1", 1)] {
            assert_eq!(read(line).unwrap().hub.verbosity, level, "{line}");
        }
    }

    /// `kubectl options`, and what later versions have.
    #[test]
    fn every_global_flag_of_kubectl_is_accepted() {
        for flag in [
            "--as=x",
            "--as=x --as-group=y --as-group=z",
            "--as=x --as-uid=1",
            "--as=x --as-user-extra=team=a",
            "--cache-dir /tmp/cache",
            "--certificate-authority=ca.crt",
            "--client-certificate=c.pem",
            "--client-key=k.pem",
            "--cluster=c",
            "--context=c",
            "--disable-compression",
            "--disable-compression=true",
            "--insecure-skip-tls-verify=true",
            "--kubeconfig=kc",
            "--kuberc=rc",
            "--log-flush-frequency=5s",
            "--match-server-version",
            "--match-server-version=false",
            "-n shop",
            "--namespace=shop",
            "--password=p",
            "--profile=none",
            "--profile-output profile.pprof",
            "--request-timeout=0",
            "-s https://hub",
            "--server=https://hub",
            "--tls-server-name=hub",
            "--token=t",
            "--user=u",
            "--username=u",
            "-v 6",
            "--v=6",
            "--vmodule=a=1,b=2",
            "--warnings-as-errors",
            "--warnings-as-errors=false",
        ] {
            let cli = read(&format!("{flag} demo")).unwrap_or_else(|error| panic!("{flag}: {error}"));
            assert_eq!(cli.sleep.act.targets, ["demo"], "{flag}");
            let behind = read(&format!("status cd/demo {flag}")).unwrap_or_else(|error| panic!("{flag}: {error}"));
            let Some(Command::Status(status)) = behind.command else { panic!("{flag}") };
            assert_eq!(status.targets, ["cd/demo"], "{flag}");
        }
        for wrong in ["--token=t --username=u", "--as=x --as-user-extra=team", "--as=x --as-user-extra==a"] {
            assert_eq!(read(&format!("demo {wrong}")).unwrap_err().exit_code(), 2, "{wrong}");
        }
        assert!(read("demo --warnings-as-errors").unwrap().hub.warnings_as_errors);
        assert!(!read("demo --warnings-as-errors --warnings-as-errors=false").unwrap().hub.warnings_as_errors);
    }

    #[test]
    fn dry_run_without_a_value_is_the_clients() {
        assert_eq!(read("demo --dry-run").unwrap().sleep.act.write.dry_run, DryRun::Client);
        assert_eq!(read("--dry-run demo").unwrap().sleep.act.write.dry_run, DryRun::Client);
        assert_eq!(read("demo --dry-run=server").unwrap().sleep.act.write.dry_run, DryRun::Server);
    }

    #[test]
    fn contradictions_are_usage_errors() {
        for line in [
            "demo -n x -A",
            "demo -n Shop",
            "demo --insecure-skip-tls-verify --certificate-authority ca.crt",
            "demo --nope",
        ] {
            assert_eq!(read(line).unwrap_err().exit_code(), 2, "{line}");
        }
    }
}
