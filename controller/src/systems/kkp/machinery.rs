//! What a user cluster holds: the answers of its API server as decisions see them.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node as KubeNode, Pod as KubePod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use kube::api::DynamicObject;
use shared::kkp::decide::{LostPod, MachineDeployment, Machinery, Node, Pod, Stage};
use shared::kkp::keys;
use shared::kkp::preflight::{self, UserCluster};
use shared::kkp::record::Numbers;
use shared::spoke::SpokeError;

use super::seed::copy;

/// How old a Lease is whose kubelet has gone: row 57 saw one for ever.
const STALE: SignedDuration = SignedDuration::from_mins(2);
/// Annotation of a static Pod.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// The user cluster, as far as it was asked.
pub enum Seen {
    /// It was not asked.
    NotAsked,
    /// It did not answer, and why.
    Silent(String),
    /// What it holds.
    Asked(Box<Asked>),
}

/// What it holds.
pub struct Asked {
    /// What it runs on.
    pub machinery: Machinery,
    /// What the preflight reads; only before a sleep.
    pub preflight: Option<UserCluster>,
    /// The client that was used.
    pub client: kube::Client,
}

impl Seen {
    /// What the preflight counted.
    pub fn numbers(&self) -> Numbers {
        let Self::Asked(asked) = self else { return Numbers::default() };
        let Some(user) = &asked.preflight else { return Numbers::default() };
        let count = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        let machines = count(user.machines.len());
        Numbers { volumes: count(user.volumes), load_balancers: count(user.load_balancers.len()), machines }
    }

    /// What the preflight reads of the user cluster, or why there is nothing.
    pub fn for_preflight(&self) -> Result<&UserCluster, &str> {
        match self {
            Self::Asked(asked) => asked.preflight.as_ref().ok_or("it was not asked"),
            Self::Silent(why) => Err(why),
            Self::NotAsked => Err("it was not asked"),
        }
    }
}

impl From<SpokeError> for Seen {
    fn from(error: SpokeError) -> Self {
        Self::Silent(error.to_string())
    }
}

/// The lists of machine-controller's kinds.
pub struct Machines {
    /// `MachineDeployments`.
    pub deployments: Vec<DynamicObject>,
    /// `MachineSets`.
    pub sets: Vec<DynamicObject>,
    /// Machines.
    pub all: Vec<DynamicObject>,
}

impl Machines {
    /// `MachineDeployments` as decisions see them.
    pub fn deployments(&self) -> Vec<MachineDeployment> {
        self.deployments.iter().map(deployment).collect()
    }

    /// Names of all Machines.
    pub fn names(&self) -> Vec<String> {
        self.all.iter().map(ResourceExt::name_any).collect()
    }

    /// Machines as the preflight sees them.
    pub fn for_preflight(&self) -> Vec<preflight::Machine> {
        let is_owned = |object: &DynamicObject, kind: &str| controller(object.owner_references(), kind).is_some();
        let sets: BTreeSet<&str> = self
            .sets
            .iter()
            .filter(|set| is_owned(set, "MachineDeployment"))
            .filter_map(|set| set.metadata.uid.as_deref())
            .collect();
        let provider = |object: &DynamicObject| {
            let provider = object.data.pointer("/spec/providerSpec/value/cloudProvider");
            provider.and_then(|name| name.as_str()).unwrap_or_default().to_owned()
        };
        let machines = self.all.iter().map(|machine| preflight::Machine {
            name: machine.name_any(),
            has_deployment: controller(machine.owner_references(), "MachineSet")
                .is_some_and(|owner| sets.contains(owner.uid.as_str())),
            provider: provider(machine),
        });
        machines.collect()
    }

    /// Names of the Nodes that these Machines refer to, and UIDs of the Machines that Nodes refer to.
    fn of_nodes(&self, which: impl Fn(&DynamicObject) -> bool) -> BTreeSet<String> {
        let names = |machine: &DynamicObject| {
            let node = machine.data.pointer("/status/nodeRef/name").and_then(|name| name.as_str());
            [node, machine.metadata.uid.as_deref()].into_iter().flatten().map(str::to_owned).collect::<Vec<_>>()
        };
        self.all.iter().filter(|machine| which(machine)).flat_map(names).collect()
    }
}

fn controller<'a>(owners: &'a [OwnerReference], kind: &str) -> Option<&'a OwnerReference> {
    owners.iter().find(|owner| owner.kind == kind)
}

fn deployment(object: &DynamicObject) -> MachineDeployment {
    let replicas = object.data.pointer("/spec/replicas").and_then(serde_json::Value::as_u64).unwrap_or(1);
    let of_autoscaler = |key: &&str| Some(((*key).to_owned(), object.annotations().get(*key)?.clone()));
    MachineDeployment {
        name: format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any()),
        replicas: u32::try_from(replicas).unwrap_or(u32::MAX),
        autoscaler: keys::AUTOSCALER.iter().filter_map(of_autoscaler).collect(),
        copy: copy(&object.metadata),
    }
}

/// The label by which machine-controller names the Machine of a Node.
const OWNER: &str = "machine-controller/owned-by";

/// Nodes as decisions see them.
pub fn nodes(nodes: &[KubeNode], machines: &Machines, leases: &[Lease], now: Timestamp) -> Vec<Node> {
    let of_machines = machines.of_nodes(|_| true);
    let of_leaving = machines.of_nodes(|machine| machine.metadata.deletion_timestamp.is_some());
    let renewed: BTreeMap<String, Timestamp> = leases
        .iter()
        .filter_map(|lease| Some((lease.name_any(), lease.spec.as_ref()?.renew_time.as_ref()?.0)))
        .collect();
    let node = |node: &KubeNode| {
        let name = node.name_any();
        let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let owner = node.labels().get(OWNER);
        let is_of =
            |machines: &BTreeSet<String>| machines.contains(&name) || owner.is_some_and(|uid| machines.contains(uid));
        Node {
            cordoned: node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or_default(),
            skips_eviction: node.annotations().contains_key(keys::SKIP_EVICTION),
            ours: node.annotations().contains_key(keys::CORDONED),
            has_machine: is_of(&of_machines),
            leaves: is_of(&of_leaving),
            ready: conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True"),
            stale: renewed.get(&name).is_none_or(|renewed| now.duration_since(*renewed) > STALE),
            name,
        }
    };
    nodes.iter().map(node).collect()
}

/// The taint of a cordoned Node.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// When a Pod was created whose controller places it on a cordoned Node again: it tolerates the taint.
fn returned(pod: &KubePod) -> Option<Timestamp> {
    let mut tolerations = pod.spec.iter().flat_map(|spec| spec.tolerations.iter().flatten());
    let tolerates = tolerations.any(|one| {
        let covers = match one.key.as_deref() {
            None | Some("") => one.operator.as_deref() == Some("Exists"),
            Some(key) => key == UNSCHEDULABLE,
        };
        covers && one.effect.as_deref().is_none_or(|effect| matches!(effect, "" | "NoSchedule"))
    });
    pod.metadata.creation_timestamp.as_ref().map(|created| created.0).filter(|_| tolerates)
}

/// Pods that are bound to Nodes that are gone.
pub fn lost_pods(pods: &[KubePod], nodes: &[Node]) -> Vec<LostPod> {
    let names: BTreeSet<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
    let node = |pod: &KubePod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
    let is_lost = |pod: &&KubePod| !is_done(pod) && node(pod).is_some_and(|node| !names.contains(node.as_str()));
    let lost = |pod| LostPod { name: full_name(pod), uid: pod.uid().unwrap_or_default() };
    pods.iter().filter(is_lost).map(lost).collect()
}

/// Whether a Pod is skipped, as `kubectl drain` skips it: of a `DaemonSet`, static, done, or on no Node.
fn is_left(pod: &KubePod) -> bool {
    let on_node = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    let of_daemon_set = controller(pod.owner_references(), "DaemonSet").is_some();
    of_daemon_set || pod.annotations().contains_key(MIRROR) || is_done(pod) || !on_node
}

fn is_done(pod: &KubePod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

fn full_name(pod: &KubePod) -> String {
    format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any())
}

/// Pods that a drain deletes. One whose Node is gone, or has neither a heartbeat nor a Lease, has no kubelet that ends it.
pub fn pods(pods: &[KubePod], nodes: &[Node]) -> Vec<Pod> {
    let alive: BTreeSet<&str> =
        nodes.iter().filter(|node| node.ready || !node.stale).map(|node| node.name.as_str()).collect();
    let node = |pod: &KubePod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
    let one = |pod: &KubePod| Pod {
        name: full_name(pod),
        stage: stage(pod),
        terminating: pod.metadata.deletion_timestamp.is_some(),
        is_lost: !alive.contains(node(pod).as_str()),
        returned: returned(pod),
    };
    pods.iter().filter(|pod| !is_left(pod)).map(one).collect()
}

fn stage(pod: &KubePod) -> Stage {
    let mut volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let has_volume = volumes.any(|volume| volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some());
    match pod.metadata.namespace.as_deref() {
        Some("kube-system") => Stage::System,
        _ if has_volume => Stage::WithVolumes,
        _ => Stage::Others,
    }
}

/// Pods that nothing recreates.
pub fn bare(pods: &[KubePod]) -> Vec<String> {
    let is_bare = |pod: &&KubePod| {
        let owned = pod.owner_references().iter().any(|owner| owner.controller == Some(true));
        !owned && !pod.annotations().contains_key(MIRROR) && !is_done(pod)
    };
    pods.iter().filter(is_bare).map(full_name).collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::{Value, json};

    use super::*;

    fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    fn owner(kind: &str, uid: &str) -> Value {
        json!([{ "apiVersion": "v1", "kind": kind, "name": "o", "uid": uid, "controller": true }])
    }

    fn machines() -> Machines {
        let machine = |name: &str, owners: Value, node: &str| {
            object(json!({
                "apiVersion": "cluster.k8s.io/v1alpha1", "kind": "Machine",
                "metadata": { "name": name, "uid": format!("uid-{name}"), "ownerReferences": owners },
                "spec": { "providerSpec": { "value": { "cloudProvider": "aws" } } },
                "status": { "nodeRef": { "name": node } },
            }))
        };
        let set = object(json!({
            "apiVersion": "cluster.k8s.io/v1alpha1", "kind": "MachineSet",
            "metadata": { "name": "s", "uid": "set", "ownerReferences": owner("MachineDeployment", "d") },
        }));
        let deployment = object(json!({
            "apiVersion": "cluster.k8s.io/v1alpha1", "kind": "MachineDeployment",
            "metadata": { "name": "a", "namespace": "kube-system", "annotations": { keys::AUTOSCALER[0]: "1", "other": "x" } },
            "spec": { "replicas": 3 },
        }));
        Machines {
            deployments: vec![deployment],
            sets: vec![set],
            all: vec![
                machine("joined", owner("MachineSet", "set"), "n-1"),
                machine("single", json!([]), ""),
                machine("other", owner("MachineSet", "gone"), ""),
            ],
        }
    }

    #[test]
    fn machines_have_a_deployment_by_way_of_their_set() {
        let machines = machines();
        let found: Vec<_> =
            machines.for_preflight().into_iter().map(|one| (one.name, one.has_deployment, one.provider)).collect();
        let expected = [("joined", true), ("single", false), ("other", false)];
        assert_eq!(found, expected.map(|(name, has)| (name.to_owned(), has, "aws".to_owned())));
        let autoscaler = [(keys::AUTOSCALER[0].to_owned(), "1".to_owned())].into();
        let expected = MachineDeployment { name: "kube-system/a".into(), replicas: 3, autoscaler, copy: None };
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
        let all = [
            node("n-1", json!({}), json!({ keys::SKIP_EVICTION: "" }), "True"),
            node("n-2", json!({ OWNER: "uid-single" }), json!({ keys::CORDONED: "true" }), "False"),
            node("orphan", json!({ OWNER: "uid-gone" }), json!({}), "Unknown"),
        ];
        let leases = [lease("n-1", "2026-11-22T17:59:50.000000Z"), lease("orphan", "2026-11-22T17:00:00.000000Z")];
        let found = nodes(&all, &machines(), &leases, now);
        let facts: Vec<_> = found.iter().map(|one| (one.has_machine, one.ready, one.stale, one.cordoned)).collect();
        assert_eq!(facts, [(true, true, false, false), (true, false, true, false), (false, false, true, true)]);
        assert!(found[0].skips_eviction && !found[0].ours && found[1].ours && !found[1].skips_eviction);
        let mut leaving = machines();
        leaving.all[1].metadata.deletion_timestamp = Some(Time(now));
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
            (json!({ "key": UNSCHEDULABLE, "operator": "Exists" }), true),
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
