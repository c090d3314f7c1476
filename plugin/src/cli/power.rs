//! The command lines of what puts targets to sleep and wakes them.

use clap::Args;

use super::rollout::RolloutFlags;
use super::time::{TimeError, TimeFlags};
use super::values::{self, WriteFlags};

/// Flags of the commands that change something.
#[derive(Debug, Args)]
pub(crate) struct ActArgs {
    /// Targets
    #[arg(value_name = "NAME | TYPE/NAME", hide_short_help = true)]
    pub(crate) targets: Vec<String>,
    /// All targets of the namespace
    #[arg(long, hide_short_help = true)]
    pub(crate) all: bool,
    /// Reason, stored as annotation hibernate.sh/reason
    #[arg(long, value_name = "TEXT", hide_short_help = true)]
    pub(crate) reason: Option<String>,
    /// Wait until the targets reach the requested state
    #[arg(long)]
    pub(crate) wait: bool,
    /// Timeout of --wait, such as 20m; 0 means no timeout
    ///
    /// A check of the machines of a cluster that runs already ends after 2 minutes without an answer, unless a timeout
    /// is given.
    #[arg(long, value_name = "DURATION", default_value = "0", value_parser = values::limit, hide_default_value = true,
          hide_short_help = true)]
    pub(crate) timeout: values::Limit,
    /// Skip the confirmation
    ///
    /// Implied if stdin is not a terminal, except for KKP Clusters.
    #[arg(long, short = 'y')]
    pub(crate) yes: bool,
    /// How it is written and reported.
    #[command(flatten)]
    pub(crate) write: WriteFlags,
    /// When a cluster is to wake again, or until when it is held awake.
    #[command(flatten)]
    pub(crate) time: TimeFlags,
    /// How many at a time, which first.
    #[command(flatten)]
    pub(crate) rollout: RolloutFlags,
}

/// Flags of what puts targets to sleep.
#[derive(Debug, Args)]
pub(crate) struct SleepArgs {
    /// Those of every change.
    #[command(flatten)]
    pub(crate) act: ActArgs,
    /// Accept bare Pods, unfinished Jobs and webhooks that a wake has to call; KKP Clusters only
    #[arg(long, hide_short_help = true)]
    pub(crate) force: bool,
    /// With ns/NAME: also scale workloads that an operator controls and may scale up again
    #[arg(long, hide_short_help = true)]
    pub(crate) include_owned: bool,
}

/// Flags of `resume`.
#[derive(Debug, Args)]
pub(crate) struct ResumeArgs {
    /// Those of every change.
    #[command(flatten)]
    pub(crate) act: ActArgs,
    /// Refuse hibernation of the clusters until the end given by --for or --until
    #[arg(long, requires = "when")]
    pub(crate) hold_awake: bool,
}

impl ResumeArgs {
    /// What the parser cannot tell.
    ///
    /// # Errors
    /// When an end is given and nothing that could end.
    pub(crate) fn check(&self) -> Result<(), TimeError> {
        if self.act.time.is_empty() || self.hold_awake { Ok(()) } else { Err(TimeError::NothingHeld) }
    }
}
