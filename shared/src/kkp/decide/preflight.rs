//! What refuses a dehydration, what only `--force` accepts, and what the user is warned of.

use super::control_plane::Replicas;
use crate::finding::{Finding, Severity};
use crate::hive::preflight::Resources;
use crate::kkp::api::Cluster;
use crate::kkp::keys::{ACTIVE_RESTORE, TO_UNPAUSE, WORKER_NAME};
use crate::kkp::phase::Phase;
use crate::text::list;

/// What machine-controller and operating-system-manager write in a user cluster during a wake.
pub const WRITTEN_BY_A_WAKE: Resources = &[
    ("cluster.k8s.io", &["machinedeployments", "machinesets", "machines", "machines/status"]),
    ("operatingsystemmanager.k8c.io", &["operatingsystemprofiles", "operatingsystemconfigs"]),
];

/// What the seed and the user cluster say before a sleep.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts<'a> {
    /// The Cluster.
    pub cluster: &'a Cluster,
    /// The `worker-name` of the KKP that we run beside; empty as in production.
    pub worker_name: &'a str,
    /// The phase of our own record, if there is one: its pause is ours.
    pub recorded: Option<Phase>,
    /// What KKP's webhooks answered to a dry run of the pause.
    pub pause: Result<(), &'a str>,
    /// Deployments and `StatefulSets` of the control plane.
    pub control_plane: &'a [Replicas],
    /// What the user cluster holds, or why it could not be read.
    pub user: Result<&'a UserCluster, &'a str>,
}

/// What a user cluster holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserCluster {
    /// How many Machines there are.
    pub machines: u32,
    /// Machines of the provider `external`.
    pub external_machines: Vec<String>,
    /// Machines that no `MachineDeployment` owns, by way of a `MachineSet`.
    pub single_machines: Vec<String>,
    /// Nodes to which no Machine belongs.
    pub single_nodes: Vec<String>,
    /// Pods that nothing recreates, as `namespace/name`.
    pub bare_pods: Vec<String>,
    /// Jobs that have not finished, as `namespace/name`.
    pub unfinished_jobs: Vec<String>,
    /// Webhooks that fail while no Pod runs and that the wake would have to call.
    pub webhooks_on_wake: Vec<String>,
    /// Webhooks that run in the cluster and have to be called for the end of each Pod.
    pub webhooks_on_drain: Vec<String>,
    /// Services of type `LoadBalancer`, as `namespace/name`.
    pub load_balancers: Vec<String>,
    /// `PersistentVolumes` that outlive the Nodes.
    pub volumes: u32,
    /// Claims, as `namespace/name`, whose volumes are disks of Nodes.
    pub local_volumes: Vec<String>,
}

/// Every finding, the most severe first.
pub fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let mut found: Vec<Finding> = of_cluster(facts).into_iter().chain(of_user_cluster(facts)).collect();
    found.sort_by_key(|finding| finding.severity);
    found
}

fn of_cluster(facts: &Facts<'_>) -> Vec<Finding> {
    let cluster = facts.cluster;
    let blocks = |code, sentence: String| Finding::new(Severity::Block, code, sentence);
    let provider = cluster.spec.cloud.provider_name.as_str();
    let phase = cluster.phase();
    let worker = cluster.metadata.labels.as_ref().and_then(|labels| labels.get(WORKER_NAME)).map_or("", String::as_str);
    let foreign_pause = cluster.spec.pause && facts.recorded.is_none_or(|phase| phase < Phase::Pausing);
    let is_restored = cluster.annotation(ACTIVE_RESTORE).is_some();
    let found = [
        matches!(provider, "bringyourown" | "edge").then(|| {
            let what = "has no machines that KKP could remove and create again";
            blocks("NoMachines", format!("provider {provider} {what}"))
        }),
        (provider == "baremetal").then(|| {
            let sentence = "provider baremetal: the machines stop serving, but no cloud cost is saved";
            Finding::new(Severity::Warn, "BareMetal", sentence)
        }),
        (cluster.metadata.deletion_timestamp.is_some())
            .then(|| blocks("Deleted", "the cluster is being deleted".to_owned())),
        foreign_pause.then(|| {
            let why = cluster.pause_reason();
            blocks("Paused", format!("another client has paused the cluster ({why}): first {TO_UNPAUSE}"))
        }),
        is_restored.then(|| blocks("Restoring", "an EtcdRestore is under way".to_owned())),
        cluster.encryption_under_way().map(|sentence| blocks("EncryptionUnderWay", sentence)),
        (worker != facts.worker_name).then(|| {
            let sentence = format!("label {WORKER_NAME}={worker}: another instance of KKP serves the cluster");
            blocks("ForeignWorker", sentence)
        }),
        (phase != "Running").then(|| blocks("NotRunning", format!("status.phase is {phase:?}, not \"Running\""))),
        (!cluster.is_true("SeedResourcesUpToDate")).then(|| {
            let sentence = "condition SeedResourcesUpToDate is not True: a pause now would count as an update under way and hold up KKP's \
                            updates of other clusters";
            blocks("NotUpToDate", sentence.to_owned())
        }),
        facts.pause.err().map(|answer| blocks("PauseRefused", format!("KKP refuses spec.pause: {answer}"))),
        volumes_deleted(facts.control_plane).map(|sentence| blocks("VolumesDeleted", sentence)),
    ];
    found.into_iter().flatten().collect()
}

/// What is said of workloads that lose their volumes when they are stopped: etcd, and with it the user cluster.
pub(super) fn volumes_deleted(control_plane: &[Replicas]) -> Option<String> {
    let sets = control_plane.iter().filter(|one| one.deletes_volumes && one.wanted > 0);
    let sets: Vec<_> = sets.map(|one| one.workload.name.clone()).collect();
    let what = "persistentVolumeClaimRetentionPolicy.whenScaled is Delete: at 0 replicas their volume claims and their data are deleted";
    (!sets.is_empty()).then(|| format!("StatefulSets {}: {what}; set it to Retain first", list(&sets)))
}

fn of_user_cluster(facts: &Facts<'_>) -> Vec<Finding> {
    let user = match facts.user {
        Ok(user) => user,
        Err(why) => {
            let sentence = format!("the user cluster's API server cannot be asked: {why}");
            return vec![Finding::new(Severity::Block, "UserClusterSilent", sentence)];
        }
    };
    let (refused, forceable, warned) = (Severity::Block, Severity::Forceable, Severity::Warn);
    let volumes = format!("{} volumes remain, and are still billed, while the cluster sleeps", user.volumes);
    [
        (
            refused,
            "ExternalMachines",
            &user.external_machines,
            "Machines of provider external: KKP cannot remove them",
        ),
        (refused, "NodesWithoutMachine", &user.single_nodes, "Nodes without a Machine: KKP cannot remove them"),
        (
            refused,
            "MachinesWithoutDeployment",
            &user.single_machines,
            "Machines without a MachineDeployment: nothing would create them again",
        ),
        (forceable, "BarePods", &user.bare_pods, "Pods without a controller: nothing will re-create them"),
        (forceable, "UnfinishedJobs", &user.unfinished_jobs, "Jobs that have not finished lose their progress"),
        (
            forceable,
            "WebhooksOnWake",
            &user.webhooks_on_wake,
            "webhooks that fail while their Pods do not run, and that a wake has to call",
        ),
        (
            forceable,
            "WebhooksOnDrain",
            &user.webhooks_on_drain,
            "webhooks that are called for the deletion of each Pod, and whose own Pods the drain deletes, too",
        ),
        (
            forceable,
            "LocalVolumes",
            &user.local_volumes,
            "claims whose data is on disks of Nodes, which go with the Nodes: after the wake their Pods wait for a Node that is gone",
        ),
        (
            warned,
            "LoadBalancers",
            &user.load_balancers,
            "load balancers remain, and are still billed, while the cluster sleeps",
        ),
    ]
    .into_iter()
    .filter(|(_, _, names, _)| !names.is_empty())
    .map(|(severity, code, names, what)| Finding::new(severity, code, format!("{what}: {}", list(names))))
    .chain((user.volumes > 0).then(|| Finding::new(warned, "Volumes", &volumes)))
    .collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::{Value, json};

    use super::*;
    use crate::kkp::data::admits;
    use crate::kkp::record::{Workload, WorkloadKind};

    fn cluster(change: &Value) -> Cluster {
        let mut cluster = json!({
            "apiVersion": "kubermatic.k8c.io/v1", "kind": "Cluster", "metadata": { "name": "abc" },
            "spec": { "humanReadableName": "a", "version": "1.34.1", "cloud": { "dc": "d", "providerName": "aws" } },
            "status": {
                "phase": "Running",
                "conditions": { "SeedResourcesUpToDate": { "status": "True", "kubermaticVersion": "v", "lastHeartbeatTime": "t" } },
            },
        });
        json_patch::merge(&mut cluster, change);
        serde_json::from_value(cluster).unwrap()
    }

    /// Nothing that the cluster does not show stands in the way.
    fn facts<'a>(cluster: &'a Cluster, user: Result<&'a UserCluster, &'a str>) -> Facts<'a> {
        Facts { cluster, worker_name: "", recorded: None, pause: Ok(()), control_plane: &[], user }
    }

    fn codes(found: &[Finding]) -> Vec<(Severity, &str)> {
        found.iter().map(|finding| (finding.severity, finding.code.as_str())).collect()
    }

    /// The refusals of 8.2, step 1, which the Cluster alone shows.
    #[test]
    fn what_the_cluster_shows_is_refused() {
        let (refused, user) = (Severity::Block, UserCluster::default());
        let encrypting = |phase: &str| json!({ "status": { "encryption": { "phase": phase } } });
        for (change, recorded, expected) in [
            (json!({}), None, vec![]),
            (json!({ "spec": { "cloud": { "providerName": "edge" } } }), None, vec![(refused, "NoMachines")]),
            (json!({ "spec": { "cloud": { "providerName": "bringyourown" } } }), None, vec![(refused, "NoMachines")]),
            (
                json!({ "spec": { "cloud": { "providerName": "baremetal" } } }),
                None,
                vec![(Severity::Warn, "BareMetal")],
            ),
            (json!({ "spec": { "pause": true } }), None, vec![(refused, "Paused")]),
            (json!({ "spec": { "pause": true } }), Some(Phase::Draining), vec![(refused, "Paused")]),
            (json!({ "spec": { "pause": true } }), Some(Phase::Pausing), vec![]),
            (json!({ "spec": { "pauseReason": "left by a restore" } }), None, vec![]), // row 13
            (json!({ "metadata": { "annotations": { ACTIVE_RESTORE: "r" } } }), None, vec![(refused, "Restoring")]),
            (json!({ "metadata": { "labels": { WORKER_NAME: "dev" } } }), None, vec![(refused, "ForeignWorker")]),
            (json!({ "status": { "encryption": {} } }), None, vec![]),
            (encrypting("Pending"), None, vec![(refused, "EncryptionUnderWay")]),
            (encrypting("EncryptionNeeded"), None, vec![(refused, "EncryptionUnderWay")]),
            (encrypting("Active"), None, vec![]),
            (encrypting("Failed"), None, vec![]),
            (json!({ "status": { "phase": "Updating" } }), None, vec![(refused, "NotRunning")]),
            (json!({ "status": null }), None, vec![(refused, "NotRunning"), (refused, "NotUpToDate")]),
            (
                json!({ "status": { "conditions": { "SeedResourcesUpToDate": { "status": "False" } } } }),
                None,
                vec![(refused, "NotUpToDate")],
            ),
        ] {
            let cluster = cluster(&change);
            let found = findings(&Facts { recorded, ..facts(&cluster, Ok(&user)) });
            assert_eq!(codes(&found), expected, "{change}");
        }
        let mut deleted = cluster(&json!({}));
        deleted.metadata.deletion_timestamp = Some(Time("2026-11-22T18:00:00Z".parse().unwrap()));
        assert_eq!(codes(&findings(&facts(&deleted, Ok(&user)))), [(refused, "Deleted")]);
    }

    #[test]
    fn what_kkp_and_the_user_cluster_say_is_refused_forced_or_warned() {
        let cluster = cluster(&json!({}));
        let base = facts(&cluster, Err("timed out"));
        assert_eq!(codes(&findings(&base)), [(Severity::Block, "UserClusterSilent")]);
        let user = UserCluster {
            machines: 3,
            external_machines: vec!["e".into()],
            single_machines: vec!["s".into()],
            single_nodes: vec!["orphan".into()],
            bare_pods: (0..7).map(|number| format!("shop/bare-{number}")).collect(),
            unfinished_jobs: vec!["shop/job".into()],
            webhooks_on_wake: vec!["policy".into()],
            webhooks_on_drain: vec!["policy".into()],
            load_balancers: vec!["shop/web".into()],
            volumes: 3,
            local_volumes: vec!["shop/data-db-0".into()],
        };
        let facts = Facts { pause: Err("invalid datacenter\u{1b}[31m"), user: Ok(&user), ..base };
        let found = findings(&facts);
        assert_eq!(
            found.iter().map(|finding| finding.code.as_str()).collect::<Vec<_>>(),
            [
                "PauseRefused",
                "ExternalMachines",
                "NodesWithoutMachine",
                "MachinesWithoutDeployment",
                "BarePods",
                "UnfinishedJobs",
                "WebhooksOnWake",
                "WebhooksOnDrain",
                "LocalVolumes",
                "LoadBalancers",
                "Volumes",
            ]
        );
        assert!(
            found[0].sentence.starts_with("KKP refuses spec.pause: invalid datacenter")
                && !found[0].sentence.contains('\u{1b}')
        );
        assert!(found[4].sentence.ends_with("shop/bare-4 and 2 more"), "{}", found[4].sentence);
        assert!(!admits(&found, true));
        assert!(admits(&found[4..], true) && !admits(&found[4..], false) && admits(&found[9..], false));
    }

    #[test]
    fn what_a_stop_would_delete_is_refused() {
        let (cluster, user) = (cluster(&json!({})), UserCluster::default());
        let set = |wanted, deletes_volumes| {
            let workload = Workload { kind: WorkloadKind::StatefulSet, name: "etcd".to_owned() };
            [Replicas { workload, wanted, ready: wanted, running: true, copy: None, deletes_volumes }]
        };
        let base = facts(&cluster, Ok(&user));
        let found = findings(&Facts { control_plane: &set(3, true), ..base.clone() });
        assert_eq!((found[0].severity, found[0].code.as_str()), (Severity::Block, "VolumesDeleted"));
        assert!(
            found[0].sentence.starts_with("StatefulSets etcd: ")
                && found[0].sentence.ends_with("set it to Retain first")
        );
        for harmless in [set(3, false), set(0, true)] {
            assert_eq!(codes(&findings(&Facts { control_plane: &harmless, ..base.clone() })), []);
        }
    }
}
