//! Everything that is installed on a hub, as objects.
//!
//! What has its source in code (CRDs, webhook configurations, policies) is generated: the program
//! `hibernate-manifests` writes it into `manifests/`. The rest is plain YAML there. The test world installs all of it
//! from here.
//!
//! ```
//! let objects = manifests::webhook_configurations(&manifests::ClientConfig::Service);
//! assert_eq!(objects[0]["kind"], "ValidatingWebhookConfiguration");
//! ```

mod admission;
pub mod cgu;
mod chart;
mod confine;
mod entry;
pub mod fdb;
mod hive;
pub mod kkp;
pub mod names;
mod plain;
mod policy;
mod rollout;
pub mod tree;
mod yaml;

use plain::objects;
use serde_json::Value;

pub use admission::webhook_configurations;
pub use cgu::upgrades;
pub use entry::ClientConfig;
pub use hive::openstack;
pub use plain::{controller_monitoring, webhook_monitoring};
pub use policy::policy;

/// The definition of rollouts with the policy and the roles for them; what runs in our namespace and what it may do:
/// namespace, RBAC, the policy that confines the controller, Deployments, Services, disruption budgets, network
/// policies. In an order in which they can be created.
pub fn base() -> Vec<Value> {
    [
        rollout::definitions(),
        rollout::policy(),
        objects(plain::ROLLOUT_ROLES),
        objects(plain::NAMESPACE),
        objects(plain::CONTROLLER_RBAC),
        objects(plain::CONTROLLER_SECRETS),
        hive::policy(),
        objects(plain::WEBHOOK_RBAC),
        objects(plain::CONTROLLER),
        objects(plain::WEBHOOK),
        objects(plain::NETWORK_POLICIES),
    ]
    .concat()
}
