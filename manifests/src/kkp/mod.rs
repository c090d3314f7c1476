//! What a KKP seed needs besides the base: entries of the webhook configurations, rights of the controller, and the
//! policy that confines it. The component `kkp` holds it, so that installations without KKP get none of it.

mod admission;
mod policy;

use serde_json::{Value, json};
use shared::kkp::keys;

pub use admission::webhook_configurations;
pub(crate) use admission::{mutating_patch, validating_patch};
pub use policy::policy;

use crate::names::CONTROLLER;
use crate::rbac::{cluster_role, cluster_role_binding, named, rule};

/// Name of the role, its binding and the policy.
const NAME: &str = "hibernate-controller-kkp";

/// Secrets of a control plane that the controller reads: the kubeconfig of the user cluster, and the certificates whose
/// expiry it records.
const SECRETS: [&str; 4] =
    ["internal-admin-kubeconfig", "etcd-tls-certificate", "apiserver-tls", "apiserver-etcd-client-certificate"];

/// Rights of the controller on KKP's objects, and the policy that confines them, in an order in which they can be
/// created.
pub fn controller() -> Vec<Value> {
    [rbac(), policy()].concat()
}

/// The controller's rights on KKP's objects. RBAC knows no pattern of namespaces, and no name of an object that is yet
/// to be created: [`policy()`] confines the writes further.
pub fn rbac() -> Vec<Value> {
    let (record, _) = keys::RECORD;
    vec![
        json!(cluster_role(
            NAME,
            CONTROLLER,
            vec![
                rule("kubermatic.k8c.io", &["clusters"], &["get", "list", "watch", "patch"]),
                rule("kubermatic.k8c.io", &["clusters/status"], &["patch"]),
                rule("kubermatic.k8c.io", &["etcdbackupconfigs"], &["list", "patch"]),
                rule("apps", &["deployments", "statefulsets"], &["list", "watch", "patch"]),
                rule("batch", &["cronjobs"], &["list", "watch", "patch"]),
                rule("", &["configmaps"], &["create"]),
                named(rule("", &["configmaps"], &["get", "patch", "delete"]), &[record]),
                named(rule("", &["secrets"], &["get"]), &SECRETS),
            ],
        )),
        json!(cluster_role_binding(NAME, NAME, CONTROLLER)),
    ]
}
