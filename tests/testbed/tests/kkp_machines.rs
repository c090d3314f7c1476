//! The double of machine-controller, its cloud and its kubelets does what the real ones were seen to do. The names of
//! the tests are rows of docs/reference/kkp.md.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{Event, Node, Pod, Secret};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use testbed::kkp::log::{How, Rule};
use testbed::kkp::machinery;
use testbed::kkp::options::MachineDeployment;
use testbed::{KkpCluster, KkpOptions, eventually};

use crate::kkp::{SOON, until, world};

const OURS: &str = "hibernate.sh/dehydrated-replicas";

/// Two machines, and Pods with a budget that allows no disruption.
fn busy() -> KkpOptions {
    KkpOptions {
        machine_deployments: vec![MachineDeployment::new("a", 1), MachineDeployment::new("b", 1)],
        volumes: 1,
        load_balancers: 1,
        ..KkpOptions::default()
    }
}

async fn nodes(cluster: &KkpCluster) -> Result<Vec<Node>> {
    Ok(Api::<Node>::all(cluster.user()).list(&ListParams::default()).await?.items)
}

async fn pods(cluster: &KkpCluster) -> Result<Vec<Pod>> {
    Ok(Api::<Pod>::all(cluster.user()).list(&ListParams::default()).await?.items)
}

/// Waits until there are so many Machines, Nodes and instances.
async fn machines(cluster: &KkpCluster, count: usize) -> Result<()> {
    eventually(SOON, "Machines, Nodes and instances", async || {
        let (machines, nodes) = (cluster.machinery("Machine").await?.len(), nodes(cluster).await?.len());
        let instances = cluster.inspect().await?.cloud.instances.len();
        ensure!(
            [machines, nodes, instances] == [count; 3],
            "{machines} Machines, {nodes} Nodes, {instances} instances"
        );
        Ok(())
    })
    .await
}

async fn scale(cluster: &KkpCluster, name: &str, count: u32) -> Result<()> {
    let annotation = if count == 0 { json!("1") } else { Value::Null };
    let change = json!({ "metadata": { "annotations": { OURS: annotation } }, "spec": { "replicas": count } });
    cluster.patch_machines(name, &change).await.map(drop)
}

async fn patch_node(cluster: &KkpCluster, name: &str, change: Value) -> Result<()> {
    let api: Api<Node> = Api::all(cluster.user());
    api.patch(name, &PatchParams::default(), &Patch::Merge(change)).await?;
    Ok(())
}

fn cordon() -> Value {
    json!({ "spec": { "unschedulable": true } })
}

fn skip() -> Value {
    json!({ "metadata": { "annotations": { "kubermatic.io/skip-eviction": "" } } })
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_49_to_51_and_61_machines_go_in_order_and_the_status_says_so_too_early() -> Result<()> {
    let options = KkpOptions { machine_deployments: vec![MachineDeployment::new("a", 3)], ..KkpOptions::small() };
    let cluster = world().await?.kkp("order", options).await?;
    cluster.turn(&json!({ "terminate": "60s" })).await?;
    scale(&cluster, "a", 0).await?;
    eventually(SOON, "a status of 0 with instances", async || {
        let status = cluster.machinery("MachineDeployment").await?[0].data["status"]["replicas"].clone();
        let instances = cluster.inspect().await?.cloud.instances;
        ensure!(status == 0 && instances.len() == 3, "row 50: {status}, {} instances", instances.len());
        ensure!(instances.values().all(|one| one.terminating.is_some()));
        Ok(())
    })
    .await?;
    let held = cluster.machinery("Machine").await?;
    ensure!(
        held.iter().all(|one| one.finalizers().len() == 2) && nodes(&cluster).await?.len() == 3,
        "row 49: the Node goes last"
    );
    machines(&cluster, 0).await?;
    let texts: Vec<String> = cluster.log().await?.calls.into_iter().map(|call| call.text).collect();
    let first = |word: &str| texts.iter().position(|text| text.contains(word));
    ensure!(first("terminate") < first("is gone"), "row 49: {texts:?}");
    cluster.patch_machines("a", &json!({ "spec": { "paused": true } })).await?;
    scale(&cluster, "a", 2).await?;
    machines(&cluster, 2).await?; // row 61
    let set = &cluster.machinery("MachineSet").await?[0];
    ensure!(set.annotations().contains_key(OURS), "row 51: it stays on the MachineSet: {:?}", set.annotations());
    ensure!(!cluster.machinery("MachineDeployment").await?[0].annotations().contains_key(OURS));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_52_and_62_webhooks_and_quota() -> Result<()> {
    let cluster = world().await?.kkp("guarded", KkpOptions::small()).await?;
    // Row 52, with KKP out of the way.
    cluster.patch(&json!({ "spec": { "pause": true } })).await?;
    cluster.scale("machine-controller-webhook", 0).await?;
    let refused = async || cluster.patch_machines("a", &json!({ "metadata": { "annotations": { "x": "y" } } })).await;
    eventually(SOON, "a refusal", async || {
        let error = refused().await.err().and_then(|error| error.downcast::<kube::Error>().ok());
        ensure!(matches!(&error, Some(kube::Error::Api(status)) if status.code == 500), "{error:?}");
        Ok(())
    })
    .await?;
    let kind = machinery("MachineDeployment");
    let api: Api<kube::api::DynamicObject> = Api::namespaced_with(cluster.user(), "kube-system", &kind);
    let scaled = Patch::Merge(json!({ "metadata": { "annotations": { "dropped": "" } }, "spec": { "replicas": 0 } }));
    api.patch_subresource("scale", "a", &PatchParams::default(), &scaled).await?;
    let found = api.get("a").await?;
    ensure!(
        found.data["spec"]["replicas"] == 0 && !found.annotations().contains_key("dropped"),
        "row 52: {:?}",
        found.annotations()
    );
    machines(&cluster, 0).await?;
    cluster.patch(&json!({ "spec": { "pause": false } })).await?;
    eventually(SOON, "the webhook", async || refused().await.map(drop)).await?;

    cluster.turn(&json!({ "quota": 1 })).await?;
    scale(&cluster, "a", 2).await?;
    machines(&cluster, 1).await?;
    let events: Api<Event> = Api::namespaced(cluster.user(), "kube-system");
    let of_sets = ListParams::default().fields("involvedObject.kind=MachineSet,reason=ReconcileError");
    eventually(SOON, "an Event of the MachineSet", async || {
        let found = events.list(&of_sets).await?.items;
        ensure!(
            found.iter().any(|event| event
                .message
                .as_deref()
                .unwrap_or_default()
                .contains("would exceed current quota"))
        );
        Ok(())
    })
    .await?;
    eventually(SOON, "one that is unavailable", async || {
        let status = cluster.machinery("MachineDeployment").await?[0].data["status"].clone();
        ensure!(status["unavailableReplicas"] == 1, "row 62: {status}");
        Ok(())
    })
    .await?;
    cluster.turn(&json!({ "quota": null })).await?;
    let set = cluster.machinery("MachineSet").await?[0].name_any();
    let sets: Api<kube::api::DynamicObject> =
        Api::namespaced_with(cluster.user(), "kube-system", &machinery("MachineSet"));
    let touch = Patch::Merge(json!({ "metadata": { "annotations": { "touched": "1" } } }));
    sets.patch(&set, &PatchParams::default(), &touch).await?;
    machines(&cluster, 2).await?;

    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_53_any_change_of_annotations_makes_the_bootstrap_secrets_anew() -> Result<()> {
    let cluster = world().await?.kkp("osm", KkpOptions::small()).await?;
    let secrets: Api<Secret> = Api::namespaced(cluster.user(), "cloud-init-settings");
    let uid = async || anyhow::Ok(secrets.get("a-kube-system-bootstrap-config").await?.metadata.uid);
    let first = uid().await?;
    scale(&cluster, "a", 0).await?;
    machines(&cluster, 0).await?;
    ensure!(uid().await? != first, "a new Secret");
    // On the way up: a second write while the instance boots, and it cannot join.
    cluster.turn(&json!({ "joinLate": "2s" })).await?;
    scale(&cluster, "a", 1).await?;
    until("an instance", async || Ok(cluster.inspect().await?.cloud.instances.len() == 1)).await?;
    cluster.patch_machines("a", &json!({ "metadata": { "annotations": { "late": "write" } } })).await?;
    until("a void token", async || {
        Ok(cluster.log().await?.calls.iter().any(|call| call.text.contains("bootstrap token is void")))
    })
    .await?;
    let violations = cluster.log().await?.violations;
    ensure!(violations.iter().any(|one| one.rule == Rule::SecondAnnotation), "{violations:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_54_to_56_eviction_honors_budgets_unless_it_is_skipped() -> Result<()> {
    let cluster = world().await?.kkp("evicted", busy()).await?;
    let node = |all: &[Node], of: &str| all.iter().map(ResourceExt::name_any).find(|name| name.starts_with(of));
    let all = nodes(&cluster).await?;
    let (Some(a), Some(b)) = (node(&all, "a-"), node(&all, "b-")) else { anyhow::bail!("no Nodes") };
    let blocked = async || -> Result<usize> {
        Ok(cluster.log().await?.calls.iter().filter(|call| call.text.contains("disruption budget forbids")).count())
    };
    scale(&cluster, "a", 0).await?;
    until("a refused eviction", async || Ok(blocked().await? > 0)).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    ensure!(cluster.machinery("Machine").await?.len() == 2, "row 54: stuck");
    let cordoned = nodes(&cluster)
        .await?
        .iter()
        .any(|one| one.name_any() == a && one.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true));
    ensure!(cordoned, "row 54: cordoned");
    patch_node(&cluster, &a, skip()).await?;
    machines(&cluster, 1).await?;
    let killed = cluster.log().await?.pods;
    ensure!(
        killed.iter().any(|pod| pod.node == a && !pod.of_daemon_set && pod.how == How::InstanceStopped),
        "row 55: {killed:?}"
    );
    let violations = cluster.log().await?.violations;
    ensure!(violations.iter().any(|one| one.rule == Rule::PodKilled), "{violations:?}");
    let left = pods(&cluster).await?;
    ensure!(
        left.iter().any(|pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(&a)),
        "row 55: objects stay"
    );

    // Row 56: the last Node, cordoned, is not evicted; with an orphan that is not cordoned it is.
    let orphan = json!({ "metadata": { "name": "orphan" } });
    let api: Api<Node> = Api::all(cluster.user());
    api.create(&kube::api::PostParams::default(), &serde_json::from_value(orphan)?).await?;
    patch_node(&cluster, &b, cordon()).await?;
    let before = blocked().await?;
    scale(&cluster, "b", 0).await?;
    until("row 56: a refused eviction", async || Ok(blocked().await? > before)).await?;
    patch_node(&cluster, "orphan", cordon()).await?;
    until("row 56: all others are cordoned", async || Ok(cluster.machinery("Machine").await?.is_empty())).await
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_57_and_58_orphan_nodes_and_an_api_server_that_goes_away() -> Result<()> {
    let cluster = world().await?.kkp("orphans", KkpOptions::small()).await?;
    // A Machine that is deleted while its instance boots: the Node joins, and belongs to none.
    cluster.turn(&json!({ "joinLate": "1s", "terminate": "100s" })).await?;
    scale(&cluster, "a", 2).await?;
    until("a second instance", async || Ok(cluster.inspect().await?.cloud.instances.len() == 2)).await?;
    scale(&cluster, "a", 0).await?;
    eventually(SOON, "an orphan", async || {
        let (machines, nodes) = (cluster.machinery("Machine").await?, nodes(&cluster).await?);
        let instances = cluster.inspect().await?.cloud.instances.len();
        ensure!(
            machines.is_empty() && nodes.len() == 1 && instances == 0,
            "row 57: {} {} {instances}",
            machines.len(),
            nodes.len()
        );
        ensure!(!nodes[0].labels().contains_key("machine-controller/owned-by"), "row 57");
        Ok(())
    })
    .await?;
    let api: Api<Node> = Api::all(cluster.user());
    api.delete(&nodes(&cluster).await?[0].name_any(), &DeleteParams::default()).await?;

    // Row 58: the API server goes away in the middle, and machine-controller needs its lease anew.
    cluster.turn(&json!({ "joinLate": "0s" })).await?;
    scale(&cluster, "a", 1).await?;
    machines(&cluster, 1).await?;
    scale(&cluster, "a", 0).await?;
    until("a termination", async || {
        Ok(cluster.inspect().await?.cloud.instances.values().any(|one| one.terminating.is_some()))
    })
    .await?;
    cluster.turn(&json!({ "apiSilent": true })).await?;
    until("no instance", async || Ok(cluster.inspect().await?.cloud.instances.is_empty())).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    ensure!(
        cluster.machinery("Machine").await?.len() == 1 && nodes(&cluster).await?.len() == 1,
        "row 58: it does not act"
    );
    let begun = Instant::now();
    cluster.turn(&json!({ "apiSilent": false })).await?;
    machines(&cluster, 0).await?;
    ensure!(begun.elapsed() > Duration::from_millis(700), "row 58: without its lease");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_60_volumes_are_detached_only_while_the_driver_runs() -> Result<()> {
    let cluster = world().await?.kkp("volumes", KkpOptions { provider: "vsphere".to_owned(), ..busy() }).await?;
    let user = cluster.user();
    let attachments: Api<VolumeAttachment> = Api::all(user.clone());
    let attached = async || anyhow::Ok(attachments.list(&ListParams::default()).await?.items.len());
    ensure!(attached().await? == 1);
    for node in nodes(&cluster).await? {
        patch_node(&cluster, &node.name_any(), cordon()).await?;
        patch_node(&cluster, &node.name_any(), skip()).await?;
    }
    // The driver first: its new Pod stays Pending, and no volume is detached.
    for (namespace, label) in [("kube-system", "app=csi-controller"), ("shop", "app=db")] {
        let api: Api<Pod> = Api::namespaced(user.clone(), namespace);
        api.delete_collection(&DeleteParams::default(), &ListParams::default().labels(label)).await?;
        eventually(SOON, "an end with grace", async || {
            let ended = cluster.log().await?.pods;
            ensure!(
                ended
                    .iter()
                    .any(|pod| pod.pod.starts_with(namespace) && pod.how == How::Graceful && pod.deleted_at.is_some())
            );
            Ok(())
        })
        .await?;
    }
    scale(&cluster, "a", 0).await?;
    scale(&cluster, "b", 0).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    ensure!(attached().await? == 1, "row 60: no volume is detached");
    ensure!(cluster.machinery("Machine").await?.len() == 1, "row 60: on vSphere the Machine waits for its volume");
    let open = json!({ "spec": { "unschedulable": false } });
    for node in nodes(&cluster).await? {
        patch_node(&cluster, &node.name_any(), open.clone()).await?;
    }
    eventually(SOON, "an attachment of a Pod, or none", async || {
        let uncordoned = pods(&cluster).await?;
        ensure!(uncordoned.iter().any(|pod| pod.name_any().starts_with("csi-controller")
            && pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")));
        Ok(())
    })
    .await
}
