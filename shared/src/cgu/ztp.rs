//! The first upgrade of a cluster that joins the hub, `ztp-install/NAME`: it enforces the policies of the cluster in the
//! order of their waves (section 4).

use serde_json::{Value, json};

use super::api::{DEFAULT_TIMEOUT, Reference};
use super::policy::{Child, Wave};

pub const NAMESPACE: &str = "ztp-install";
/// Label of a cluster that has completed its first upgrade.
pub const DONE: &str = "ztp-done";
/// Label of a cluster that requests TALM's accelerated installation, which is not served.
pub const ACCELERATED: &str = "accelerated-ztp";
/// Label of a cluster whose first upgrade runs.
const RUNNING: &str = "ztp-running";

/// Annotation [`DEPLOY_WAVE`](super::policy::DEPLOY_WAVE) of this policy is not an integer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongWave(pub Reference);

/// The upgrade of a cluster with these child policies. Policies without a wave, and those that enforce by themselves, are
/// left out.
pub fn upgrade<'a>(
    cluster: &str,
    uid: &str,
    children: impl IntoIterator<Item = &'a Child>,
    is_enforced: impl Fn(&Reference) -> bool,
) -> Result<Value, WrongWave> {
    let mut waves = Vec::new();
    for child in children.into_iter().filter(|child| !is_enforced(&child.root)) {
        match child.wave {
            Wave::None => {}
            Wave::At(wave) => waves.push((wave, child.root.name.as_str())),
            Wave::Wrong => return Err(WrongWave(child.root.clone())),
        }
    }
    waves.sort_unstable();
    let mut upgrade = json!({
        "apiVersion": "ran.openshift.io/v1alpha1",
        "kind": "ClusterGroupUpgrade",
        "metadata": {
            "name": cluster,
            "namespace": NAMESPACE,
            // Without blockOwnerDeletion, which takes the right to update the cluster's finalizers.
            "ownerReferences": [{
                "apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster", "name": cluster,
                "uid": uid, "controller": true,
            }],
        },
        "spec": {
            "enable": true,
            "clusters": [cluster],
            "remediationStrategy": { "maxConcurrency": 1, "timeout": DEFAULT_TIMEOUT },
            "actions": {
                "beforeEnable": { "addClusterLabels": { RUNNING: "" } },
                "afterCompletion": {
                    "addClusterLabels": { DONE: "" }, "removeClusterLabels": [RUNNING], "deleteObjects": true,
                },
            },
        },
    });
    if !waves.is_empty() {
        upgrade["spec"]["managedPolicies"] = waves.into_iter().map(|(_, name)| name).collect();
    }
    Ok(upgrade)
}

#[cfg(test)]
mod tests {
    use super::super::api::ClusterGroupUpgrade;
    use super::*;

    fn child(name: &str, wave: Wave) -> Child {
        let root = Reference { name: name.to_owned(), namespace: "policies".to_owned() };
        Child { root, is_unresolved: false, wave }
    }

    /// ZTP of section 5.2.
    #[test]
    fn policies_go_by_wave_and_then_by_name() {
        let policies = |children: &[Child]| {
            let found = upgrade("spoke1", "uid", children, |root| root.name == "enforced")?;
            Ok(serde_json::from_value::<ClusterGroupUpgrade>(found).unwrap().spec.managed_policies)
        };
        let names = |names: &[&str]| Ok::<Vec<String>, WrongWave>(names.iter().map(ToString::to_string).collect());
        for (children, expected) in [
            (vec![], names(&[])),
            (vec![child("a", Wave::None), child("b", Wave::None)], names(&[])),
            (
                vec![
                    child("w10", Wave::At(10)),
                    child("w2b", Wave::At(2)),
                    child("none", Wave::None),
                    child("w2a", Wave::At(2)),
                    child("enforced", Wave::At(1)),
                ],
                names(&["w2a", "w2b", "w10"]),
            ),
            (vec![child("a", Wave::At(-1)), child("b", Wave::Wrong)], Err(WrongWave(child("b", Wave::Wrong).root))),
        ] {
            assert_eq!(policies(&children), expected, "{children:?}");
        }
        let found: ClusterGroupUpgrade =
            serde_json::from_value(upgrade("spoke1", "uid", &[], |_| false).unwrap()).unwrap();
        assert_eq!(found.metadata.owner_references.unwrap()[0].uid, "uid");
        assert_eq!((found.spec.clusters, found.spec.enable), (vec!["spoke1".to_owned()], true));
    }
}
