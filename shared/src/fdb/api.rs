//! `apps.foundationdb.org/v1beta2` `FoundationDBCluster`: the fields that we read or write.
//!
//! Every field may be absent, and unknown fields are dropped, which is safe because we never write a whole object.
//! Times of the status are texts here: we only compare them, and one odd entry must not hide all others.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::{CustomResource, ResourceExt};
use serde::{Deserialize, Serialize};

/// API group of the operator's kinds.
pub const GROUP: &str = "apps.foundationdb.org";
/// Kind of a cluster, as owner references name it.
pub const KIND: &str = "FoundationDBCluster";

/// Label with the cluster's name, unless `spec.labels.matchLabels` names others.
pub const CLUSTER_LABEL: &str = "foundationdb.org/fdb-cluster-name";
/// Label with the process group's ID, unless `spec.labels.processGroupIDLabels` names others.
pub const GROUP_LABEL: &str = "foundationdb.org/fdb-process-group-id";
/// Label with the process class, unless `spec.labels.processClassLabels` names others.
pub const CLASS_LABEL: &str = "foundationdb.org/fdb-process-class";

/// Classes whose process groups have a volume.
pub const STATEFUL: &[&str] = &["storage", "log", "transaction", "coordinator"];
/// Condition of a marked group whose resources are being deleted. The operator sets it and never clears it.
pub const RESOURCES_TERMINATING: &str = "ResourcesTerminating";

/// Condition of a group without a Pod.
pub const MISSING_POD: &str = "MissingPod";
/// Condition of a group whose process is not in the database's status. The operator gives it and [`MISSING_POD`] to
/// every new group, and clears it in the pass that sees the process report.
pub const MISSING_PROCESSES: &str = "MissingProcesses";
/// Condition of a group whose Pod is not scheduled or started yet.
pub const POD_PENDING: &str = "PodPending";
/// Condition of a group whose Pod fails.
pub const POD_FAILING: &str = "PodFailing";
/// Condition of a group that is to stay and that the database has excluded. The operator replaces it after
/// `failureDetectionTimeSeconds`.
pub const MARKED_AS_EXCLUDED: &str = "ProcessIsMarkedAsExcluded";

/// What `waitBetweenRemovalsSeconds` is where it is absent or negative.
const WAIT_BETWEEN_REMOVALS: Duration = Duration::from_mins(1);

/// Desired state of a cluster.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[kube(
    group = "apps.foundationdb.org",
    version = "v1beta2",
    kind = "FoundationDBCluster",
    plural = "foundationdbclusters",
    shortname = "fdb",
    status = "FoundationDBClusterStatus",
    schema = "disabled",
    derive = "Default",
    derive = "PartialEq",
    namespaced
)]
#[serde(rename_all = "camelCase", default)]
pub struct FoundationDBClusterSpec {
    /// Version of FoundationDB.
    pub version: String,
    /// The operator does nothing at all with this cluster; read once at the start of a pass.
    pub skip: Option<bool>,
    /// What the operator's resources are labeled with.
    pub labels: Option<Labels>,
    /// How clients reach the processes.
    pub routing: Option<Routing>,
    /// How the operator goes about its work.
    pub automation_options: Option<AutomationOptions>,
    /// How many process groups there are to be of each class.
    pub process_counts: BTreeMap<String, i64>,
    /// Where in the database operators agree with each other.
    pub lock_options: Option<LockOptions>,
    /// First part of every process group's ID.
    #[serde(rename = "processGroupIDPrefix")]
    pub process_group_id_prefix: Option<String>,
    /// IDs that are to be excluded and removed. The operator never clears the list.
    pub process_groups_to_remove: Vec<String>,
    /// IDs that are to be removed without waiting for their data to move.
    pub process_groups_to_remove_without_exclusion: Vec<String>,
}

/// Names and values of labels, all of which users may choose.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct Labels {
    /// By which the operator finds its resources.
    pub match_labels: BTreeMap<String, String>,
    /// Labels with the process group's ID; the operator searches by the first.
    #[serde(rename = "processGroupIDLabels")]
    pub process_group_id_labels: Vec<String>,
    /// Labels with the process class; the operator searches by the first.
    pub process_class_labels: Vec<String>,
}

/// How clients reach the processes.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct Routing {
    /// `pod` (also where absent) or `service`: whose IP address a process is known by.
    #[serde(rename = "publicIPSource")]
    pub public_ip_source: Option<String>,
}

/// How the operator goes about its work.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct AutomationOptions {
    /// How many process groups are removed at once: see [`RemovalMode`].
    pub removal_mode: Option<String>,
    /// Seconds between removals.
    pub wait_between_removals_seconds: Option<i64>,
    /// Whether processes are excluded by locality rather than by address; true where absent (and the version can).
    pub use_localities_for_exclusion: Option<bool>,
    /// Whether all operators of a database exclude and include together (`global`), or each on its own (`local`, also
    /// where absent).
    pub synchronization_mode: Option<String>,
}

/// Where in the database operators agree with each other.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct LockOptions {
    /// What the keys of locks and lists begin with.
    pub lock_key_prefix: Option<String>,
}

/// Observed state of a cluster.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct FoundationDBClusterStatus {
    /// Every process group, those being removed included.
    pub process_groups: Vec<ProcessGroup>,
    /// How the database is.
    pub health: Option<Health>,
    /// Version that runs.
    pub running_version: Option<String>,
}

/// One process group.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct ProcessGroup {
    /// ID: `[<prefix>-]<class>-<number>`.
    #[serde(rename = "processGroupID")]
    pub process_group_id: String,
    /// Class, such as `storage`.
    pub process_class: String,
    /// IP addresses, the newest last.
    pub addresses: Vec<String>,
    /// When the group was marked for removal.
    pub removal_timestamp: Option<String>,
    /// When the group was fully excluded.
    pub exclusion_timestamp: Option<String>,
    /// The group counts as excluded without having been.
    pub exclusion_skipped: bool,
    /// What is wrong with it.
    pub process_group_conditions: Vec<ProcessGroupCondition>,
    /// Zone in which it was seen last.
    pub fault_domain: Option<String>,
}

/// One thing that is wrong with a process group.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(default)]
pub struct ProcessGroupCondition {
    /// What.
    #[serde(rename = "type")]
    pub type_: String,
    /// Since when: seconds since 1970.
    pub timestamp: i64,
}

/// How the database is.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct Health {
    /// Whether it answers.
    pub available: bool,
    /// Whether it is well.
    pub healthy: bool,
    /// Whether every piece of data has as many copies as it should.
    pub full_replication: bool,
}

/// How many process groups are removed at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::EnumString)]
pub enum RemovalMode {
    /// All.
    All,
    /// Those of one zone.
    #[default]
    Zone,
    /// One.
    ProcessGroup,
    /// None.
    None,
}

impl FoundationDBCluster {
    /// Every process group of the status.
    pub fn groups(&self) -> &[ProcessGroup] {
        self.status.as_ref().map(|status| status.process_groups.as_slice()).unwrap_or_default()
    }

    /// The process group with this ID.
    pub fn group(&self, id: &str) -> Option<&ProcessGroup> {
        self.groups().iter().find(|group| group.process_group_id == id)
    }

    /// Whether the spec tells the operator to remove the process group with this ID.
    pub fn lists_for_removal(&self, id: &str) -> bool {
        let spec = &self.spec;
        let mut both = spec.process_groups_to_remove.iter().chain(&spec.process_groups_to_remove_without_exclusion);
        both.any(|listed| listed == id)
    }

    /// Labels by which the operator finds the cluster's resources.
    pub fn match_labels(&self) -> BTreeMap<String, String> {
        let chosen = self.spec.labels.as_ref().map(|labels| &labels.match_labels).filter(|labels| !labels.is_empty());
        chosen.cloned().unwrap_or_else(|| [(CLUSTER_LABEL.to_owned(), self.name_any())].into())
    }

    /// The same as a selector of labels.
    pub fn selector(&self) -> String {
        self.match_labels().iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
    }

    /// Names of the labels that hold a process group's ID. Never empty; the operator searches by the first.
    pub fn group_labels(&self) -> Vec<&str> {
        names(self.spec.labels.as_ref().map(|labels| &labels.process_group_id_labels), GROUP_LABEL)
    }

    /// Names of the labels that hold a process class. Never empty; the operator searches by the first.
    pub fn class_labels(&self) -> Vec<&str> {
        names(self.spec.labels.as_ref().map(|labels| &labels.process_class_labels), CLASS_LABEL)
    }

    /// Whether every Pod has a Service of its own, by whose IP address its processes are known.
    pub fn has_services(&self) -> bool {
        self.spec.routing.as_ref().and_then(|routing| routing.public_ip_source.as_deref()) == Some("service")
    }

    /// How many process groups are removed at once; `Zone` where the spec does not say, and where it says nonsense.
    pub fn removal_mode(&self) -> RemovalMode {
        let mode = self.options().and_then(|options| options.removal_mode.as_deref());
        mode.and_then(|mode| mode.parse().ok()).unwrap_or_default()
    }

    /// Pause between removals: 60 s where it is absent or negative, as the operator reads it.
    pub fn wait_between_removals(&self) -> Duration {
        let seconds = self.options().and_then(|options| options.wait_between_removals_seconds);
        seconds.and_then(|seconds| u64::try_from(seconds).ok()).map_or(WAIT_BETWEEN_REMOVALS, Duration::from_secs)
    }

    /// How the operator goes about its work, as far as the spec says.
    pub fn options(&self) -> Option<&AutomationOptions> {
        self.spec.automation_options.as_ref()
    }

    /// Name of the Pod, and of the Service, of a process group: without the ID's prefix. `None` for an ID without a
    /// number.
    pub fn pod_name(&self, group: &ProcessGroup) -> Option<String> {
        let (_, number) = group.process_group_id.rsplit_once('-')?;
        let numeric = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        numeric.then(|| format!("{}-{}-{number}", self.name_any(), group.process_class.replace('_', "-")))
    }
}

impl ProcessGroup {
    /// Whether the group is to be removed.
    pub fn is_marked(&self) -> bool {
        self.removal_timestamp.is_some()
    }

    /// Whether the operator takes the group for excluded.
    pub fn is_excluded(&self) -> bool {
        self.exclusion_timestamp.is_some() || self.exclusion_skipped
    }

    /// Whether the group has a volume.
    pub fn is_stateful(&self) -> bool {
        is_stateful(&self.process_class)
    }

    /// The condition of this type, if the group has it.
    pub fn condition(&self, type_: &str) -> Option<&ProcessGroupCondition> {
        self.process_group_conditions.iter().find(|condition| condition.type_ == type_)
    }

    /// Whether this entry still keeps the operator from running the group.
    pub fn needs_edit(&self) -> bool {
        self.is_marked() || self.exclusion_skipped || self.condition(RESOURCES_TERMINATING).is_some()
    }
}

/// Whether process groups of a class have a volume.
pub fn is_stateful(class: &str) -> bool {
    STATEFUL.contains(&class)
}

fn names<'a>(chosen: Option<&'a Vec<String>>, default: &'static str) -> Vec<&'a str> {
    let chosen: Vec<&str> = chosen.into_iter().flatten().map(String::as_str).collect();
    if chosen.is_empty() { vec![default] } else { chosen }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(spec: &str) -> FoundationDBCluster {
        serde_json::from_str(&format!(
            r#"{{"apiVersion":"apps.foundationdb.org/v1beta2","kind":"FoundationDBCluster","metadata":{{"name":"prod"}},"spec":{spec}}}"#
        ))
        .unwrap()
    }

    #[test]
    fn labels_are_the_clusters_own_or_the_operators_defaults() {
        let plain = cluster(r#"{"version":"7.3.69"}"#);
        assert_eq!(plain.match_labels(), [(CLUSTER_LABEL.to_owned(), "prod".to_owned())].into());
        assert_eq!((plain.group_labels(), plain.class_labels()), (vec![GROUP_LABEL], vec![CLASS_LABEL]));
        let own = cluster(
            r#"{"version":"7.3.69","labels":{"matchLabels":{"db":"x"},"processGroupIDLabels":["a","b"],"processClassLabels":[]}}"#,
        );
        assert_eq!(own.match_labels(), [("db".to_owned(), "x".to_owned())].into());
        assert_eq!((own.group_labels(), own.class_labels()), (vec!["a", "b"], vec![CLASS_LABEL]));
    }

    #[test]
    fn waits_and_modes_are_read_as_the_operator_reads_them() {
        for (options, seconds, mode) in [
            ("{}", 60, RemovalMode::Zone),
            (r#"{"waitBetweenRemovalsSeconds":-1,"removalMode":"All"}"#, 60, RemovalMode::All),
            (r#"{"waitBetweenRemovalsSeconds":0,"removalMode":"ProcessGroup"}"#, 0, RemovalMode::ProcessGroup),
            (r#"{"waitBetweenRemovalsSeconds":5,"removalMode":"None"}"#, 5, RemovalMode::None),
        ] {
            let cluster = cluster(&format!(r#"{{"version":"7.3.69","automationOptions":{options}}}"#));
            assert_eq!((cluster.wait_between_removals().as_secs(), cluster.removal_mode()), (seconds, mode));
        }
    }

    #[test]
    fn pods_are_named_without_the_prefix_of_the_id() {
        for (id, class, name) in [
            ("storage-17", "storage", Some("prod-storage-17")),
            ("dc1-storage-17", "storage", Some("prod-storage-17")),
            ("eu-west.1-cluster_controller-4", "cluster_controller", Some("prod-cluster-controller-4")),
            ("*", "storage", None),
            ("storage-x", "storage", None),
        ] {
            let group = ProcessGroup {
                process_group_id: id.to_owned(),
                process_class: class.to_owned(),
                ..ProcessGroup::default()
            };
            assert_eq!(cluster(r#"{"version":"7.3.69"}"#).pod_name(&group).as_deref(), name, "{id}");
        }
    }

    #[test]
    fn an_odd_status_is_read_as_far_as_it_goes() {
        let text = r#"{"metadata":{"name":"prod"},"spec":{},"status":{"processGroups":[{},
            {"processGroupID":"log-1","processClass":"log","removalTimestamp":"soon","exclusionSkipped":true}]}}"#;
        let cluster: FoundationDBCluster = serde_json::from_str(text).unwrap();
        let group = cluster.group("log-1").unwrap();
        assert!(group.is_marked() && group.is_excluded() && group.is_stateful());
        assert!(!cluster.groups()[0].is_marked());
    }
}
