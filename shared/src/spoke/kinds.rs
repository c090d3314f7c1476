//! What is read of the objects of a spoke: only the fields that we use. A spoke belongs to a tenant, and what is read
//! of its answers is held in the memory of all, so that each of these types is small.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::RuleWithOperations;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::fields::{Condition, Few, has_claim, is_done, names_nodes, ready, short, status_written, tolerates_cordon};
use crate::read::lenient;

/// A kind that is read of spokes.
pub trait Kind: DeserializeOwned + Send + Sync + 'static {
    /// Path of its group and version.
    const VERSION: &'static str;
    /// Its plural, as paths name it.
    const PLURAL: &'static str;
    /// Whether servers are asked for its metadata alone.
    const METADATA_ONLY: bool = false;
}

/// The namespace of a cluster's own Machines.
pub const MACHINE_NAMESPACE: &str = "openshift-machine-api";

/// An object of such a kind.
pub trait Object: Kind {
    /// Its metadata.
    fn metadata(&self) -> &Metadata;
}

/// Declares types that are read, each field of which may be absent.
macro_rules! read {
    ($($(#[$doc:meta])* $name:ident { $($(#[$of_field:meta])* $field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        pub struct $name { $($(#[$of_field])* pub $field: $type,)* }
    )*};
}

/// Declares kinds: where they are served, and what is read of them besides their metadata.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $version:literal, $plural:literal $(, metadata_only = $metadata_only:literal)? {
        $($(#[$of_field:meta])* $field:ident: $type:ty,)*
    })*) => {$(
        read! {
            $(#[$doc])*
            $kind {
                /// Its metadata.
                metadata: Metadata,
                $($(#[$of_field])* $field: $type,)*
            }
        }

        impl Kind for $kind {
            const VERSION: &'static str = $version;
            const PLURAL: &'static str = $plural;
            $(const METADATA_ONLY: bool = $metadata_only;)?
        }

        impl Object for $kind {
            fn metadata(&self) -> &Metadata {
                &self.metadata
            }
        }
    )*};
}

kinds! {
    /// A Node.
    Node = "/api/v1", "nodes" {
        /// What it is to be.
        spec: NodeSpec,
        /// What it is.
        status: NodeStatus,
    }

    /// The name of a Node, of which nothing else is asked for.
    NodeName = "/api/v1", "nodes", metadata_only = true {}

    /// A Lease.
    Lease = "/apis/coordination.k8s.io/v1", "leases" {
        /// Who holds it.
        spec: LeaseSpec,
    }

    /// A certificate signing request.
    CertificateRequest = "/apis/certificates.k8s.io/v1", "certificatesigningrequests" {
        /// What is asked for.
        spec: CertificateRequestSpec,
        /// What became of it.
        status: CertificateRequestStatus,
    }

    /// An operator of OpenShift.
    ClusterOperator = "/apis/config.openshift.io/v1", "clusteroperators" {
        /// What it says of itself.
        status: ClusterOperatorStatus,
    }

    /// The version of OpenShift.
    ClusterVersion = "/apis/config.openshift.io/v1", "clusterversions" {
        /// The progress of an upgrade.
        status: ClusterVersionStatus,
    }

    /// A Machine of OpenShift.
    Machine = "/apis/machine.openshift.io/v1beta1", "machines" {
        /// Where it is.
        spec: MachineSpec,
        /// What became of it.
        status: MachineStatus,
    }

    /// A Secret, of which only the metadata is read.
    SecretObservation = "/api/v1", "secrets", metadata_only = true {}

    /// A bootstrap token.
    BootstrapToken = "/api/v1", "secrets" {
        /// What is in it.
        data: BootstrapTokenData,
    }

    /// A disruption budget.
    PodDisruptionBudget = "/apis/policy/v1", "poddisruptionbudgets" {
        /// What it allows now.
        status: PodDisruptionBudgetStatus,
    }

    /// Webhooks that validate.
    ValidatingWebhooks = "/apis/admissionregistration.k8s.io/v1", "validatingwebhookconfigurations" {
        /// The webhooks.
        webhooks: Vec<Webhook>,
    }

    /// Webhooks that mutate. The two kinds have all fields in common that we read.
    MutatingWebhooks = "/apis/admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations" {
        /// The webhooks.
        webhooks: Vec<Webhook>,
    }

    /// A `MachineDeployment` of machine-controller.
    MachineDeployment = "/apis/cluster.k8s.io/v1alpha1", "machinedeployments" {
        /// What it is to be.
        spec: MachineDeploymentSpec,
    }

    /// A `MachineSet` of machine-controller.
    MachineSet = "/apis/cluster.k8s.io/v1alpha1", "machinesets" {}

    /// A Machine of machine-controller.
    KkpMachine = "/apis/cluster.k8s.io/v1alpha1", "machines" {
        /// What it is made of.
        spec: KkpMachineSpec,
        /// What became of it.
        status: KkpMachineStatus,
    }

    /// A Pod.
    Pod = "/api/v1", "pods" {
        /// What it is to be.
        spec: PodSpec,
        /// What it is.
        status: PodStatus,
    }

    /// What is attached to a Node.
    VolumeAttachment = "/apis/storage.k8s.io/v1", "volumeattachments", metadata_only = true {}

    /// A volume.
    PersistentVolume = "/api/v1", "persistentvolumes" {
        /// What it is to be.
        spec: PersistentVolumeSpec,
    }

    /// A Service.
    Service = "/api/v1", "services" {
        /// What it is to be.
        spec: ServiceSpec,
    }

    /// A Job.
    Job = "/apis/batch/v1", "jobs" {
        /// How far it is.
        status: JobStatus,
    }

    /// An Event.
    Event = "/api/v1", "events" {
        /// What it is about.
        involved_object: ObjectRef,
        /// What it says.
        message: Option<String>,
        /// When it was last said.
        last_timestamp: Option<Timestamp>,
    }
}

read! {
    /// Metadata of any object.
    Metadata {
        /// Name.
        #[serde(deserialize_with = "short")]
        name: String,
        /// Namespace; empty if it is in none.
        #[serde(deserialize_with = "short")]
        namespace: String,
        /// UID.
        #[serde(deserialize_with = "short")]
        uid: String,
        /// Version.
        #[serde(deserialize_with = "short")]
        resource_version: String,
        /// When it was created.
        creation_timestamp: Option<Timestamp>,
        /// When its deletion was asked for.
        deletion_timestamp: Option<Timestamp>,
        /// Its labels.
        labels: Few,
        /// Its annotations.
        annotations: Few,
        /// Whose it is.
        #[serde(deserialize_with = "lenient")]
        owner_references: Vec<Owner>,
        /// When its status was last written.
        #[serde(rename = "managedFields", deserialize_with = "status_written")]
        status_written: Option<Timestamp>,
    }

    /// An owner of an object.
    Owner {
        /// Its kind.
        kind: String,
        /// Its UID.
        uid: String,
        /// Whether it manages the object.
        controller: bool,
    }

    /// What a Node is.
    NodeStatus {
        /// The condition Ready.
        #[serde(rename = "conditions", deserialize_with = "ready")]
        ready: Option<Condition>,
    }

    /// What a Node is to be.
    NodeSpec {
        /// Its instance in its cloud.
        #[serde(rename = "providerID", deserialize_with = "lenient")]
        provider_id: Option<String>,
        /// Whether it is cordoned.
        unschedulable: bool,
    }

    /// Who holds a Lease.
    LeaseSpec {
        /// When it was renewed.
        renew_time: Option<Timestamp>,
    }

    /// What a certificate signing request asks for.
    CertificateRequestSpec {
        /// Who is asked to sign.
        signer_name: String,
        /// Who asks.
        username: String,
        /// The groups of who asks.
        groups: Vec<String>,
        /// What the certificate is to be good for.
        usages: Vec<String>,
        /// PKCS #10 in PEM; empty if it is too long.
        #[serde(deserialize_with = "lenient")]
        request: ByteString,
    }

    /// What became of a certificate signing request.
    CertificateRequestStatus {
        /// Conditions.
        conditions: Vec<Condition>,
        /// The certificate in PEM; empty if it is too long.
        #[serde(deserialize_with = "lenient")]
        certificate: ByteString,
    }

    /// What an operator of OpenShift reports of itself.
    ClusterOperatorStatus {
        /// `Available`, `Progressing`, `Degraded` and others.
        conditions: Vec<OperatorCondition>,
        /// What belongs to the operator, its namespaces among them.
        related_objects: Vec<RelatedObject>,
    }

    /// A condition of an operator.
    OperatorCondition {
        /// Its type.
        #[serde(rename = "type")]
        type_: String,
        /// `True`, `False` or `Unknown`.
        status: String,
        /// One sentence why.
        message: Option<String>,
    }

    /// An object that belongs to an operator.
    RelatedObject {
        /// API group, empty for the core.
        group: String,
        /// Plural of the kind.
        resource: String,
        /// Name.
        name: String,
    }

    /// The progress of an upgrade.
    ClusterVersionStatus {
        /// `Available`, `Progressing`, `Failing` and others.
        conditions: Vec<OperatorCondition>,
        /// Where it goes.
        desired: Update,
        /// Where it has been, the newest first.
        history: Vec<Update>,
    }

    /// A version of OpenShift.
    Update {
        /// Such as `4.20.9`.
        version: Option<String>,
        /// `Partial` or `Completed`.
        state: Option<String>,
    }

    /// What became of a Machine.
    MachineStatus {
        /// Such as `Provisioning`, `Running`, `Failed`. A Machine never leaves `Failed`.
        phase: Option<String>,
        /// Why it is `Failed`.
        error_message: Option<String>,
        /// The Node that it became.
        node_ref: ObjectRef,
        /// Its names and addresses.
        addresses: Vec<MachineAddress>,
    }

    /// One name or address of a Machine.
    MachineAddress {
        /// `InternalDNS`, `ExternalDNS`, `Hostname`, `InternalIP` or `ExternalIP`.
        #[serde(rename = "type")]
        type_: String,
        /// The name or address.
        address: String,
    }

    /// Where a Machine is in its cloud.
    MachineSpec {
        /// On AWS `aws:///us-east-1a/i-0123456789abcdef0`; absent until the instance is there.
        #[serde(rename = "providerID")]
        provider_id: Option<String>,
    }

    /// What is in a bootstrap token.
    BootstrapTokenData {
        /// Until when it is valid.
        expiration: Option<ByteString>,
    }

    /// What a disruption budget allows now.
    PodDisruptionBudgetStatus {
        /// Pods that may be evicted.
        disruptions_allowed: Option<i32>,
        /// Pods that it covers.
        expected_pods: Option<i32>,
    }

    /// A webhook.
    Webhook {
        /// Its name.
        name: String,
        /// `Fail` if absent.
        failure_policy: Option<String>,
        /// 10 if absent.
        timeout_seconds: Option<i32>,
        /// Where it is reached.
        client_config: WebhookClient,
        /// What it is asked about.
        rules: Vec<RuleWithOperations>,
        /// In which namespaces.
        namespace_selector: LabelSelector,
        /// About which objects.
        object_selector: LabelSelector,
    }

    /// Where a webhook is reached.
    WebhookClient {
        /// The Service that answers.
        service: Option<ServiceRef>,
    }

    /// A Service, as others name it.
    ServiceRef {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    }

    /// A namespace, of which only the labels are read: all of them.
    Namespace {
        /// Its metadata.
        metadata: NamespaceMetadata,
    }

    /// Metadata of a namespace.
    NamespaceMetadata {
        /// Its labels.
        labels: BTreeMap<String, String>,
    }

    /// What a `MachineDeployment` is to be.
    MachineDeploymentSpec {
        /// How many Machines; 1 if absent.
        replicas: Option<u32>,
    }

    /// What a Machine of machine-controller is made of.
    KkpMachineSpec {
        /// By its cloud.
        provider_spec: ProviderSpec,
    }

    /// What a Machine is made of by its cloud.
    ProviderSpec {
        /// The same.
        value: ProviderValue,
    }

    /// What a Machine is made of by its cloud.
    ProviderValue {
        /// Name of the cloud.
        cloud_provider: String,
    }

    /// What became of a Machine of machine-controller.
    KkpMachineStatus {
        /// The Node that it became.
        node_ref: ObjectRef,
    }

    /// An object, as others name it.
    ObjectRef {
        /// Its namespace.
        namespace: Option<String>,
        /// Its name.
        name: Option<String>,
    }

    /// What a Pod is to be.
    PodSpec {
        /// Its Node.
        node_name: Option<String>,
        /// Whether it tolerates the taint of a cordoned Node.
        #[serde(rename = "tolerations", deserialize_with = "tolerates_cordon")]
        tolerates_cordon: bool,
        /// Whether it has a claim, or one is made for it.
        #[serde(rename = "volumes", deserialize_with = "has_claim")]
        has_claim: bool,
    }

    /// What a Pod is.
    PodStatus {
        /// Such as `Running`, `Succeeded`.
        phase: Option<String>,
    }

    /// What a volume is to be.
    PersistentVolumeSpec {
        /// A folder of a Node.
        host_path: Option<IgnoredAny>,
        /// A disk of a Node.
        local: Option<IgnoredAny>,
        /// Whether Nodes are named that can mount it.
        #[serde(rename = "nodeAffinity", deserialize_with = "names_nodes")]
        names_nodes: bool,
        /// The claim that has it.
        claim_ref: ObjectRef,
    }

    /// What a Service is to be.
    ServiceSpec {
        /// Such as `LoadBalancer`.
        #[serde(rename = "type")]
        type_: Option<String>,
    }

    /// How far a Job is.
    JobStatus {
        /// Whether it is done, however it ended.
        #[serde(rename = "conditions", deserialize_with = "is_done")]
        is_done: bool,
    }
}

impl Kind for Namespace {
    const VERSION: &'static str = "/api/v1";
    const PLURAL: &'static str = "namespaces";
}

impl ClusterVersionStatus {
    /// The condition of an upgrade that is in progress.
    pub fn progressing(&self) -> Option<&OperatorCondition> {
        self.conditions.iter().find(|condition| condition.type_ == "Progressing" && condition.status == "True")
    }
}

impl Metadata {
    /// `namespace/name`, or the name of an object without a namespace.
    pub fn full_name(&self) -> String {
        if self.namespace.is_empty() { self.name.clone() } else { format!("{}/{}", self.namespace, self.name) }
    }

    /// The owner of this kind.
    pub fn owner(&self, kind: &str) -> Option<&Owner> {
        self.owner_references.iter().find(|owner| owner.kind == kind)
    }
}
