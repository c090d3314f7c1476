//! What can go wrong with process groups, and which exit code that is.

use shared::fdb::recover::check::Refusal;
use shared::fdb::recover::presence::{SpecDrift, Unrecoverable};

use super::Exit;

/// Why process groups are not, or not wholly, brought back.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FdbError {
    #[error("specify process groups by ID or Pod name, or pass --all-suspended, --process-class or --match-labels")]
    Nothing,
    #[error("{0} requires a cluster: pass -c NAME")]
    NeedsCluster(&'static str),
    #[error("{0:?} is an ID: name its cluster with -c NAME, or use the Pod name")]
    IdWithoutCluster(String),
    #[error("names and {0} are mutually exclusive")]
    NamesAndFilter(&'static str),
    #[error("--process-class, --match-labels and --all-suspended are mutually exclusive")]
    Filters,
    #[error("--match-labels {0:?}: write KEY=VALUE")]
    NotALabel(String),
    #[error(
        "-l does not select process groups: --match-labels does, among the PersistentVolumeClaims of one cluster (-c)"
    )]
    Selector,
    #[error("-A works only with Pod names: with -c, use -n")]
    ClusterInAllNamespaces,
    #[error("--replacement none and --replacement ID are mutually exclusive")]
    NoneAndSome,
    #[error("{pod}: more than one cluster has a process group with this Pod name: {clusters}; pass -n and -c")]
    SeveralClusters { pod: String, clusters: String },
    #[error("the Pods belong to more than one cluster: {0}; recover one cluster at a time")]
    NotOneCluster(String),
    #[error("no FoundationDBCluster {place} has a process group whose Pod is named {pod}")]
    NoClusterOfPod { pod: String, place: String },
    #[error("no suspended group {filter} in {cluster}: suspended groups: {suspended}")]
    NoMatch { cluster: String, filter: String, suspended: String },
    #[error("{cluster}: {}", lines(refusals))]
    Refused { cluster: String, refusals: Vec<Refusal> },
    #[error("{cluster}: nothing was changed: you do not have permission to {}", missing.join(", or "))]
    Rights { cluster: String, missing: Vec<String> },
    #[error("{cluster}: {lost}")]
    Unrecoverable { cluster: String, lost: Box<Unrecoverable> },
    #[error(
        "{cluster}: the operator has reverted the recovery {times} times. Find out why it marks the group again (its log, \
         spec.processCounts, NodeTaintReplacing and failed conditions in the cluster's status), then run this command again. The \
         volume is still held"
    )]
    RecoveryReverted { cluster: String, times: u32 },
    #[error(
        "{cluster}: the operator has marked {} again, and {}. Set {} back, wait until the operator has replaced the groups that it has \
         created since, and run this command again. The volume is still held",
        outdated.groups, outdated.why, outdated.field
    )]
    Outdated { cluster: String, outdated: SpecDrift },
    #[error("{cluster} not found in namespace {namespace:?}")]
    NoCluster { cluster: String, namespace: String },
    #[error(
        "{cluster} was deleted during the recovery: its groups cannot be recovered; their data is left only where the reclaim policy of \
         the PersistentVolume is Retain"
    )]
    Deleted { cluster: String },
    #[error(
        "{cluster}: {manager} has reset spec.skip {times} times during the recovery, and the operator reverts every edit. Have it leave \
         the cluster alone, for example by suspending its sync, and run this command again. The volume is still held"
    )]
    SkipReset { cluster: String, times: u32, manager: String },
    #[error(
        "{cluster}: the groups are back on their old volumes, but the database still has them excluded, and the operator replaces what \
         stays excluded after failureDetectionTimeSeconds (7200 by default): {why}. Run this again once the database is \
         available, or run: {command}"
    )]
    NotIncluded { cluster: String, why: String, command: String },
    #[error("interrupted: run the same command again to finish the recovery")]
    Interrupted,
    #[error("user aborted the recovery, nothing was changed")]
    Aborted,
    #[error("{path} exists and is not a link to this program: remove it, or choose another directory")]
    Foreign { path: String },
    #[cfg(not(unix))]
    #[error("cannot create links on this system: copy this program to {path}")]
    NoLinks { path: String },
}

/// Several reasons, each on a line of its own.
fn lines(refusals: &[Refusal]) -> String {
    refusals.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n  ")
}

impl FdbError {
    /// The exit code.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Nothing
            | Self::NeedsCluster(_)
            | Self::IdWithoutCluster(_)
            | Self::NamesAndFilter(_)
            | Self::Filters
            | Self::NotALabel(_)
            | Self::Selector
            | Self::ClusterInAllNamespaces
            | Self::NoneAndSome => Exit::Usage,
            Self::Refused { refusals, .. } if refusals.iter().all(|one| matches!(one, Refusal::Skipped { .. })) => {
                Exit::Refused
            }
            _ => Exit::Error,
        }
    }
}
