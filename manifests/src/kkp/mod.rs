//! What a KKP seed needs besides the base: entries of the webhook configurations, rights of the controller, and the
//! policy that confines it. The component `kkp` holds it, so that installations without KKP get none of it.

mod admission;
mod policy;

use serde_json::Value;

pub use admission::webhook_configurations;
pub(crate) use admission::{mutating, validating};
pub use policy::policy;

use crate::plain;

/// Name of the policy, as of the role and its binding.
const NAME: &str = "hibernate-controller-kkp";

/// Rights of the controller on KKP's objects, and the policy that confines them, in an order in which they can be
/// created.
pub fn controller() -> Vec<Value> {
    [rbac(), policy()].concat()
}

/// The controller's rights on KKP's objects. RBAC knows no pattern of namespaces, and no name of an object that is yet
/// to be created: [`policy()`] confines the writes further.
pub fn rbac() -> Vec<Value> {
    plain::objects(plain::KKP_RBAC)
}
