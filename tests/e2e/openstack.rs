//! A cluster on OpenStack's own services sleeps by images and wakes as it was: same addresses, tags, volumes; other IDs.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use http::Method;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};
use shared::spoke::kinds::MACHINE_NAMESPACE;
use testbed::cluster::machine::Machine;
use testbed::openstack::OpenStack;
use testbed::proxy::faults::{Effect, Rule};
use testbed::world::handle::Cluster;
use testbed::{ClusterOptions, Options, Platform, World};

use crate::hive_common::ledger_counts;

pub(crate) const SOON: Duration = Duration::from_mins(5);

/// The world of these tests.
pub(crate) async fn world() -> Result<World> {
    World::shared_with(Options { openstack: true, ..Options::shared() }).await
}

pub(crate) async fn cluster(world: &World, name: &str, size: usize) -> Result<(Cluster, OpenStack)> {
    let options = ClusterOptions { platform: Platform::OpenStack, ..ClusterOptions::of_size(size) };
    let cluster = world.cluster(name, options).await?;
    cluster.wait_for_power_state("Running", SOON).await?;
    Ok((cluster, world.openstack("demo").await?))
}

/// What must be the same after a wake: everything that Nova and Neutron say of the servers but IDs, images and times.
pub(crate) async fn likeness(openstack: &OpenStack, infra_id: &str) -> Result<Vec<Value>> {
    let ports = openstack.network(Method::GET, "/ports", None).await?;
    let floating = openstack.network(Method::GET, "/floatingips", None).await?;
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut all = Vec::new();
    for mut server in openstack.servers(infra_id).await? {
        let id = server["id"].clone();
        let path = format!("/servers/{}", id.as_str().unwrap_or_default());
        let alone = openstack.compute(Method::GET, &path, None).await?["server"].clone();
        server["server_groups"] = alone["server_groups"].clone();
        let path = format!("/servers/{}/os-volume_attachments", id.as_str().unwrap_or_default());
        let mut volumes = list(&openstack.compute(Method::GET, &path, None).await?["volumeAttachments"]);
        let mut own: Vec<Value> = list(&ports["ports"]).into_iter().filter(|port| port["device_id"] == id).collect();
        for port in &mut own {
            let of_port = list(&floating["floatingips"]).into_iter().filter(|ip| ip["port_id"] == port["id"]);
            let addresses: Vec<Value> = of_port.map(|ip| ip["floating_ip_address"].clone()).collect();
            // A port of Nova's own is made again, and tagged for the destroyer of the cluster.
            let is_named = port["name"] != "";
            without(port, &["device_id", "created_at", "updated_at", "revision_number"]);
            if !is_named {
                without(port, &["id", "tags", "device_owner"]);
            }
            port["floating"] = json!(addresses);
        }
        own.sort_by_key(|port| port["mac_address"].to_string());
        for volume in &mut volumes {
            without(volume, &["id", "serverId", "attachment_id", "bdm_uuid"]);
        }
        let groups = list(&server["security_groups"]);
        let mut groups: Vec<String> = groups.iter().map(ToString::to_string).collect();
        groups.sort();
        without(
            &mut server,
            &["id", "links", "created", "updated", "OS-SRV-USG:launched_at", "image", "security_groups"],
        );
        all.push(json!({"server": server, "ports": own, "volumes": volumes, "groups": groups}));
    }
    Ok(all)
}

fn without(object: &mut Value, fields: &[&str]) {
    if let Some(object) = object.as_object_mut() {
        object.retain(|key, _| !fields.contains(&key.as_str()));
    }
}

pub(crate) async fn record(world: &World, cluster: &Cluster) -> Result<Option<Secret>> {
    let secrets: Api<Secret> = Api::namespaced(world.hub().await?, cluster.namespace());
    Ok(secrets.get_opt(&format!("{}-hibernation-config", cluster.name())).await?)
}

/// Waits until OpenStack's services say so, which costs them more than other parts of a world.
pub(crate) async fn observed<T, F>(what: &str, probe: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    testbed::eventually_every(Duration::from_secs(1), SOON, what, probe).await
}

/// Waits until nothing of a wake is left: no image, no mark, no Secret.
pub(crate) async fn clean(world: &World, cluster: &Cluster, openstack: &OpenStack) -> Result<()> {
    let infra_id = &cluster.info().infra_id;
    observed("no image, mark or Secret", async || {
        ensure!(openstack.images(infra_id).await?.is_empty(), "images");
        ensure!(record(world, cluster).await?.is_none(), "the Secret");
        let servers = openstack.servers(infra_id).await?;
        ensure!(servers.iter().all(|server| server["metadata"]["hibernate.sh:cycle"].is_null()), "a mark");
        Ok(())
    })
    .await
}

/// Every Machine of the cluster names a server that exists, and none has been given up.
async fn machines_follow(cluster: &Cluster, openstack: &OpenStack) -> Result<()> {
    let machines: Api<Machine> = Api::namespaced(cluster.spoke().await?, MACHINE_NAMESPACE);
    let servers = openstack.servers(&cluster.info().infra_id).await?;
    let machines = machines.list(&ListParams::default()).await?.items;
    ensure!(machines.len() == servers.len(), "{machines:?}");
    for machine in machines {
        let machine = json!(machine);
        let server = servers.iter().find(|server| server["name"] == machine["metadata"]["name"]);
        let id = server.and_then(|server| server["id"].as_str()).context("a server")?;
        ensure!(machine["spec"]["providerID"] == format!("openstack:///{id}"), "{machine:#}");
        ensure!(machine["metadata"]["annotations"]["openstack-resourceId"] == id, "{machine:#}");
        ensure!(machine["status"]["phase"] == "Running", "{machine:#}");
    }
    Ok(())
}

/// Six servers: three of the control plane in a server group, a floating IP, a volume, and a port that Nova has made.
#[tokio::test]
async fn a_cluster_wakes_as_it_was() -> Result<()> {
    let world = world().await?;
    let (cluster, openstack) = cluster(&world, "six", 6).await?;
    let infra_id = cluster.info().infra_id.clone();
    let before = likeness(&openstack, &infra_id).await?;
    let mut counters = Vec::new();
    for service in ["nova", "neutron", "glance"] {
        let counter = Rule::new(Effect::Delay { millis: 0 }).user_agent("hibernate-controller/");
        counters.push((service, world.inject(service, &counter).await?.id));
    }
    let begun = Instant::now();
    world.kubectl(&["hibernate", cluster.name(), "-n", cluster.namespace()]).await?.ok()?;
    cluster.wait_for_power_state("Hibernating", SOON).await?;
    eprintln!("asleep after {:?}", begun.elapsed());
    ensure!(openstack.servers(&infra_id).await?.is_empty());
    let images = openstack.images(&infra_id).await?;
    ensure!(images.len() == 6 && images.iter().all(|image| image["status"] == "active"), "{images:?}");
    let secret = record(&world, &cluster).await?.context("the record")?;
    let owners = secret.metadata.owner_references.unwrap_or_default();
    ensure!(owners.len() == 1 && Some(&owners[0].uid) == cluster.get().await?.metadata.uid.as_ref(), "{owners:?}");
    for (service, id) in &counters {
        eprintln!("{service}: {} calls", world.hits(service, id).await?);
    }
    // The ledger counts whole seconds.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let begun = Instant::now();
    cluster.wake().await?;
    cluster.wait_for_power_state("Running", SOON).await?;
    eprintln!("awake after {:?}", begun.elapsed());
    for (service, id) in &counters {
        eprintln!("{service}: {} calls", world.hits(service, id).await?);
    }
    clean(&world, &cluster, &openstack).await?;
    ledger_counts(&world, &cluster, 6, "m1.small").await?;
    let after = likeness(&openstack, &infra_id).await?;
    for (before, after) in before.iter().zip(&after) {
        ensure!(before == after, "before:\n{before:#}\nafter:\n{after:#}");
    }
    ensure!(before.len() == after.len());
    observed("Machines that run", async || machines_follow(&cluster, &openstack).await).await?;
    let events = world.kubectl(&["get", "events", "-n", cluster.namespace()]).await?.ok()?;
    ensure!(events.contains("NodesNameOldServers"), "{events}");
    Ok(())
}
