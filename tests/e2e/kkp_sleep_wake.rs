//! KKP on real API servers: the hub is the seed, a spoke is the user cluster. Both have the kinds of KKP and machine-controller; what KKP's
//! own controllers, machine-controller and kubelets do is played here, as far as these tests need it (rows of reference/kkp-observed.md).

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::batch::v1::CronJob;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, CustomResourceExt as _, ResourceExt};
use serde_json::{Value, json};
use shared::kkp::api::Cluster;
use shared::kkp::keys;
use testbed::supervisor::programs::Start;
use testbed::{Options, Program, Timings, World, apply, eventually};

const SOON: Duration = Duration::from_mins(2);
const ID: &str = "abc";
const NAMESPACE: &str = "cluster-abc";

/// Replicas that KKP keeps, etcd left out.
const KEPT: &[(&str, i32)] = &[
    ("apiserver", 2),
    ("controller-manager", 1),
    ("scheduler", 1),
    ("machine-controller", 1),
    ("machine-controller-webhook", 1),
    ("operating-system-manager", 1),
];

/// A seed with one user cluster, and what plays KKP's part.
struct Seed {
    world: World,
    hub: Client,
    user: Client,
}

fn patch(value: Value) -> Patch<Value> {
    Patch::Merge(value)
}

fn machine_kind(kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("cluster.k8s.io", "v1alpha1", kind))
}

/// A kind of machine-controller that keeps whatever it is given.
fn definition(kind: &str, plural: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{plural}.cluster.k8s.io"),
            "annotations": { "api-approved.kubernetes.io": "unapproved, older than the rule" },
        },
        "spec": {
            "group": "cluster.k8s.io", "scope": "Namespaced",
            "names": { "kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List") },
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
            }],
        },
    })
}

/// A Deployment or `StatefulSet` of the control plane.
fn workload(kind: &str, name: &str, replicas: i32) -> Value {
    let mut spec = json!({
        "replicas": replicas,
        "selector": { "matchLabels": { "app": name } },
        "template": {
            "metadata": { "labels": { "app": name } },
            "spec": { "containers": [{ "name": "c", "image": "i" }], "terminationGracePeriodSeconds": 0 },
        },
    });
    if kind == "StatefulSet" {
        spec["serviceName"] = json!(name);
        spec["podManagementPolicy"] = json!("Parallel");
    }
    json!({ "apiVersion": "apps/v1", "kind": kind, "metadata": { "name": name, "namespace": NAMESPACE }, "spec": spec })
}

/// What the controller may do on a seed: of 8.4, until the manifests grant it.
fn rights() -> Vec<Value> {
    let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({ "apiGroups": [group], "resources": resources, "verbs": verbs });
    let rules = json!([
        rule("kubermatic.k8c.io", &["clusters"], &["get", "list", "watch", "patch"]),
        rule("kubermatic.k8c.io", &["clusters/status"], &["patch"]),
        rule("kubermatic.k8c.io", &["etcdbackupconfigs"], &["list", "patch"]),
        rule("apps", &["deployments", "statefulsets"], &["list", "watch", "patch"]),
        rule("batch", &["cronjobs"], &["list", "watch", "patch"]),
        rule("", &["configmaps"], &["get", "create", "patch", "delete"]),
        rule("", &["secrets"], &["get"]),
    ]);
    let role =
        json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "hibernate-controller-kkp" });
    let account = json!({ "kind": "ServiceAccount", "name": "hibernate-controller", "namespace": shared::annotation::keys::NAMESPACE });
    let meta = json!({ "name": "hibernate-controller-kkp" });
    vec![
        json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": meta, "rules": rules }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": meta, "roleRef": role, "subjects": [account],
        }),
    ]
}

impl Seed {
    async fn up() -> Result<Self> {
        let options = Options {
            clusters: 0,
            without: vec![Program::Webhook, Program::Controller],
            timings: Timings::fast(),
            ..Options::default()
        };
        let world = World::up(options).await?;
        let (hub, user) = (world.hub().await?, world.spoke(0).await?);
        let seed = Self { world, hub, user };
        seed.install().await?;
        seed.start().await?;
        Ok(seed)
    }

    async fn start(&self) -> Result<()> {
        let start = Start { args: vec!["--kkp".to_owned()], ..Start::new(Program::Controller) };
        self.world.start(&start).await.map(drop)
    }

    async fn install(&self) -> Result<()> {
        let path = &self.world.file().spokes.first().context("a spoke")?.kubeconfig;
        let kubeconfig = std::fs::read_to_string(path)?;
        let mut objects = rights();
        objects.push(json!(Cluster::crd()));
        objects.push(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } }));
        objects.push(json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "internal-admin-kubeconfig", "namespace": NAMESPACE },
            "stringData": { "kubeconfig": kubeconfig },
        }));
        objects.extend(KEPT.iter().map(|(name, replicas)| workload("Deployment", name, *replicas)));
        objects.push(workload("StatefulSet", "etcd", 3));
        let job = json!({ "spec": { "template": { "spec": { "restartPolicy": "Never", "containers": [{ "name": "c", "image": "i" }] } } } });
        objects.push(json!({
            "apiVersion": "batch/v1", "kind": "CronJob", "metadata": { "name": "etcd-defragger", "namespace": NAMESPACE },
            "spec": { "schedule": "@every 3h", "jobTemplate": job },
        }));
        objects.push(json!({
            "apiVersion": "kubermatic.k8c.io/v1", "kind": "Cluster", "metadata": { "name": ID, "labels": { "project-id": "p" } },
            "spec": { "humanReadableName": "shop", "version": "1.34.1", "cloud": { "dc": "eu", "providerName": "aws" } },
        }));
        apply::all(&self.hub, &objects).await?;
        let up_to_date =
            json!({ "status": "True", "kubermaticVersion": "v2.30.0", "lastHeartbeatTime": "2026-11-22T18:00:00Z" });
        let status = json!({ "status": {
            "phase": "Running", "namespaceName": NAMESPACE, "conditions": { "SeedResourcesUpToDate": up_to_date },
        } });
        self.clusters().patch_status(ID, &PatchParams::default(), &patch(status)).await?;

        let autoscaled = json!({ keys::AUTOSCALER[0]: "1", keys::AUTOSCALER[1]: "5" });
        let machines = |name: &str, replicas: u32, annotations: &Value| {
            json!({
                "apiVersion": "cluster.k8s.io/v1alpha1", "kind": "MachineDeployment",
                "metadata": { "name": name, "namespace": "kube-system", "annotations": annotations },
                "spec": { "replicas": replicas, "selector": {}, "template": {} },
            })
        };
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "web", "namespace": "default",
                "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": true }],
            },
            "spec": { "nodeName": "a-0", "containers": [{ "name": "c", "image": "i" }] },
        });
        let mut objects = vec![
            definition("MachineDeployment", "machinedeployments"),
            definition("MachineSet", "machinesets"),
            definition("Machine", "machines"),
        ];
        objects.extend([machines("a", 2, &autoscaled), machines("b", 0, &json!({}))]);
        apply::all(&self.user, &objects).await?;
        eventually(SOON, "Nodes", async || {
            self.machine_controller().await?;
            ensure!(self.nodes().await?.len() == 2);
            Ok(())
        })
        .await?;
        apply::all(&self.user, &[pod]).await
    }

    fn clusters(&self) -> Api<Cluster> {
        Api::all(self.hub.clone())
    }

    fn machines(&self, kind: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.user.clone(), "kube-system", &machine_kind(kind))
    }

    async fn nodes(&self) -> Result<Vec<Node>> {
        Ok(Api::<Node>::all(self.user.clone()).list(&ListParams::default()).await?.items)
    }

    async fn replicas(&self) -> Result<BTreeMap<String, i32>> {
        let deployments: Api<Deployment> = Api::namespaced(self.hub.clone(), NAMESPACE);
        let sets: Api<StatefulSet> = Api::namespaced(self.hub.clone(), NAMESPACE);
        let deployments = deployments.list(&ListParams::default()).await?.items.into_iter();
        let counts = deployments.map(|one| (one.name_any(), one.spec.and_then(|spec| spec.replicas).unwrap_or(1)));
        let sets = sets.list(&ListParams::default()).await?.items.into_iter();
        Ok(counts
            .chain(sets.map(|one| (one.name_any(), one.spec.and_then(|spec| spec.replicas).unwrap_or(1))))
            .collect())
    }

    /// One round of KKP and of the seed's kubelets: Pods become ready, and replicas of a cluster that is not paused are reset, those of etcd
    /// never (rows 2, 3 and 8).
    async fn kkp(&self) -> Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.hub.clone(), NAMESPACE);
        let ready = json!({ "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] } });
        for pod in pods.list(&ListParams::default()).await? {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            if phase != Some("Running") {
                let _ = pods.patch_status(&pod.name_any(), &PatchParams::default(), &patch(ready.clone())).await;
            }
        }
        if self.clusters().get(ID).await?.spec.pause {
            return Ok(());
        }
        let deployments: Api<Deployment> = Api::namespaced(self.hub.clone(), NAMESPACE);
        let found = self.replicas().await?;
        for (name, replicas) in KEPT.iter().filter(|(name, replicas)| found.get(*name) != Some(replicas)) {
            let kept = json!({ "spec": { "replicas": replicas } });
            deployments.patch(name, &PatchParams::default(), &patch(kept)).await?;
        }
        Ok(())
    }

    /// One round of machine-controller and of the user cluster's kubelets: Machines and Nodes follow the counts, Pods that are deleted end.
    async fn machine_controller(&self) -> Result<()> {
        let (machines, nodes) = (self.machines("Machine"), Api::<Node>::all(self.user.clone()));
        let pods: Api<Pod> = Api::all(self.user.clone());
        for pod in pods.list(&ListParams::default()).await? {
            if pod.metadata.deletion_timestamp.is_some() {
                let pods: Api<Pod> = Api::namespaced(self.user.clone(), &pod.namespace().unwrap_or_default());
                let _ = pods.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await;
            }
        }
        let existing: Vec<String> =
            machines.list(&ListParams::default()).await?.iter().map(ResourceExt::name_any).collect();
        for deployment in self.machines("MachineDeployment").list(&ListParams::default()).await? {
            let set = self.set_of(&deployment).await?;
            let wanted = deployment.data.pointer("/spec/replicas").and_then(Value::as_u64).unwrap_or_default();
            for number in 0..5 {
                let name = format!("{}-{number}", deployment.name_any());
                let exists = existing.contains(&name);
                if number < wanted && !exists {
                    self.create_machine(&name, &set).await?;
                } else if number >= wanted && exists {
                    nodes.delete(&name, &DeleteParams::default()).await?;
                    machines.delete(&name, &DeleteParams::default()).await?;
                }
            }
        }
        Ok(())
    }

    async fn set_of(&self, deployment: &DynamicObject) -> Result<Value> {
        let (sets, name) = (self.machines("MachineSet"), deployment.name_any());
        let owner = json!([{
            "apiVersion": "cluster.k8s.io/v1alpha1", "kind": "MachineDeployment", "name": name, "uid": deployment.metadata.uid,
        }]);
        let set = json!({
            "apiVersion": "cluster.k8s.io/v1alpha1", "kind": "MachineSet", "metadata": { "name": name, "ownerReferences": owner },
        });
        let found = match sets.get_opt(&name).await? {
            Some(found) => found,
            None => sets.create(&PostParams::default(), &serde_json::from_value(set)?).await?,
        };
        Ok(
            json!([{ "apiVersion": "cluster.k8s.io/v1alpha1", "kind": "MachineSet", "name": name, "uid": found.metadata.uid }]),
        )
    }

    async fn create_machine(&self, name: &str, owners: &Value) -> Result<()> {
        let machine = json!({
            "apiVersion": "cluster.k8s.io/v1alpha1", "kind": "Machine", "metadata": { "name": name, "ownerReferences": owners },
            "spec": { "providerSpec": { "value": { "cloudProvider": "aws" } } }, "status": { "nodeRef": { "name": name } },
        });
        self.machines("Machine").create(&PostParams::default(), &serde_json::from_value(machine)?).await?;
        let nodes: Api<Node> = Api::all(self.user.clone());
        let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name } });
        nodes.create(&PostParams::default(), &serde_json::from_value(node)?).await?;
        let ready = json!({ "status": { "conditions": [{
            "type": "Ready", "status": "True", "lastHeartbeatTime": jiff::Timestamp::now().to_string(),
        }] } });
        nodes.patch_status(name, &PatchParams::default(), &patch(ready)).await?;
        Ok(())
    }

    async fn request(&self, state: &str) -> Result<()> {
        let at = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let annotations = json!({ keys::POWER_STATE: state, keys::POWER_STATE_AT: at });
        let written = json!({ "metadata": { "annotations": annotations } });
        self.clusters().patch(ID, &PatchParams::default(), &patch(written)).await?;
        Ok(())
    }

    /// Plays KKP's part until the condition has this reason; none means that it is gone. etcd has all members or none, always.
    async fn until(&self, reason: Option<&str>) -> Result<Cluster> {
        eventually(SOON, "phase", async || {
            self.kkp().await?;
            self.machine_controller().await?;
            let etcd = self.replicas().await?["etcd"];
            assert!(etcd == 0 || etcd == 3, "etcd at {etcd}");
            let cluster = self.clusters().get(ID).await?;
            let condition = cluster.condition(keys::DEHYDRATED).cloned();
            ensure!(condition.as_ref().and_then(|one| one.reason.as_deref()) == reason, "{condition:?}");
            Ok(cluster)
        })
        .await
    }

    async fn is_suspended(&self) -> Result<Option<bool>> {
        let jobs: Api<CronJob> = Api::namespaced(self.hub.clone(), NAMESPACE);
        Ok(jobs.get("etcd-defragger").await?.spec.suspend)
    }

    async fn record(&self) -> Result<Option<Value>> {
        let records: Api<ConfigMap> = Api::namespaced(self.hub.clone(), NAMESPACE);
        let found = records.get_opt(keys::RECORD.0).await?;
        let text = found.and_then(|found| found.data?.remove(keys::RECORD.1));
        Ok(text.map(|text| serde_json::from_str(&text)).transpose()?)
    }

    /// Everything is as it was before the sleep.
    async fn is_awake(&self) -> Result<()> {
        let expected: BTreeMap<String, i32> = KEPT
            .iter()
            .map(|(name, replicas)| ((*name).to_owned(), *replicas))
            .chain([("etcd".to_owned(), 3)])
            .collect();
        let found = self.replicas().await?;
        ensure!(found == expected, "{found:?}");
        let deployment = self.machines("MachineDeployment").get("a").await?;
        let annotations = deployment.annotations();
        ensure!(deployment.data["spec"]["replicas"] == 2 && annotations.len() == 2, "{annotations:?}");
        ensure!(keys::AUTOSCALER.iter().all(|key| annotations.contains_key(*key)), "{annotations:?}");
        ensure!(self.machines("MachineDeployment").get("b").await?.data["spec"]["replicas"] == 0);
        let nodes = self.nodes().await?;
        ensure!(nodes.len() == 2, "{} Nodes", nodes.len());
        for node in nodes {
            let cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or_default();
            ensure!(
                !cordoned
                    && node.annotations().keys().all(|key| !key.contains("hibernate") && key != keys::SKIP_EVICTION)
            );
        }
        ensure!(self.is_suspended().await? != Some(true) && self.record().await?.is_none());
        ensure!(!self.clusters().get(ID).await?.spec.pause);
        Ok(())
    }
}

#[tokio::test]
async fn a_user_cluster_sleeps_and_comes_back_as_it_was() -> Result<()> {
    let seed = Seed::up().await?;
    seed.request("Hibernating").await?;
    let asleep = seed.until(Some("Dehydrated")).await?;
    ensure!(asleep.spec.pause && asleep.is_true(keys::DEHYDRATED));
    let counts = seed.replicas().await?;
    ensure!(counts.values().all(|count| *count == 0), "{counts:?}");
    ensure!(seed.nodes().await?.is_empty() && seed.is_suspended().await? == Some(true));
    let record = seed.record().await?.context("a record")?;
    ensure!(
        record["controlPlane"]["StatefulSet/etcd"] == 3 && record["controlPlane"]["Deployment/apiserver"] == 2,
        "{record}"
    );
    ensure!(record["machineDeployments"]["kube-system/a"]["replicas"] == 2, "{record}");

    seed.request("Running").await?;
    seed.until(None).await?;
    seed.is_awake().await
}

#[tokio::test]
async fn a_wake_in_the_middle_of_the_sleep_undoes_it_after_a_crash_too() -> Result<()> {
    let seed = Seed::up().await?;
    seed.request("Hibernating").await?;
    seed.until(Some("ScalingDownControlPlane")).await?;
    seed.world.signal("controller", "kill").await?;
    seed.request("Running").await?;
    seed.start().await?;
    seed.until(None).await?;
    seed.is_awake().await
}
