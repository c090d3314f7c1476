//! What each process may do, and nothing else.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject};
use serde_json::{Value, json};
use shared::annotation::keys;
use shared::rollout::admission::POLICY;

use crate::names::{
    CERTIFICATE_SECRET, CERTIFICATE_SECRET_TYPE, CONTROLLER, NAMESPACE, ROLLOUTS, WEBHOOK, cluster_wide, namespaced,
    strings,
};

/// `ClusterRole` to read Secrets by name, bound to everywhere in the base and per namespace in the overlay.
const SECRETS: &str = "hibernate-controller-secrets";

/// The controller: its target kinds, rollouts over them, Events about them, and its own Lease.
///
/// The Lease is created here, empty, so that the controller needs no right to create Leases of any name; applying it
/// again leaves the fields that the controller wrote alone.
pub(crate) fn controller() -> Vec<Value> {
    vec![
        json!(service_account(CONTROLLER)),
        json!(cluster_role(
            CONTROLLER,
            CONTROLLER,
            vec![
                rule("hive.openshift.io", &["clusterdeployments"], &["get", "list", "watch", "patch"]),
                rule("hive.openshift.io", &["clusterdeployments/status"], &["patch"]),
                rule("hiveinternal.openshift.io", &["clustersyncs"], &["list", "watch"]),
                rule("events.k8s.io", &["events"], &["create", "patch"]),
                // Rollouts: a person writes the spec, the controller the status. It starts nothing without the policy
                // that says who may, and defers what a ClusterGroupUpgrade is about to upgrade.
                rule(keys::GROUP, &[ROLLOUTS], &["get", "list", "watch", "delete"]),
                rule(keys::GROUP, &[format!("{ROLLOUTS}/status").as_str()], &["patch"]),
                rule("ran.openshift.io", &["clustergroupupgrades"], &["list"]),
                // Labels of namespaces, where a rollout selects by them.
                rule("", &["namespaces"], &["list"]),
                named(
                    rule(
                        "admissionregistration.k8s.io",
                        &["validatingadmissionpolicies", "validatingadmissionpolicybindings"],
                        &["get"],
                    ),
                    &[POLICY],
                ),
            ],
        )),
        json!(cluster_role_binding(CONTROLLER, CONTROLLER, CONTROLLER)),
        json!(Lease { metadata: namespaced(CONTROLLER, CONTROLLER), spec: None }),
        json!(role(
            CONTROLLER,
            vec![
                named(rule("coordination.k8s.io", &["leases"], &["get", "update", "patch"]), &[CONTROLLER]),
                // The members of each rollout that has started: written once, named after its UID.
                rule("", &["configmaps"], &["get", "create"]),
            ],
        )),
        json!(role_binding(CONTROLLER)),
    ]
}

/// The controller's right to read a Secret whose name it knows, in every namespace. It can list and watch none.
pub(crate) fn controller_secrets() -> Vec<Value> {
    vec![
        json!(cluster_role(SECRETS, CONTROLLER, vec![rule("", &["secrets"], &["get"])])),
        json!(cluster_role_binding(SECRETS, SECRETS, CONTROLLER)),
    ]
}

/// The webhook: one Secret and the two configurations, all by name.
///
/// The Secret is created here, empty. With a right to create Secrets the webhook could ask for a token of the
/// controller's `ServiceAccount`, and with it read the Secrets of every cluster.
pub(crate) fn webhook() -> Vec<Value> {
    vec![
        json!(service_account(WEBHOOK)),
        json!(cluster_role(
            WEBHOOK,
            WEBHOOK,
            vec![named(
                rule(
                    "admissionregistration.k8s.io",
                    &["validatingwebhookconfigurations", "mutatingwebhookconfigurations"],
                    &["get", "list", "watch", "patch"],
                ),
                &[WEBHOOK],
            ),],
        )),
        json!(cluster_role_binding(WEBHOOK, WEBHOOK, WEBHOOK)),
        json!(Secret {
            metadata: namespaced(CERTIFICATE_SECRET, WEBHOOK),
            type_: Some(CERTIFICATE_SECRET_TYPE.to_owned()),
            ..Secret::default()
        }),
        json!(role(
            WEBHOOK,
            vec![named(rule("", &["secrets"], &["get", "list", "watch", "patch"]), &[CERTIFICATE_SECRET])],
        )),
        json!(role_binding(WEBHOOK)),
    ]
}

pub(crate) fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> PolicyRule {
    PolicyRule {
        api_groups: Some(strings(&[group])),
        resources: Some(strings(resources)),
        verbs: strings(verbs),
        ..PolicyRule::default()
    }
}

pub(crate) fn named(rule: PolicyRule, names: &[&str]) -> PolicyRule {
    PolicyRule { resource_names: Some(strings(names)), ..rule }
}

fn service_account(program: &str) -> ServiceAccount {
    ServiceAccount { metadata: namespaced(program, program), ..ServiceAccount::default() }
}

pub(crate) fn cluster_role(name: &str, program: &str, rules: Vec<PolicyRule>) -> ClusterRole {
    ClusterRole { metadata: cluster_wide(name, program), rules: Some(rules), ..ClusterRole::default() }
}

fn role(program: &str, rules: Vec<PolicyRule>) -> Role {
    Role { metadata: namespaced(program, program), rules: Some(rules) }
}

pub(crate) fn cluster_role_binding(name: &str, role: &str, program: &str) -> ClusterRoleBinding {
    ClusterRoleBinding {
        metadata: cluster_wide(name, program),
        role_ref: role_ref("ClusterRole", role),
        subjects: Some(vec![subject(program)]),
    }
}

fn role_binding(program: &str) -> RoleBinding {
    RoleBinding {
        metadata: namespaced(program, program),
        role_ref: role_ref("Role", program),
        subjects: Some(vec![subject(program)]),
    }
}

fn role_ref(kind: &str, name: &str) -> RoleRef {
    RoleRef { api_group: Some("rbac.authorization.k8s.io".to_owned()), kind: kind.to_owned(), name: name.to_owned() }
}

fn subject(program: &str) -> Subject {
    Subject {
        kind: "ServiceAccount".to_owned(),
        name: program.to_owned(),
        namespace: Some(NAMESPACE.to_owned()),
        ..Subject::default()
    }
}
