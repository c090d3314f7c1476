//! Everything that is installed on a hub, as objects.
//!
//! The YAML files of `manifests/` are the source, compiled in. What is computed is generated: definitions from Rust's
//! types, the policy of rollouts, which unrolls its checks, and the Helm chart. The program `hibernate-manifests` writes
//! these. The test world installs all of it from here.
//!
//! ```
//! let objects = manifests::webhook_configurations("https://127.0.0.1:9443");
//! assert_eq!(objects[0]["kind"], "ValidatingWebhookConfiguration");
//! ```

mod chart;
mod files;
mod generated;
mod operators;
#[cfg(test)]
mod tests;
mod tree;

use files::objects;
use serde_json::{Value, json};
use shared::kinds::KINDS;

pub use generated::cgu_definitions;
pub use operators::{shoots, virtual_machines};
pub use tree::run;

/// The definition of rollouts with the policy and the roles for them; what runs in our namespace and what it may do:
/// namespace, RBAC, the policy that confines the controller, Deployments, Services, disruption budgets, network
/// policies. In an order in which they can be created, as in every function here.
pub fn base() -> Vec<Value> {
    let (definitions, policies) = (generated::own_definitions(KINDS), generated::own_policies(KINDS));
    let files = [
        files::ROLLOUT_ROLES,
        files::NAMESPACE,
        files::CONTROLLER_RBAC,
        files::CONTROLLER_SECRETS,
        files::CONTROLLER_POLICY,
        files::WEBHOOK_RBAC,
        files::CONTROLLER,
        files::WEBHOOK,
        files::NETWORK_POLICIES,
    ];
    [definitions, policies, objects(&files)].concat()
}

/// The component `fdb`, without the webhook's entries: rights of both programs and the policy that confines the
/// controller's.
pub fn fdb() -> Vec<Value> {
    objects(&[files::FDB_RBAC, files::FDB_POLICY])
}

/// The component `kkp`, without the webhook's entries: rights of the controller on a seed and the policy that confines
/// them.
pub fn kkp() -> Vec<Value> {
    objects(&[files::KKP_RBAC, files::KKP_POLICY])
}

/// The component `openstack`: the right to keep records of servers that are deleted while a cluster sleeps, and the
/// policy that confines it to them.
pub fn openstack() -> Vec<Value> {
    objects(&[files::OPENSTACK_POLICY, files::OPENSTACK_RBAC])
}

/// The component `workload-schedules`: rights of a controller whose schedules put workloads and objects of operators to sleep,
/// and the policies that confine them.
pub fn workload_schedules() -> Vec<Value> {
    [objects(&[files::WORKLOADS_POLICY, files::WORKLOADS_RBAC]), operators::of_schedules()].concat()
}

/// The component `cgu`: rights of a controller that runs a hub's upgrades and the policy that confines them.
pub fn upgrades() -> Vec<Value> {
    objects(&[files::CGU_POLICY, files::CGU_RBAC])
}

/// The component `policy`: the twin of the webhook's static rules, for a hub without the webhook.
pub fn policy() -> Vec<Value> {
    objects(&[files::POLICY])
}

/// What watches the controller: its metrics, alerts about them, and a dashboard. A test of the controller looks up what
/// they ask for.
pub fn controller_monitoring() -> Vec<Value> {
    objects(&[files::CONTROLLER_MONITORING, files::DASHBOARD])
}

/// What watches the webhook. A test of the webhook looks up what it asks for.
pub fn webhook_monitoring() -> Vec<Value> {
    objects(&[files::WEBHOOK_MONITORING])
}

/// The webhook configurations of the default installation, for a webhook outside the cluster at a base URL such as
/// `https://127.0.0.1:9443`.
pub fn webhook_configurations(url: &str) -> Vec<Value> {
    configurations(url, &[files::FDB_VALIDATING])
}

/// The same with the entries for KKP.
pub fn kkp_webhook_configurations(url: &str) -> Vec<Value> {
    configurations(url, &[files::FDB_VALIDATING, files::KKP_VALIDATING, files::KKP_MUTATING])
}

/// The webhook configurations with the entries that patches of components add.
fn configurations(url: &str, patches: &[&str]) -> Vec<Value> {
    let mut configurations = objects(&[files::WEBHOOKS]);
    let patches = objects(patches);
    for configuration in &mut configurations {
        let more = patches.iter().filter(|patch| patch["kind"] == configuration["kind"]);
        let more: Vec<Value> = more.filter_map(|patch| patch["webhooks"].as_array()).flatten().cloned().collect();
        let Some(entries) = configuration["webhooks"].as_array_mut() else { continue };
        entries.extend(more);
        for client in entries.iter_mut().map(|entry| &mut entry["clientConfig"]) {
            let path = client["service"]["path"].as_str().unwrap_or_default();
            *client = json!({ "url": format!("{}{path}", url.trim_end_matches('/')) });
        }
    }
    configurations
}
