//! The largest objects that one tenant can write on the hub, in the smallest parts: `ClusterDeployments`, and what the owners
//! of policies and the agents of managed clusters write.

use std::time::Duration;

use anyhow::Result;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use testbed::bench::table::Table;
use testbed::supervisor::programs::Start;
use testbed::world::copy;
use testbed::{Options, Program, Timings, World, apply, foreign};

use crate::clouds::{NAMESPACE, begins};
use crate::{honest, measured, peak};

/// `ClusterDeployments` of one tenant, and objects of governance of each kind. An API server takes about 250 MB for each: more
/// do not fit into 24 GB beside it.
const CLUSTERS: usize = 30;
const GOVERNED: usize = 15;
/// Bytes of each: what etcd takes.
const BYTES: usize = 1_400_000;
/// By then all kinds are listed.
const LISTED: Duration = Duration::from_secs(20);

/// `ClusterDeployments` of one tenant, whose platform has 115,000 data sources.
pub async fn large_clusters(table: &mut Table) -> Result<()> {
    let world = World::up(Options { clusters: 0, timings: Timings::fast(), ..Options::default() }).await?;
    let honest = honest(&world).await?;
    let (calm_start, model) = begins(&world, &honest).await?;
    let calm = measured(&world, "controller").await?;
    copy::namespace(&world.hub().await?, NAMESPACE).await?;
    write_clusters(&world, model, CLUSTERS).await?;
    let (attacked_start, _) = begins(&world, &honest).await?;
    // A new leader lists them all.
    world.signal("controller", "restart").await?;
    let (restarted_start, _) = begins(&world, &honest).await?;
    let attacked = peak(&world, "controller").await?;
    table.add("objects", "s until another tenant's sleep reaches EC2, none hostile", None, None, calm_start);
    table.add(
        "objects",
        "s until another tenant's sleep reaches EC2, 30 large objects",
        None,
        Some(2.0),
        attacked_start,
    );
    table.add("objects", "the same after a restart, start and list included", None, None, restarted_start);
    table.add("objects", "controller's peak MB, none hostile", None, None, calm);
    table.add("objects", "controller's peak MB, 30 large objects", None, None, attacked);
    table.add("objects", "MB over the same without", None, Some(96.0), attacked - calm);
    Ok(())
}

/// Policies and views of 1.4 MB at the first list of a controller with `--cgu`.
pub async fn large_governance(table: &mut Table) -> Result<()> {
    let world = World::up(Options::bare_hub()).await?;
    define_governance(&world).await?;
    copy::namespace(&world.hub().await?, NAMESPACE).await?;
    let calm = started(&world).await?;
    write_governance(&world, GOVERNED).await?;
    let attacked = started(&world).await?;
    table.add("governance", "controller's peak MB on an empty hub", None, None, calm);
    table.add("governance", "controller's peak MB", None, None, attacked);
    table.add("governance", "MB over the same without", None, Some(96.0), attacked - calm);
    Ok(())
}

/// Writes `ClusterDeployments` of the tenant, like this one but for their platform.
pub async fn write_clusters(world: &World, mut model: Value, count: usize) -> Result<()> {
    let sources = vec![json!({ "uuid": "" }); BYTES / 12];
    model["spec"]["platform"] = json!({ "nutanix": { "failureDomains": [{ "dataSourceImages": sources }] } });
    let large = (0..count).map(|number| {
        let mut object = model.clone();
        object["metadata"] = json!({ "name": format!("large-{number}"), "namespace": NAMESPACE });
        object["spec"]["powerState"] = json!("Running");
        object
    });
    create(world, ["hive.openshift.io", "v1", "ClusterDeployment", "clusterdeployments"], large).await
}

/// Defines the kinds that a controller with `--cgu` reads.
pub async fn define_governance(world: &World) -> Result<()> {
    let definitions = [manifests::cgu_definitions(), foreign::of_governance(), manifests::upgrades()].concat();
    apply::all(&world.hub().await?, &definitions).await
}

/// Writes as many policies and views of the tenant.
pub async fn write_governance(world: &World, count: usize) -> Result<()> {
    let numbers = || (0..count).map(|number| json!({ "name": format!("large-{number}"), "namespace": NAMESPACE }));
    let parts = vec![json!({ "a": 0 }); BYTES / 8];
    let policies = numbers().map(|metadata| {
        let template =
            json!([{ "objectDefinition": { "metadata": { "name": "a" }, "spec": { "object-templates": parts } } }]);
        json!({ "metadata": metadata, "spec": { "disabled": false, "policy-templates": template } })
    });
    create(world, ["policy.open-cluster-management.io", "v1", "Policy", "policies"], policies).await?;
    let views = numbers().map(|mut metadata| {
        metadata["labels"] = json!({ "openshift-cluster-group-upgrades/clusterGroupUpgrade": "a" });
        json!({ "metadata": metadata, "spec": { "scope": { "resource": "jobs" } }, "status": { "result": parts } })
    });
    let kind = ["view.open-cluster-management.io", "v1beta1", "ManagedClusterView", "managedclusterviews"];
    create(world, kind, views).await
}

/// Starts a controller, lets it list everything, and ends it: its peak in MB.
async fn started(world: &World) -> Result<f64> {
    start(world).await?;
    tokio::time::sleep(LISTED).await;
    let peak = peak(world, "controller").await?;
    world.signal("controller", "stop").await?;
    Ok(peak)
}

/// Starts a controller with `--cgu`, and waits until it is ready.
pub async fn start(world: &World) -> Result<()> {
    let args = ["--cgu", "--cgu-talm-namespace", "default"].map(str::to_owned).into();
    world.start(&Start { args, ..Start::new(Program::Controller) }).await?;
    Ok(())
}

async fn create(
    world: &World,
    [group, version, kind, plural]: [&str; 4],
    objects: impl Iterator<Item = Value>,
) -> Result<()> {
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
    let api: Api<DynamicObject> = Api::namespaced_with(world.hub().await?, NAMESPACE, &resource);
    let one = |mut object: Value| {
        let api = api.clone();
        object["apiVersion"] = json!(format!("{group}/{version}"));
        object["kind"] = json!(kind);
        async move {
            api.create(&PostParams::default(), &serde_json::from_value(object)?).await.map_err(anyhow::Error::from)
        }
    };
    stream::iter(objects).map(one).buffer_unordered(2).try_for_each(async |_| Ok(())).await
}
