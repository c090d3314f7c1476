//! What a user cluster holds: the answers of its API server as decisions see them.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use shared::cloud::MAX_TYPE;
use shared::kkp::decide::preflight::UserCluster;
use shared::kkp::decide::{LostPod, MachineDeployment, Machinery, Node, Pod, Stage};
use shared::kkp::keys;
use shared::kkp::node::NodeBefore;
use shared::kkp::record::Numbers;
use shared::spoke::fields::{MIRROR, OWNED_BY};
use shared::spoke::kinds::{self, KkpMachine, Lease, MachineSet, Node as KubeNode, Pod as KubePod};
use shared::text::sanitize_to;

use super::seed::number;
use crate::spoke::reader::SpokeClient;
use fair::{ChargeGuard, ChargedValue};

/// How old a Lease is whose kubelet has gone: row 57: one stays forever.
const STALE: SignedDuration = SignedDuration::from_mins(2);

/// The user cluster; or why it did not answer, or that the step needs none of it.
pub type Seen = Result<Box<Connected>, String>;

/// What it holds.
pub struct Connected {
    /// What it runs on.
    pub machinery: Machinery,
    /// What the preflight reads; only before a sleep.
    pub preflight: Option<UserCluster>,
    /// The client that was used.
    pub client: SpokeClient,
    /// What its answers are charged.
    #[expect(dead_code, reason = "it is kept, not read")]
    pub held: Vec<ChargeGuard>,
}

/// What the preflight counted.
pub fn numbers(seen: &Seen) -> Numbers {
    let numbers = |user: &UserCluster| Numbers {
        volumes: user.volumes,
        load_balancers: count(user.load_balancers.len()),
        machines: user.machines,
    };
    for_preflight(seen).map(numbers).unwrap_or_default()
}

/// What the preflight reads of the user cluster, or why there is nothing.
pub fn for_preflight(seen: &Seen) -> Result<&UserCluster, &str> {
    seen.as_ref().map_err(String::as_str)?.preflight.as_ref().ok_or("it was not observed")
}

/// How many.
pub fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// The lists of machine-controller's kinds.
pub struct Machines {
    /// `MachineDeployments`.
    pub deployments: ChargedValue<Vec<kinds::MachineDeployment>>,
    /// `MachineSets`; only for the preflight.
    pub sets: Option<ChargedValue<Vec<MachineSet>>>,
    /// Machines.
    pub all: ChargedValue<Vec<KkpMachine>>,
}

impl Machines {
    /// `MachineDeployments` as decisions see them.
    pub fn deployments(&self) -> Vec<MachineDeployment> {
        self.deployments.iter().map(deployment).collect()
    }

    /// Names of all Machines.
    pub fn names(&self) -> Vec<String> {
        self.all.iter().map(|machine| machine.metadata.name.clone()).collect()
    }

    /// What the preflight reads of Machines and Nodes.
    pub fn for_preflight(&self, nodes: &[Node]) -> UserCluster {
        let sets = self.sets.iter().flat_map(|sets| sets.iter());
        let sets: BTreeSet<&str> = sets
            .filter(|set| set.metadata.owner("MachineDeployment").is_some())
            .map(|set| set.metadata.uid.as_str())
            .collect();
        let is_owned = |machine: &KkpMachine| {
            machine.metadata.owner("MachineSet").is_some_and(|owner| sets.contains(owner.uid.as_str()))
        };
        let named = |which: &dyn Fn(&KkpMachine) -> bool| {
            let picked = self.all.iter().filter(|machine| which(machine));
            picked.map(|machine| machine.metadata.name.clone()).collect()
        };
        UserCluster {
            machines: count(self.all.len()),
            external_machines: named(&|machine| machine.spec.provider_spec.value.cloud_provider == "external"),
            single_machines: named(&|machine| !is_owned(machine)),
            single_nodes: nodes.iter().filter(|node| !node.has_machine).map(|node| node.name.clone()).collect(),
            ..UserCluster::default()
        }
    }

    /// Names of the Nodes that these Machines refer to, and UIDs of the Machines that Nodes refer to.
    fn of_nodes(&self, which: impl Fn(&KkpMachine) -> bool) -> BTreeSet<&str> {
        let mut all = BTreeSet::new();
        for machine in self.all.iter().filter(|machine| which(machine)) {
            all.extend(machine.status.node_ref.name.as_deref());
            all.extend(Some(machine.metadata.uid.as_str()).filter(|uid| !uid.is_empty()));
        }
        all
    }
}

fn deployment(kinds::MachineDeployment { metadata, spec }: &kinds::MachineDeployment) -> MachineDeployment {
    let of_autoscaler = |places: [&str; 2]| -> BTreeMap<String, String> {
        let found = keys::AUTOSCALER.into_iter().zip(places);
        found.filter_map(|(key, place)| Some((key.to_owned(), metadata.annotations.get(place)?.to_owned()))).collect()
    };
    MachineDeployment {
        name: format!("{}/{}", metadata.namespace, metadata.name),
        replicas: spec.replicas.unwrap_or(1),
        machine_type: sanitize_to(spec.machine_type(), MAX_TYPE),
        autoscaler: of_autoscaler(keys::AUTOSCALER),
        copy: metadata.annotations.get(keys::DEHYDRATED_REPLICAS).and_then(number),
        autoscaler_copy: of_autoscaler(keys::DEHYDRATED_AUTOSCALER),
    }
}

/// Nodes as decisions see them.
pub fn nodes(nodes: &[KubeNode], machines: &Machines, leases: &[Lease], now: Timestamp) -> Vec<Node> {
    let of_machines = machines.of_nodes(|_| true);
    let of_leaving = machines.of_nodes(|machine| machine.metadata.deletion_timestamp.is_some());
    let of_kubelets: BTreeMap<&str, Timestamp> =
        leases.iter().filter_map(|lease| Some((lease.metadata.name.as_str(), lease.spec.renew_time?))).collect();
    let node = |KubeNode { metadata, spec, status }: &KubeNode| {
        let (name, owner) = (metadata.name.as_str(), metadata.labels.get(OWNED_BY));
        let is_of =
            |machines: &BTreeSet<&str>| machines.contains(name) || owner.is_some_and(|uid| machines.contains(uid));
        Node {
            name: name.to_owned(),
            cordoned: spec.unschedulable,
            skips_eviction: metadata.annotations.contains_key(keys::SKIP_EVICTION),
            ours: metadata.annotations.contains_key(keys::CORDONED),
            before: metadata.annotations.get(keys::CORDONED).map_or_else(
                || NodeBefore::of(spec.unschedulable, metadata.annotations.get(keys::SKIP_EVICTION)),
                NodeBefore::read_or_open,
            ),
            has_machine: is_of(&of_machines),
            leaves: is_of(&of_leaving),
            ready: status.ready.as_ref().is_some_and(|ready| ready.status == "True"),
            stale: of_kubelets.get(name).is_none_or(|renewed| now.duration_since(*renewed) > STALE),
        }
    };
    nodes.iter().map(node).collect()
}

/// When a Pod was created whose controller places it on a cordoned Node again: it tolerates the taint.
fn returned(pod: &KubePod) -> Option<Timestamp> {
    pod.metadata.creation_timestamp.filter(|_| pod.spec.tolerates_cordon)
}

/// Pods that are bound to Nodes that are gone.
pub fn lost_pods(pods: &[KubePod], nodes: &[Node]) -> Vec<LostPod> {
    let names: BTreeSet<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
    let is_lost =
        |pod: &&KubePod| !is_done(pod) && pod.spec.node_name.as_deref().is_some_and(|node| !names.contains(node));
    let lost = |pod: &KubePod| LostPod { name: pod.metadata.full_name(), uid: pod.metadata.uid.clone() };
    pods.iter().filter(is_lost).map(lost).collect()
}

/// Whether a Pod is skipped, as `kubectl drain` skips it: of a `DaemonSet`, static, done, or on no Node.
fn is_left(pod: &KubePod) -> bool {
    let of_daemon_set = pod.metadata.owner("DaemonSet").is_some();
    of_daemon_set || pod.metadata.annotations.contains_key(MIRROR) || is_done(pod) || pod.spec.node_name.is_none()
}

fn is_done(pod: &KubePod) -> bool {
    matches!(pod.status.phase.as_deref(), Some("Succeeded" | "Failed"))
}

/// Pods that a drain deletes. One whose Node is gone, or has neither a heartbeat nor a Lease, has no kubelet that ends
/// it.
pub fn pods(pods: &[KubePod], nodes: &[Node]) -> Vec<Pod> {
    let alive: BTreeSet<&str> =
        nodes.iter().filter(|node| node.ready || !node.stale).map(|node| node.name.as_str()).collect();
    let one = |pod: &KubePod| Pod {
        name: pod.metadata.full_name(),
        stage: stage(pod),
        terminating: pod.metadata.deletion_timestamp.is_some(),
        is_lost: !alive.contains(pod.spec.node_name.as_deref().unwrap_or_default()),
        returned: returned(pod),
    };
    pods.iter().filter(|pod| !is_left(pod)).map(one).collect()
}

fn stage(pod: &KubePod) -> Stage {
    match pod.metadata.namespace.as_str() {
        "kube-system" => Stage::System,
        _ if pod.spec.has_claim => Stage::WithVolumes,
        _ => Stage::Others,
    }
}

/// Pods that nothing recreates.
pub fn bare(pods: &[KubePod]) -> Vec<String> {
    let is_bare = |pod: &&KubePod| {
        let owned = pod.metadata.owner_references.iter().any(|owner| owner.controller);
        !owned && !pod.metadata.annotations.contains_key(MIRROR) && !is_done(pod)
    };
    pods.iter().filter(is_bare).map(|pod| pod.metadata.full_name()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use shared::record::Format;

    use super::*;
    use fair::{Consumer, MemoryLimit};

    fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    fn owner(kind: &str, uid: &str) -> Value {
        json!([{ "apiVersion": "v1", "kind": kind, "name": "o", "uid": uid, "controller": true }])
    }

    fn machines() -> Machines {
        let machine = |name: &str, owners: Value, node: &str| {
            let provider = if name == "other" { "external" } else { "aws" };
            object(json!({
                "apiVersion": "cluster.k8s.io/v1alpha1", "kind": "Machine",
                "metadata": { "name": name, "uid": format!("uid-{name}"), "ownerReferences": owners },
                "spec": { "providerSpec": { "value": { "cloudProvider": provider } } },
                "status": { "nodeRef": { "name": node } },
            }))
        };
        let set = object(json!({
            "apiVersion": "cluster.k8s.io/v1alpha1", "kind": "MachineSet",
            "metadata": { "name": "s", "uid": "set", "ownerReferences": owner("MachineDeployment", "d") },
        }));
        let deployment = object(json!({
            "apiVersion": "cluster.k8s.io/v1alpha1", "kind": "MachineDeployment",
            "metadata": { "name": "a", "namespace": "kube-system", "annotations": {
                keys::AUTOSCALER[0]: "1", keys::DEHYDRATED_AUTOSCALER[1]: "5", "other": "x",
            } },
            "spec": { "replicas": 3, "template": { "spec": { "providerSpec": { "value": {
                "cloudProviderSpec": { "instanceType": "t3.medium", "diskSize": 25, "size": { "no": "text" } },
            } } } } },
        }));
        let all = vec![
            machine("joined", owner("MachineSet", "set"), "n-1"),
            machine("single", json!([]), ""),
            machine("other", owner("MachineSet", "gone"), ""),
        ];
        let charge = MemoryLimit::default().of(Consumer::new("tenant", "spoke")).charge();
        Machines {
            deployments: ChargedValue::new(vec![deployment], charge.another()),
            sets: Some(ChargedValue::new(vec![set], charge.another())),
            all: ChargedValue::new(all, charge),
        }
    }

    #[test]
    fn machines_have_a_deployment_by_way_of_their_set() {
        let machines = machines();
        let found = machines.for_preflight(&[Node { name: "orphan".into(), ..Node::default() }]);
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!((found.machines, found.single_machines), (3, names(&["single", "other"])));
        assert_eq!((found.external_machines, found.single_nodes), (names(&["other"]), names(&["orphan"])));
        let autoscaler = [(keys::AUTOSCALER[0].to_owned(), "1".to_owned())].into();
        let autoscaler_copy = [(keys::AUTOSCALER[1].to_owned(), "5".to_owned())].into();
        let name = "kube-system/a".to_owned();
        let machine_type = "t3.medium".to_owned();
        let expected = MachineDeployment { name, replicas: 3, machine_type, autoscaler, copy: None, autoscaler_copy };
        assert_eq!(machines.deployments(), [expected]);
    }

    /// Rows 54 to 57.
    #[test]
    fn nodes_tell_whose_they_are_and_whether_they_live() {
        let now: Timestamp = "2026-11-22T18:00:00Z".parse().unwrap();
        let node = |name: &str, labels: Value, annotations: Value, ready: &str| {
            object::<KubeNode>(json!({
                "metadata": { "name": name, "labels": labels, "annotations": annotations },
                "spec": { "unschedulable": ready == "Unknown" },
                "status": { "conditions": [{ "type": "Ready", "status": ready }] },
            }))
        };
        let lease = |name: &str, renewed: &str| {
            object::<Lease>(json!({ "metadata": { "name": name }, "spec": { "renewTime": renewed } }))
        };
        let ours = NodeBefore::of(true, Some("mine"));
        let all = [
            node("n-1", json!({}), json!({ keys::SKIP_EVICTION: "" }), "True"),
            node("n-2", json!({ OWNED_BY: "uid-single" }), json!({ keys::CORDONED: ours.text() }), "False"),
            node("orphan", json!({ OWNED_BY: "uid-gone" }), json!({}), "Unknown"),
        ];
        let leases = [lease("n-1", "2026-11-22T17:59:50.000000Z"), lease("orphan", "2026-11-22T17:00:00.000000Z")];
        let found = nodes(&all, &machines(), &leases, now);
        let facts: Vec<_> = found.iter().map(|one| (one.has_machine, one.ready, one.stale, one.cordoned)).collect();
        assert_eq!(facts, [(true, true, false, false), (true, false, true, false), (false, false, true, true)]);
        assert!(found[0].skips_eviction && !found[0].ours && found[1].ours && !found[1].skips_eviction);
        let before: Vec<_> = found.iter().map(|one| one.before.clone()).collect();
        assert_eq!(before, [NodeBefore::of(false, Some("")), ours, NodeBefore::of(true, None)]);
        let mut leaving = machines();
        leaving.all = leaving.all.map(|mut all: Vec<KkpMachine>| {
            all[1].metadata.deletion_timestamp = Some(now);
            all
        });
        let found = nodes(&all, &leaving, &leases, now);
        assert_eq!(found.iter().map(|one| one.leaves).collect::<Vec<_>>(), [false, true, false]);
    }

    #[test]
    fn a_drain_skips_what_kubectl_drain_skips_and_orders_the_rest() {
        let pod = |name: &str, change: Value| {
            let mut pod = json!({
                "metadata": { "name": name, "namespace": "shop", "ownerReferences": owner("ReplicaSet", "r") },
                "spec": { "nodeName": "n-1", "containers": [] },
            });
            json_patch::merge(&mut pod, &change);
            object::<KubePod>(pod)
        };
        let volume = json!([{ "name": "v", "persistentVolumeClaim": { "claimName": "c" } }]);
        let all = vec![
            pod("web", json!({})),
            pod("db", json!({ "spec": { "volumes": volume } })),
            pod("ending", json!({ "metadata": { "deletionTimestamp": "2026-11-22T18:00:00Z" } })),
            pod("csi", json!({ "metadata": { "namespace": "kube-system" } })),
            pod("daemon", json!({ "metadata": { "ownerReferences": owner("DaemonSet", "d") } })),
            pod(
                "static",
                json!({ "metadata": { "annotations": { MIRROR: "x" }, "ownerReferences": owner("Node", "n") } }),
            ),
            pod("done", json!({ "status": { "phase": "Succeeded" } })),
            pod("pending", json!({ "spec": { "nodeName": null } })),
            pod("bare", json!({ "metadata": { "ownerReferences": null } })),
        ];
        let alive = Node { name: "n-1".into(), ready: true, ..Node::default() };
        let found = pods(&all, std::slice::from_ref(&alive));
        let names: Vec<_> = found.iter().map(|pod| (pod.name.as_str(), pod.stage, pod.terminating)).collect();
        assert_eq!(
            names,
            [
                ("shop/web", Stage::Others, false),
                ("shop/db", Stage::WithVolumes, false),
                ("shop/ending", Stage::Others, true),
                ("kube-system/csi", Stage::System, false),
                ("shop/bare", Stage::Others, false),
            ]
        );
        assert_eq!(bare(&all), ["shop/bare"]);
        assert!(found.iter().all(|pod| !pod.is_lost && pod.returned.is_none()));
        assert_eq!((lost_pods(&all, &[alive]).len(), lost_pods(&all, &[]).len()), (0, 7), "those that run on a Node");
        let dead = Node { name: "n-1".into(), stale: true, ..Node::default() };
        assert!(pods(&all, &[dead]).iter().chain(&pods(&all, &[])).all(|pod| pod.is_lost));
    }

    #[test]
    fn a_pod_returns_to_a_cordoned_node_if_it_tolerates_the_taint() {
        let created = "2026-11-22T18:00:00Z";
        for (toleration, returns) in [
            (json!({ "operator": "Exists" }), true),
            (json!({ "operator": "Exists", "effect": "NoSchedule" }), true),
            (json!({ "operator": "Exists", "effect": "NoExecute" }), false),
            (json!({ "key": "node.kubernetes.io/unschedulable", "operator": "Exists" }), true),
            (json!({ "key": "node.kubernetes.io/not-ready", "operator": "Exists" }), false),
        ] {
            let pod = object::<KubePod>(json!({
                "metadata": { "name": "operator", "creationTimestamp": created },
                "spec": { "containers": [], "tolerations": [toleration] },
            }));
            assert_eq!(returned(&pod).map(|at| at.to_string()), returns.then(|| created.to_owned()), "{toleration}");
        }
    }
}
