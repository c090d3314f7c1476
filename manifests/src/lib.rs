//! Everything that is installed on a hub, as objects made from typed structs.
//!
//! The program `hibernate-manifests` writes them into `manifests/`; the test world installs them from here.
//!
//! ```
//! let objects = manifests::webhook_configurations(&manifests::ClientConfig::Service);
//! assert_eq!(objects[0]["kind"], "ValidatingWebhookConfiguration");
//! ```

mod admission;
mod cel;
mod foreign;
mod foreign_fdb;
mod monitoring;
pub mod names;
mod network;
mod policy;
mod rbac;
pub mod tree;
mod workloads;
mod yaml;

use serde_json::Value;

pub use admission::{ClientConfig, webhook_configurations};
pub use foreign::foreign_crds;
pub use monitoring::monitoring;
pub use policy::policy;

/// What runs in our namespace and what it may do: namespace, RBAC, Deployments, Services, disruption budgets, network
/// policies. In an order in which they can be created.
#[must_use]
pub fn base() -> Vec<Value> {
    [
        workloads::namespace(),
        rbac::controller(),
        rbac::controller_secrets(),
        rbac::webhook(),
        workloads::controller(),
        workloads::webhook(),
        network::objects(),
    ]
    .concat()
}
