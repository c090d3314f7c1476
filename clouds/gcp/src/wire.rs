//! The parts of Compute Engine's answers that are used.

use std::collections::BTreeMap;

use cloud_stopstart::{Machine, Progress, Reason};
use serde::Deserialize;
use shared::cloud::{CloudErrorKind, InstanceState};
use shared::text::sanitize_to;

/// The fields of a list: those below.
pub(crate) const FIELDS: &str = "items/*/instances(name,zone,status,labels,lastStartTimestamp,machineType,disks/type),\
                                 items/*/warning,warning,nextPageToken,unreachables";

/// Label of a cluster's machines, before its infraID.
const OWNER_LABEL: &str = "kubernetes-io-cluster-";

/// Where a cluster says what becomes of its local SSDs.
pub(crate) const DISCARD_FIELD: &str = "spec.platform.gcp.discardLocalSsdOnHibernate";

/// One page of an aggregated list.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Page {
    pub(crate) items: BTreeMap<String, Scope>,
    warning: Option<Warning>,
    pub(crate) next_page_token: String,
    unreachables: Vec<String>,
}

#[derive(Deserialize)]
pub(crate) struct Scope {
    #[serde(default)]
    pub(crate) instances: Vec<ListedInstance>,
    warning: Option<Warning>,
}

#[derive(Deserialize)]
struct Warning {
    #[serde(default)]
    code: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ListedInstance {
    pub(crate) name: String,
    /// A URL.
    zone: String,
    #[serde(default)]
    status: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    last_start_timestamp: String,
    /// A URL.
    #[serde(default)]
    machine_type: String,
    #[serde(default)]
    disks: Vec<Disk>,
}

#[derive(Deserialize)]
struct Disk {
    #[serde(rename = "type", default)]
    kind: DiskKind,
}

#[derive(Default, PartialEq, Eq, Deserialize)]
enum DiskKind {
    /// A local SSD.
    #[serde(rename = "SCRATCH")]
    Scratch,
    #[default]
    #[serde(other)]
    Other,
}

/// A call that was accepted.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Operation {
    pub(crate) name: String,
    status: String,
    error: Errors,
}

#[derive(Default, Deserialize)]
struct Errors {
    #[serde(default)]
    errors: Vec<OperationError>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct OperationError {
    code: String,
    message: String,
}

impl Page {
    /// The scopes of which something is missing, by their last segments, and the codes. Every other warning is about what
    /// is listed, or about a scope without instances. An empty name is all of them.
    pub(crate) fn missing(&self) -> impl Iterator<Item = (String, String)> {
        const INCOMPLETE: [&str; 3] = ["UNREACHABLE", "PARTIAL_SUCCESS", "LIST_OVERHEAD_QUOTA_EXCEED"];
        let code = |warning: &Option<Warning>| {
            let code = warning.as_ref()?.code.as_str();
            INCOMPLETE.contains(&code).then(|| code.to_owned())
        };
        let scopes = self.items.iter().filter_map(move |(scope, found)| Some((scope.as_str(), code(&found.warning)?)));
        let unreachable = self.unreachables.iter().map(|scope| (scope.as_str(), INCOMPLETE[0].to_owned()));
        let all = code(&self.warning).map(|code| ("", code));
        let last = |scope: &str| sanitize_to(scope.rsplit('/').next().unwrap_or_default(), 60);
        scopes.chain(unreachable).chain(all).map(move |(scope, code)| (last(scope), code))
    }
}

impl ListedInstance {
    /// Whether it is a cluster's: by its name, and by its label if it has one of any cluster.
    pub(crate) fn is_of(&self, infra_id: &str) -> bool {
        let is_named = self.name.strip_prefix(infra_id).is_some_and(|rest| rest.starts_with('-'));
        let mut owners = self.labels.keys().filter_map(|label| label.strip_prefix(OWNER_LABEL)).peekable();
        is_named && (owners.peek().is_none() || owners.any(|owner| owner == infra_id))
    }

    /// Of local SSDs the owner has to say what becomes of them.
    pub(crate) fn machine(&self, has_decided: bool) -> Machine {
        let zone = self.zone.rsplit('/').next().unwrap_or_default();
        let undecided = !has_decided && self.disks.iter().any(|disk| disk.kind == DiskKind::Scratch);
        let obstacle = format!("it has a local SSD: set {DISCARD_FIELD}: true to allow a stop that discards its data");
        let mut machine = Machine::new(&self.name, zone, state(&self.status), &self.status);
        machine.instance.obstacle = undecided.then_some(obstacle);
        machine.instance.launched_at = self.last_start_timestamp.parse().ok();
        machine.of_type(self.machine_type.rsplit('/').next().unwrap_or_default())
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

/// Errors of Compute Engine that are about one machine alone.
pub(crate) fn machine_error_kind(code: &str, message: &str) -> Option<CloudErrorKind> {
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
                let is_full = is_full(code, message);
                Progress::GivenUp(Reason::given_up(is_full, sanitize_to(code, 60), sanitize_to(message, 200)))
            }
            _ => Progress::InProgress,
        }
    }
}
