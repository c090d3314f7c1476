//! What Compute Engine answers, as far as it matters.

use std::collections::BTreeMap;

use cloud_stopstart::{Machine, Progress};
use jiff::Timestamp;
use serde::Deserialize;
use shared::cloud::{CloudError, CloudErrorKind, Instance, InstanceState};
use shared::text::sanitize_to;

/// What a list is asked for: everything below, and nothing else.
pub(crate) const FIELDS: &str = "items/*/instances(name,zone,status,labels,lastStartTimestamp),\
                                 items/*/warning,warning,nextPageToken,unreachables";

/// Label of everything of a cluster, before its infraID.
const LABEL: &str = "kubernetes-io-cluster-";

/// Longest name that is shown.
const NAME: usize = 80;

/// One page of an aggregated list.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Page {
    #[serde(default)]
    pub(crate) items: BTreeMap<String, Scope>,
    warning: Option<Warning>,
    #[serde(default)]
    pub(crate) next_page_token: String,
    #[serde(default)]
    unreachables: Vec<String>,
}

/// One zone.
#[derive(Deserialize)]
pub(crate) struct Scope {
    #[serde(default)]
    pub(crate) instances: Vec<Listed>,
    warning: Option<Warning>,
}

#[derive(Deserialize)]
struct Warning {
    #[serde(default)]
    code: String,
}

/// One instance.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Listed {
    pub(crate) name: String,
    /// A URL.
    zone: String,
    #[serde(default)]
    status: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    last_start_timestamp: String,
}

/// A call that was accepted.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Operation {
    #[serde(default)]
    pub(crate) name: String,
    #[serde(default)]
    status: String,
    #[serde(default)]
    error: Errors,
}

#[derive(Default, Deserialize)]
struct Errors {
    #[serde(default)]
    errors: Vec<OperationError>,
}

#[derive(Deserialize)]
struct OperationError {
    #[serde(default)]
    code: String,
    #[serde(default)]
    message: String,
}

impl Page {
    /// Whether every zone has answered.
    ///
    /// # Errors
    /// When one has not, by name.
    pub(crate) fn check(&self) -> Result<(), CloudError> {
        let is_bad = |warning: &Option<Warning>| {
            warning.as_ref().filter(|warning| warning.code != "NO_RESULTS_ON_PAGE").map(|warning| warning.code.clone())
        };
        let scopes = self.items.iter().filter_map(|(scope, found)| Some((scope.as_str(), is_bad(&found.warning)?)));
        let unreachable = self.unreachables.iter().map(|scope| (scope.as_str(), "UNREACHABLE".to_owned()));
        let all = is_bad(&self.warning).map(|code| ("all zones", code));
        let Some((scope, code)) = scopes.chain(unreachable).chain(all).next() else { return Ok(()) };
        let (scope, code) = (sanitize_to(scope.rsplit('/').next().unwrap_or_default(), 60), sanitize_to(&code, 60));
        let message = format!("instances.aggregatedList does not list {scope}: {code}");
        Err(CloudError::new(CloudErrorKind::Unavailable, message))
    }
}

impl Listed {
    /// Whether it is a cluster's: by its name, and by its label if it has one of any cluster.
    pub(crate) fn is_of(&self, infra_id: &str) -> bool {
        let is_named = self.name.strip_prefix(infra_id).is_some_and(|rest| rest.starts_with('-'));
        let mut owners = self.labels.keys().filter_map(|label| label.strip_prefix(LABEL)).peekable();
        is_named && (owners.peek().is_none() || owners.any(|owner| owner == infra_id))
    }

    pub(crate) fn machine(&self) -> Machine {
        let zone = self.zone.rsplit('/').next().unwrap_or_default();
        let instance = Instance {
            node_names: vec![self.name.clone()],
            launched_at: self.last_start_timestamp.parse::<Timestamp>().ok(),
            ..Instance::new(sanitize_to(&self.name, NAME), state(&self.status)).in_words(&self.status)
        };
        Machine { instance, at: zone.to_owned(), ..Machine::default() }
    }
}

/// Every state that Compute Engine lists.
pub(crate) fn state(status: &str) -> InstanceState {
    match status {
        "PROVISIONING" | "STAGING" | "PENDING" | "REPAIRING" => InstanceState::Pending,
        "RUNNING" => InstanceState::Running,
        "STOPPING" | "PENDING_STOP" | "SUSPENDING" => InstanceState::Stopping,
        "STOPPED" | "TERMINATED" | "SUSPENDED" => InstanceState::Stopped,
        "DEPROVISIONING" => InstanceState::ShuttingDown,
        _ => InstanceState::Unknown,
    }
}

/// What Compute Engine says of one machine alone.
pub(crate) fn known(code: &str, message: &str) -> Option<CloudErrorKind> {
    match code {
        _ if is_full(code, message) => Some(CloudErrorKind::Capacity),
        "resourceNotReady" => Some(CloudErrorKind::InTransit),
        _ => None,
    }
}

/// Whether a zone has no capacity, or the project no quota.
fn is_full(code: &str, message: &str) -> bool {
    let full = ["ZONE_RESOURCE_POOL_EXHAUSTED", "QUOTA_EXCEEDED"];
    code == "quotaExceeded" || full.iter().any(|word| code.starts_with(word) || message.contains(word))
}

impl Operation {
    pub(crate) fn progress(&self) -> Progress {
        match (self.status.as_str(), self.error.errors.first()) {
            ("DONE", None) => Progress::Done,
            ("DONE", Some(OperationError { code, message })) => {
                let kind = if is_full(code, message) { CloudErrorKind::Capacity } else { CloudErrorKind::Refused };
                Progress::GivenUp { kind, code: sanitize_to(code, 60), message: sanitize_to(message, 200) }
            }
            _ => Progress::UnderWay,
        }
    }
}
