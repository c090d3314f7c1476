//! KKP (Kubermatic): dehydration of user clusters.
//!
//! Row numbers in comments are those of docs/reference/kkp.md, which says what KKP's own controllers did when they were
//! run.

pub mod admission;
pub mod api;
pub mod certificates;
pub mod data;
pub mod decide;
pub mod ledger;
pub mod node;
pub mod pause;
pub mod phase;
pub mod record;

/// Names of ours and of KKP on KKP's objects.
pub mod keys {
    use crate::annotation::keys as common;

    /// On a Cluster, or on the record of one that KKP cannot write (row 27): the desired state, `Hibernating` or `Running`.
    pub const POWER_STATE: &str = "hibernate.sh/power-state";
    /// Beside [`POWER_STATE`]: when it was requested, RFC 3339. Of two requests the newest wins.
    pub const POWER_STATE_AT: &str = "hibernate.sh/power-state-at";
    /// On a Cluster: `"true"` accepts what the preflight would refuse and a force can override.
    pub const FORCE: &str = common::FORCE;
    /// On a Cluster: `"true"` lets any client end the pause of the sleeping cluster. The controller takes it as a wake.
    pub const ALLOW_UNPAUSE: &str = "hibernate.sh/allow-unpause";
    /// How a client ends a pause, its own or ours: row K7 of the webhook may deny it without [`ALLOW_UNPAUSE`].
    pub const TO_UNPAUSE: &str =
        "set spec.pause to false, in one write with annotation hibernate.sh/allow-unpause: \"true\"";
    /// On a Cluster: `"true"` lets any client delete the sleeping cluster although its certificates end soon. The
    /// controller removes it with the pause and with its end.
    pub const ALLOW_DELETE: &str = "hibernate.sh/allow-delete";
    /// What goes with a request, on a Cluster or on its record.
    pub const REQUEST: [&str; 5] =
        [POWER_STATE, POWER_STATE_AT, common::REASON, common::REQUESTED_BY, common::REQUESTED_AT];
    /// How our `spec.pauseReason` begins. A reason of the user may follow.
    pub const PAUSED_BY_US: &str = "dehydrated by kubectl-hibernate";
    /// On a Cluster that we have paused: the sleep whose pause that is ([`super::record::Record::sleep`]). Written and
    /// removed with the pause.
    pub const PAUSED_BY_SLEEP: &str = "hibernate.sh/paused-by-sleep";
    /// On a sleeping Cluster: when the first certificate of its control plane expires, RFC 3339. Written by the controller.
    pub const CERTIFICATES_EXPIRE_AT: &str = "hibernate.sh/certificates-expire-at";
    /// On a Deployment, `StatefulSet` or `MachineDeployment` of a sleeping cluster: its replica count before, a copy of the
    /// record. Not [`crate::annotation::keys::REPLICAS`], which belongs to workloads that a user puts to sleep one by one.
    pub const DEHYDRATED_REPLICAS: &str = "hibernate.sh/dehydrated-replicas";
    /// On a `MachineDeployment` of a sleeping cluster: the values of [`AUTOSCALER`] before, in that order, a copy of the
    /// record.
    pub const DEHYDRATED_AUTOSCALER: [&str; 2] =
        ["hibernate.sh/dehydrated-min-size", "hibernate.sh/dehydrated-max-size"];
    /// On a `CronJob` of a sleeping cluster: we suspended it, a copy of the record.
    pub const SUSPENDED: &str = "hibernate.sh/dehydrated-suspend";
    /// On a Node: we cordoned it for a sleep, and what it was before ([`super::node::NodeBefore`]).
    pub const CORDONED: &str = "hibernate.sh/cordoned";

    /// On an `EtcdBackupConfig`: when a wake touched it, so that KKP makes backups again (row 17). On a `MachineSet`: when
    /// it was touched, so that machine-controller retries what a quota refused (row 62).
    pub const TOUCHED_AT: &str = "hibernate.sh/touched-at";

    /// Secrets in the cluster's namespace with the certificates that KKP renews (row 15).
    pub const CERTIFICATES: [&str; 3] = ["etcd-tls-certificate", "apiserver-tls", "apiserver-etcd-client-certificate"];

    /// The `ConfigMap` in the cluster's namespace that holds the record, and its key.
    pub const RECORD: (&str, &str) = ("hibernate-record", "record.json");
    /// The condition on the Cluster.
    pub const DEHYDRATED: &str = "ClusterDehydrated";
    /// The condition on the Cluster once a wake is complete: since when it is awake. It goes once the next sleep is past its
    /// preflight.
    pub const AWAKE: &str = "ClusterHydrated";

    /// On a Node: machine-controller deletes its Machine without evicting Pods (rows 54, 56).
    pub const SKIP_EVICTION: &str = "kubermatic.io/skip-eviction";
    /// On a Cluster: an `EtcdRestore` is under way.
    pub const ACTIVE_RESTORE: &str = "kubermatic.k8c.io/active-restore";
    /// Finalizers of a Cluster with which KKP removes its load balancers and the disks of its volumes. The dashboard's API
    /// adds them, a plain DELETE does not (row 23).
    pub const CLEANUP_LOAD_BALANCERS: &str = "kubermatic.k8c.io/cleanup-in-cluster-lb";
    /// See [`CLEANUP_LOAD_BALANCERS`].
    pub const CLEANUP_VOLUMES: &str = "kubermatic.k8c.io/cleanup-in-cluster-pv";
    /// Label of a Cluster that another instance of KKP's controllers serves.
    pub const WORKER_NAME: &str = "worker-name";
    /// On a `MachineDeployment`: the bounds that put it under cluster-autoscaler's control.
    pub const AUTOSCALER: [&str; 2] = [
        "cluster.k8s.io/cluster-api-autoscaler-node-group-min-size",
        "cluster.k8s.io/cluster-api-autoscaler-node-group-max-size",
    ];
}
