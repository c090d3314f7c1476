//! The controller's flags.

use std::net::SocketAddr;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use shared::duration::{parse_positive, parse_unsigned};
use shared::hive::decide::{Drift, Settings};

use crate::cloud_registry::CloudFlags;

const AFTER_HELP: &str = "\
Examples:
  hibernate-controller                                   # in a Pod, with its service account
  hibernate-controller --kubeconfig hub.kubeconfig --identity laptop

Exit codes: 0 asked to stop, 1 error, 2 usage.";

/// Puts clusters to sleep and wakes them, as their objects on the hub ask for.
#[derive(Clone, Debug, Parser)]
#[command(version, after_help = AFTER_HELP)]
pub struct Args {
    /// Kubeconfig of the hub; without it $KUBECONFIG, then the Pod's service account
    #[arg(long, value_name = "PATH")]
    pub kubeconfig: Option<std::path::PathBuf>,
    /// Namespace of the Lease by which one of several controllers leads
    #[arg(long, default_value = shared::annotation::keys::NAMESPACE)]
    pub namespace: String,
    /// Name of that Lease
    #[arg(long, default_value = shared::annotation::keys::CONTROLLER)]
    pub lease: String,
    /// Who this controller is, in the Lease and in the cloud's call log; default: host name and a random part
    #[arg(long)]
    pub identity: Option<String>,
    /// After this long without a renewal another controller may lead
    #[arg(long, default_value = "15s", value_parser = duration)]
    pub lease_duration: Duration,
    /// After this long without a renewal this controller no longer acts; shorter than the lease
    #[arg(long, default_value = "10s", value_parser = duration)]
    pub renew_deadline: Duration,
    /// How often the Lease is renewed
    #[arg(long, default_value = "2s", value_parser = duration)]
    pub retry_period: Duration,
    /// Address of /healthz, /readyz and /metrics (plain HTTP)
    #[arg(long, default_value = "0.0.0.0:8080")]
    pub listen: SocketAddr,
    /// Clusters that are worked on at once; up to 200 of one AWS account share a call
    #[arg(long, default_value_t = 256)]
    pub concurrency: u16,
    /// How long cluster operators that give no sign of life get to notice that they are awake
    #[arg(long, default_value = "2m", value_parser = duration)]
    pub cluster_operator_pause: Duration,
    /// How long all cluster operators must have been well before a cluster counts as awake
    #[arg(long, default_value = "3s", value_parser = duration)]
    pub cluster_operator_settle: Duration,
    /// How often a cluster that neither sleeps in nor wakes up is looked at
    #[arg(long, default_value = "10m", value_parser = duration)]
    pub steady_period: Duration,
    /// How long a wake may take before an Event warns
    #[arg(long, default_value = "30m", value_parser = duration)]
    pub wake_limit: Duration,
    /// How long falling asleep may take before an Event warns
    #[arg(long, default_value = "15m", value_parser = duration)]
    pub sleep_limit: Duration,
    /// What to do about instances of a sleeping cluster that somebody has started
    #[arg(long, value_enum, default_value_t = DriftPolicy::Stop)]
    pub drift: DriftPolicy,
    /// How long removed process groups of a FoundationDBCluster are kept that does not say so itself; 0 is off
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = parse_unsigned)]
    pub fdb_minimum_suspension: Duration,
    /// Also write the condition Unreachable, knowing of sleep; Hive's own unreachable controller must be switched off
    #[arg(long)]
    pub own_unreachable: bool,
    /// Flags of the clouds
    #[command(flatten)]
    pub clouds: CloudFlags,
    /// How log lines look
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
}

/// What to do about instances of a sleeping cluster that somebody has started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DriftPolicy {
    /// Report and stop them, as Hive does.
    Stop,
    /// Report them.
    Report,
}

impl Args {
    /// What decisions depend on.
    #[must_use]
    pub fn settings(&self) -> Settings {
        Settings {
            operator_pause: self.cluster_operator_pause,
            operator_settle: self.cluster_operator_settle,
            steady: self.steady_period,
            wake_limit: self.wake_limit,
            sleep_limit: self.sleep_limit,
            drift: match self.drift {
                DriftPolicy::Stop => Drift::Stop,
                DriftPolicy::Report => Drift::Report,
            },
        }
    }
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For machines.
    Json,
}

fn duration(text: &str) -> Result<Duration, shared::duration::DurationError> {
    parse_positive(text)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_flags_are_sound() {
        Args::command().debug_assert();
        assert!(Args::try_parse_from(["c", "--lease-duration", "0s"]).is_err());
        assert_eq!(
            Args::try_parse_from(["c", "--cluster-operator-pause", "1m30s"]).unwrap().cluster_operator_pause.as_secs(),
            90
        );
    }
}
