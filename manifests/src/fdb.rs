//! What a hub with FoundationDB clusters needs besides the base: rights of both programs, the policy that confines the
//! controller's, and the webhook's entries. The component `fdb` holds it: the default installation has it, a hub that
//! takes the base alone and a KKP seed do not.

use serde_json::Value;
use shared::admission::cel::{OWNED_BY_FDB, annotation_changes, condition};
use shared::admission::policy::{forbid, variable};
use shared::annotation::keys::{self, GROUP};

use crate::confine::{controller, every_write, same_notes, same_object};
use crate::entry::{Entry, FAIL, IGNORE, entry, rule};
use crate::names::CONTROLLER;
use crate::plain;

/// Name of the policy, as of the controller's role and its binding.
const NAME: &str = "hibernate-controller-fdb";
/// Name of the entry that guards volumes of `FoundationDBClusters`.
pub(crate) const SUSPEND: &str = "suspend.hibernate.sh";

/// The rights of both programs and the policy that confines the controller's, in an order in which they can be created.
pub fn objects() -> Vec<Value> {
    [plain::objects(plain::FDB_RBAC), policy()].concat()
}

/// Of volumes and Services of a `FoundationDBCluster` the controller's account may change annotations of ours, and of
/// others nothing. RBAC would let it redirect every Service and grow every volume.
pub(crate) fn policy() -> Vec<Value> {
    let rules = vec![every_write("", &["persistentvolumeclaims", "services"])];
    let variables = vec![
        variable("ofDatabase", OWNED_BY_FDB),
        variable("sameObject", same_object(&[])),
        variable("sameNotes", same_notes()),
    ];
    let unless = "request.operation == 'UPDATE' && variables.ofDatabase && variables.sameObject && variables.sameNotes";
    let message = format!(
        "{CONTROLLER} may change only annotations of {GROUP} of a PersistentVolumeClaim or Service that a FoundationDBCluster owns"
    );
    controller(NAME, rules, variables, vec![forbid(unless, message)])
}

/// The entries of the webhook.
pub(crate) fn validating() -> Vec<Entry> {
    vec![
        // No namespaceSelector: a cluster that is annotated and not protected would be worse than a slow deletion.
        entry(
            SUSPEND,
            FAIL,
            vec![rule("Namespaced", "", &["v1"], &["DELETE"], &["persistentvolumeclaims", "services"])],
            vec![condition("of-a-foundationdb-cluster", OWNED_BY_FDB)],
        ),
        entry(
            "fdb.hibernate.sh",
            IGNORE,
            vec![rule("Namespaced", "apps.foundationdb.org", &["*"], &["CREATE", "UPDATE"], &["foundationdbclusters"])],
            vec![condition("minimum-suspension-changes", annotation_changes(keys::MINIMUM_SUSPENSION))],
        ),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Resources that some role of these objects names.
    fn granted(objects: &[Value]) -> Vec<String> {
        let rules = objects.iter().filter_map(|object| object["rules"].as_array()).flatten();
        let resources = rules.filter_map(|rule| rule["resources"].as_array()).flatten();
        resources.filter_map(|resource| resource.as_str().map(str::to_owned)).collect()
    }

    #[test]
    fn neither_the_base_nor_a_seed_has_any_right_on_databases() {
        let ours = granted(&objects());
        for resource in ["foundationdbclusters", "pods", "persistentvolumeclaims", "services"] {
            assert!(ours.contains(&resource.to_owned()), "{resource}");
            let without = [crate::base(), crate::kkp::controller()].concat();
            assert!(!granted(&without).contains(&resource.to_owned()), "{resource}");
        }
        let entries = json!(crate::admission::base()).to_string();
        assert!(!entries.contains("FoundationDBCluster") && entries.contains("into-sleep.hibernate.sh"));
    }
}
