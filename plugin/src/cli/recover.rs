//! The command line of `recover process-groups`, under our name and under that of `kubectl fdb recover`.

use std::path::PathBuf;

use clap::builder::{BoolishValueParser, NonEmptyStringValueParser};
use clap::{ArgAction, Args, Parser, Subcommand};

use super::hub::HubArgs;
use super::layout::help;
use super::values::{self, Include, WriteFlags};

/// `recover`.
#[derive(Debug, Args)]
pub(crate) struct RecoverArgs {
    /// What.
    #[command(subcommand)]
    pub(crate) what: Recover,
}

/// What can be recovered.
#[derive(Debug, Subcommand)]
pub(crate) enum Recover {
    /// Process groups of `FoundationDB`.
    #[command(about = "Bring suspended process groups of a FoundationDBCluster back, on their old volumes", visible_alias = "process-group",
              before_help = help!("recover-examples"), after_long_help = help!("recover-steps", "exit-codes"))]
    ProcessGroups(ProcessGroupsArgs),
}

/// `recover process-groups` under our own name.
#[derive(Debug, Args)]
pub(crate) struct ProcessGroupsArgs {
    /// Which, and how.
    #[command(flatten)]
    pub(crate) groups: GroupArgs,
    /// Skip the confirmation
    ///
    /// Implied if stdin is not a terminal.
    #[arg(long, short = 'y')]
    pub(crate) yes: bool,
    /// Wait until the Pods run on their old volumes
    ///
    /// With --wait=false the command returns before that; run it again later to remove the remaining annotations.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = true,
          default_missing_value = "true", action = ArgAction::Set, value_parser = BoolishValueParser::new())]
    pub(crate) wait: bool,
}

/// What both names have.
#[derive(Debug, Args)]
#[command(mut_arg("output", |arg| arg.help("Print the cluster instead of messages")))]
pub(crate) struct GroupArgs {
    /// IDs of process groups, or the names that their Pods had
    #[arg(value_name = "ID | POD", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) groups: Vec<String>,
    /// FoundationDBCluster; optional with Pod names, which imply it
    #[arg(long, short = 'c', value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) fdb_cluster: Option<String>,
    /// All suspended groups of this class
    #[arg(long, value_name = "CLASS", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) process_class: Option<String>,
    /// Labels.
    #[arg(
        long,
        value_name = "KEY=VALUE",
        value_delimiter = ',',
        hide_short_help = true,
        help = "All suspended groups whose PersistentVolumeClaim has these labels"
    )]
    pub(crate) match_labels: Vec<String>,
    /// All suspended groups of the cluster
    #[arg(long)]
    pub(crate) all_suspended: bool,
    /// Whether to include the groups in the database again, with fdbcli in a Pod of the cluster
    #[arg(long, value_enum, default_value_t = Include::Auto, value_name = "WHEN", hide_short_help = true)]
    pub(crate) include: Include,
    /// Group to remove in exchange, or none [default: the newest one created since the removal]. Repeatable
    #[arg(long, value_name = "ID | none", action = ArgAction::Append, value_parser = NonEmptyStringValueParser::new(),
          hide_short_help = true)]
    pub(crate) replacement: Vec<String>,
    /// How long the cluster must go without a write before the status is edited, and before the edit is verified
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = values::limit, hide_short_help = true)]
    pub(crate) settle: values::Limit,
    /// Timeout of the whole recovery, such as 20m; 0 means no timeout
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = values::limit, hide_short_help = true)]
    pub(crate) timeout: values::Limit,
    /// How it is written and reported.
    #[command(flatten)]
    pub(crate) write: WriteFlags,
}

/// `install-alias`.
#[derive(Clone, Debug, Args)]
pub(crate) struct AliasArgs {
    /// Folder for the link [default: the folder on PATH in which kubectl found this program]
    #[arg(value_name = "FOLDER")]
    pub(crate) folder: Option<PathBuf>,
    /// Remove the link
    #[arg(long)]
    pub(crate) remove: bool,
}

/// The program under the name `kubectl-fdb-recover`.
#[derive(Debug, Parser)]
#[command(
    name = "kubectl-fdb-recover",
    bin_name = "kubectl fdb recover",
    disable_version_flag = true,
    disable_help_subcommand = true,
    about = "Bring suspended process groups of a FoundationDBCluster back. Part of kubectl-hibernate.",
    before_help = help!("recover-examples"),
    max_term_width = 120
)]
pub(crate) struct FdbCli {
    /// What.
    #[command(subcommand)]
    pub(crate) command: FdbCommand,
    /// How to reach the hub.
    #[command(flatten)]
    pub(crate) hub: HubArgs,
}

/// Commands of `kubectl fdb recover`.
#[derive(Debug, Subcommand)]
pub(crate) enum FdbCommand {
    /// Bring suspended process groups back, on their old volumes
    #[command(visible_alias = "process-group", before_help = help!("recover-examples"),
              after_long_help = help!("recover-steps", "exit-codes"))]
    ProcessGroups(FdbArgs),
}

/// `process-groups` with the flags that kubectl-fdb's commands have.
#[derive(Debug, Args)]
pub(crate) struct FdbArgs {
    /// Which, and how.
    #[command(flatten)]
    pub(crate) groups: GroupArgs,
    /// Ask before anything is changed, as kubectl-fdb does
    #[arg(long, short = 'w', value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = true,
          default_missing_value = "true", action = ArgAction::Set, value_parser = BoolishValueParser::new())]
    pub(crate) wait: bool,
    /// Do not ask, as --wait=false
    #[arg(long, short = 'y')]
    pub(crate) yes: bool,
    /// Seconds that the cluster must go without a write; same as --settle
    #[arg(long, short = 'z', value_name = "SECONDS", hide_short_help = true)]
    pub(crate) sleep: Option<u16>,
    /// Accepted, because scripts for kubectl-fdb give it: this program looks for no newer version of itself
    #[arg(long, hide = true, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = true,
          default_missing_value = "true", action = ArgAction::Set, value_parser = BoolishValueParser::new())]
    pub(crate) version_check: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{self, Cli, Command};

    fn own(line: &str) -> Result<ProcessGroupsArgs, clap::Error> {
        let cli = cli::read::<Cli>(line.split_whitespace().map(Into::into))?;
        match cli.command {
            Some(Command::Recover(RecoverArgs { what: Recover::ProcessGroups(args) })) => Ok(args),
            other => panic!("{other:?}"),
        }
    }

    fn alias(line: &str) -> Result<FdbArgs, clap::Error> {
        let FdbCommand::ProcessGroups(args) = cli::read::<FdbCli>(line.split_whitespace().map(Into::into))?.command;
        Ok(args)
    }

    #[test]
    fn wait_means_waiting_under_our_name_and_asking_under_theirs() {
        let args = own("kubectl-hibernate recover process-groups -c sample storage-1 --wait").unwrap();
        assert!(args.wait && !args.yes);
        assert_eq!(args.groups.fdb_cluster.as_deref(), Some("sample"));
        for off in ["false", "F", "0"] {
            let line = format!("kubectl-hibernate recover process-groups -c s x --wait={off}");
            assert!(!own(&line).unwrap().wait, "{line}");
        }
        let args = alias("kubectl-fdb-recover process-groups -c sample -w=false -z 3 storage-1 --version-check=false")
            .unwrap();
        assert!(!args.wait);
        assert_eq!(args.sleep, Some(3));
        assert_eq!(args.groups.groups, ["storage-1"]);
        assert!(alias("kubectl-fdb-recover process-groups x").unwrap().wait);
    }

    #[test]
    fn what_is_not_known_is_wrong_usage() {
        assert!(own("kubectl-hibernate recover process-groups --include=sometimes x").is_err());
        assert!(own("kubectl-hibernate recover").is_err());
        for empty in ["-c=", "-c s --process-class=", "-c s x --replacement="] {
            assert!(own(&format!("kubectl-hibernate recover process-groups {empty}")).is_err(), "{empty}");
        }
        assert!(alias("kubectl-fdb-recover").is_err());
        assert!(alias("kubectl-fdb-recover process-groups -z soon x").is_err());
    }
}
