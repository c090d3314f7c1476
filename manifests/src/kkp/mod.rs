//! What a KKP seed needs besides the base: entries of the webhook configurations, rights of the controller, and the policy that confines it.
//! The component `kkp` holds it, so that installations without KKP get none of it.

mod admission;
mod policy;
mod rbac;

use serde_json::Value;

pub use admission::webhook_configurations;
pub(crate) use admission::{mutating_patch, validating_patch};
pub use policy::policy;
pub use rbac::rbac;

/// Rights of the controller on KKP's objects, and the policy that confines them, in an order in which they can be created.
pub fn controller() -> Vec<Value> {
    [rbac(), policy()].concat()
}
