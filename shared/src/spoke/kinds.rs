//! The objects of a spoke, with only the fields that we use. A spoke belongs to a tenant, and all tenants share our memory:
//! each of these types is small.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::RuleWithOperations;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::fields::{
    Condition, KnownKeys, has_claim, is_done, names_nodes, ready, short, status_written, tolerates_cordon,
};
use crate::read::{any_text, lenient};

pub trait Kind: DeserializeOwned + Send + Sync + 'static {
    /// Path of group and version.
    const VERSION: &'static str;
    /// As paths name it.
    const PLURAL: &'static str;
    /// Whether only metadata is requested.
    const METADATA_ONLY: bool = false;
}

/// The namespace of a cluster's own Machines.
pub const MACHINE_NAMESPACE: &str = "openshift-machine-api";
/// The namespace of the kubelets' Leases.
pub const NODE_LEASES: &str = "kube-node-lease";

pub trait Object: Kind {
    fn metadata(&self) -> &Metadata;
}

/// Declares types of which each field may be absent.
macro_rules! read {
    ($($(#[$doc:meta])* $name:ident { $($(#[$of_field:meta])* $field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        pub struct $name { $($(#[$of_field])* pub $field: $type,)* }
    )*};
}

/// Declares kinds: where they are served, and their fields besides the metadata.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $version:literal, $plural:literal $(, metadata_only = $metadata_only:literal)? {
        $($(#[$of_field:meta])* $field:ident: $type:ty,)*
    })*) => {$(
        read! {
            $(#[$doc])*
            $kind {
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
    Node = "/api/v1", "nodes" {
        spec: NodeSpec,
        status: NodeStatus,
    }

    /// A Node, of which only the metadata is read.
    NodeName = "/api/v1", "nodes", metadata_only = true {}

    Lease = "/apis/coordination.k8s.io/v1", "leases" {
        spec: LeaseSpec,
    }

    /// A certificate signing request.
    CertificateRequest = "/apis/certificates.k8s.io/v1", "certificatesigningrequests" {
        spec: CertificateRequestSpec,
        status: CertificateRequestStatus,
    }

    /// An operator of OpenShift.
    ClusterOperator = "/apis/config.openshift.io/v1", "clusteroperators" {
        status: ClusterOperatorStatus,
    }

    ClusterVersion = "/apis/config.openshift.io/v1", "clusterversions" {
        status: ClusterVersionStatus,
    }

    /// A Machine of OpenShift.
    Machine = "/apis/machine.openshift.io/v1beta1", "machines" {
        spec: MachineSpec,
        status: MachineStatus,
    }

    /// A Secret, of which only the metadata is read.
    SecretObservation = "/api/v1", "secrets", metadata_only = true {}

    BootstrapToken = "/api/v1", "secrets" {
        data: BootstrapTokenData,
    }

    PodDisruptionBudget = "/apis/policy/v1", "poddisruptionbudgets" {
        status: PodDisruptionBudgetStatus,
    }

    /// Webhooks that validate.
    ValidatingWebhooks = "/apis/admissionregistration.k8s.io/v1", "validatingwebhookconfigurations" {
        webhooks: Vec<Webhook>,
    }

    /// Webhooks that mutate. The two kinds have all fields in common that we read.
    MutatingWebhooks = "/apis/admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations" {
        webhooks: Vec<Webhook>,
    }

    /// A `MachineDeployment` of machine-controller.
    MachineDeployment = "/apis/cluster.k8s.io/v1alpha1", "machinedeployments" {
        spec: MachineDeploymentSpec,
    }

    /// A `MachineSet` of machine-controller.
    MachineSet = "/apis/cluster.k8s.io/v1alpha1", "machinesets" {}

    /// A Machine of machine-controller.
    KkpMachine = "/apis/cluster.k8s.io/v1alpha1", "machines" {
        spec: KkpMachineSpec,
        status: KkpMachineStatus,
    }

    Pod = "/api/v1", "pods" {
        spec: PodSpec,
        status: PodStatus,
    }

    VolumeAttachment = "/apis/storage.k8s.io/v1", "volumeattachments", metadata_only = true {}

    PersistentVolume = "/api/v1", "persistentvolumes" {
        spec: PersistentVolumeSpec,
    }

    Service = "/api/v1", "services" {
        spec: ServiceSpec,
    }

    Job = "/apis/batch/v1", "jobs" {
        status: JobStatus,
    }

    Event = "/api/v1", "events" {
        involved_object: ObjectRef,
        message: Option<String>,
        last_timestamp: Option<Timestamp>,
    }
}

read! {
    /// Metadata of any object.
    Metadata {
        #[serde(deserialize_with = "short")]
        name: String,
        /// Namespace; empty if it is in none.
        #[serde(deserialize_with = "short")]
        namespace: String,
        #[serde(deserialize_with = "short")]
        uid: String,
        #[serde(deserialize_with = "short")]
        resource_version: String,
        creation_timestamp: Option<Timestamp>,
        deletion_timestamp: Option<Timestamp>,
        labels: KnownKeys,
        annotations: KnownKeys,
        #[serde(deserialize_with = "lenient")]
        owner_references: Vec<Owner>,
        /// When its status was last written.
        #[serde(rename = "managedFields", deserialize_with = "status_written")]
        status_written: Option<Timestamp>,
    }

    /// An owner of an object.
    Owner {
        kind: String,
        uid: String,
        /// Whether it manages the object.
        controller: bool,
    }

    NodeStatus {
        #[serde(rename = "conditions", deserialize_with = "ready")]
        ready: Option<Condition>,
    }

    NodeSpec {
        #[serde(rename = "providerID", deserialize_with = "lenient")]
        provider_id: Option<String>,
        unschedulable: bool,
    }

    LeaseSpec {
        renew_time: Option<Timestamp>,
    }

    CertificateRequestSpec {
        signer_name: String,
        username: String,
        groups: Vec<String>,
        usages: Vec<String>,
        /// PKCS #10 in PEM; empty if it is too long.
        #[serde(deserialize_with = "lenient")]
        request: ByteString,
    }

    CertificateRequestStatus {
        conditions: Vec<Condition>,
        /// The certificate in PEM; empty if it is too long.
        #[serde(deserialize_with = "lenient")]
        certificate: ByteString,
    }

    ClusterOperatorStatus {
        /// `Available`, `Progressing`, `Degraded` and others.
        conditions: Vec<OperatorCondition>,
        /// What belongs to the operator, its namespaces among them.
        related_objects: Vec<RelatedObject>,
    }

    OperatorCondition {
        #[serde(rename = "type")]
        type_: String,
        status: String,
        message: Option<String>,
    }

    /// An object that belongs to an operator.
    RelatedObject {
        /// API group, empty for the core.
        group: String,
        /// Plural of the kind.
        resource: String,
        name: String,
    }

    ClusterVersionStatus {
        /// `Available`, `Progressing`, `Failing` and others.
        conditions: Vec<OperatorCondition>,
        desired: Update,
        /// The newest first.
        history: Vec<Update>,
    }

    /// A version of OpenShift.
    Update {
        /// Such as `4.20.9`.
        version: Option<String>,
        /// `Partial` or `Completed`.
        state: Option<String>,
    }

    MachineStatus {
        /// Such as `Provisioning`, `Running`, `Failed`. A Machine never leaves `Failed`.
        phase: Option<String>,
        /// Why it is `Failed`.
        error_message: Option<String>,
        node_ref: ObjectRef,
        addresses: Vec<MachineAddress>,
    }

    /// A name or address of a Machine.
    MachineAddress {
        /// `InternalDNS`, `ExternalDNS`, `Hostname`, `InternalIP` or `ExternalIP`.
        #[serde(rename = "type")]
        type_: String,
        address: String,
    }

    MachineSpec {
        /// On AWS `aws:///us-east-1a/i-0123456789abcdef0`; absent until the instance is there.
        #[serde(rename = "providerID")]
        provider_id: Option<String>,
    }

    BootstrapTokenData {
        expiration: Option<ByteString>,
    }

    PodDisruptionBudgetStatus {
        /// Pods that may be evicted.
        disruptions_allowed: Option<i32>,
        /// Pods that it covers.
        expected_pods: Option<i32>,
    }

    Webhook {
        name: String,
        /// `Fail` if absent.
        failure_policy: Option<String>,
        /// 10 if absent.
        timeout_seconds: Option<i32>,
        client_config: WebhookClient,
        rules: Vec<RuleWithOperations>,
        namespace_selector: LabelSelector,
        object_selector: LabelSelector,
    }

    WebhookClient {
        service: Option<ServiceRef>,
    }

    ServiceRef {
        namespace: String,
        name: String,
    }

    /// A namespace, of which only the labels are read: all of them.
    Namespace {
        metadata: NamespaceMetadata,
    }

    NamespaceMetadata {
        labels: BTreeMap<String, String>,
    }

    MachineDeploymentSpec {
        /// How many Machines; 1 if absent.
        replicas: Option<u32>,
        #[serde(deserialize_with = "lenient")]
        template: MachineTemplate,
    }

    MachineTemplate {
        spec: MachineTemplateSpec,
    }

    MachineTemplateSpec {
        provider_spec: SizedProviderSpec,
    }

    SizedProviderSpec {
        value: SizedProviderValue,
    }

    SizedProviderValue {
        cloud_provider_spec: CloudProviderSpec,
    }

    /// Of a cloud's settings of a machine, what names its size: each cloud has one of these.
    CloudProviderSpec {
        #[serde(deserialize_with = "any_text")]
        instance_type: String,
        #[serde(deserialize_with = "any_text")]
        machine_type: String,
        #[serde(rename = "vmSize", deserialize_with = "any_text")]
        vm_size: String,
        #[serde(deserialize_with = "any_text")]
        flavor: String,
        #[serde(deserialize_with = "any_text")]
        server_type: String,
        #[serde(deserialize_with = "any_text")]
        size: String,
    }

    KkpMachineSpec {
        provider_spec: ProviderSpec,
    }

    ProviderSpec {
        value: ProviderValue,
    }

    ProviderValue {
        cloud_provider: String,
    }

    KkpMachineStatus {
        node_ref: ObjectRef,
    }

    ObjectRef {
        namespace: Option<String>,
        name: Option<String>,
    }

    PodSpec {
        node_name: Option<String>,
        /// Whether it tolerates the taint of a cordoned Node.
        #[serde(rename = "tolerations", deserialize_with = "tolerates_cordon")]
        tolerates_cordon: bool,
        /// Whether it has a claim, or one is made for it.
        #[serde(rename = "volumes", deserialize_with = "has_claim")]
        has_claim: bool,
    }

    PodStatus {
        /// Such as `Running`, `Succeeded`.
        phase: Option<String>,
    }

    PersistentVolumeSpec {
        /// A folder of a Node.
        host_path: Option<IgnoredAny>,
        /// A disk of a Node.
        local: Option<IgnoredAny>,
        /// Whether Nodes are named that can mount it.
        #[serde(rename = "nodeAffinity", deserialize_with = "names_nodes")]
        names_nodes: bool,
        claim_ref: ObjectRef,
    }

    ServiceSpec {
        /// Such as `LoadBalancer`.
        #[serde(rename = "type")]
        type_: Option<String>,
    }

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

impl MachineDeploymentSpec {
    /// The size of its Machines, in their cloud's word; empty if it names none.
    pub fn machine_type(&self) -> &str {
        let CloudProviderSpec { instance_type, machine_type, vm_size, flavor, server_type, size } =
            &self.template.spec.provider_spec.value.cloud_provider_spec;
        let all = [instance_type, machine_type, vm_size, flavor, server_type, size];
        all.into_iter().find(|word| !word.is_empty()).map_or("", String::as_str)
    }
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
