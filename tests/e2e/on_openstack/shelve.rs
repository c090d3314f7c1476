//! Sleep by shelving: the servers keep their IDs. A changed mode counts from the next sleep.

use anyhow::{Result, ensure};
use http::Method;
use serde_json::{Value, json};
use shared::annotation::keys::OPENSTACK_MODE;

use super::faults::Subject;
use crate::openstack::{clean, likeness, record};

/// A worker with etcd's kind of disk. Answers its path.
async fn with_ephemeral_disk(subject: &Subject) -> Result<String> {
    let (openstack, infra_id) = (&subject.openstack, &subject.cluster.info().infra_id);
    let admin = subject.world.openstack("admin").await?;
    let flavor = json!({"name": "m1.etcd", "ram": 64, "vcpus": 1, "disk": 1, "OS-FLV-EXT-DATA:ephemeral": 1});
    let flavor =
        admin.compute(Method::POST, "/flavors", Some(json!({"flavor": flavor}))).await?["flavor"]["id"].clone();
    let image = openstack.call("image", Method::GET, "/v2/images?name=rhcos", None).await?["images"][0]["id"].clone();
    let server = json!({
        "name": format!("{infra_id}-worker-9"), "imageRef": image, "flavorRef": flavor, "networks": "none",
        "metadata": {"openshiftClusterID": infra_id},
    });
    let made = openstack.compute(Method::POST, "/servers", Some(json!({"server": server}))).await?;
    subject.are(&["ACTIVE", "ACTIVE", "ACTIVE"]).await?;
    Ok(format!("/servers/{}", made["server"]["id"].as_str().unwrap_or_default()))
}

#[tokio::test]
async fn a_shelved_cluster_keeps_its_servers_and_a_changed_mode_counts_from_the_next_sleep() -> Result<()> {
    let subject = Subject::new("shelve").await?;
    let (cluster, openstack) = (&subject.cluster, &subject.openstack);
    let infra_id = cluster.info().infra_id.clone();
    let mode =
        async |mode: &str| cluster.patch(&json!({"metadata": {"annotations": {OPENSTACK_MODE: mode}}})).await.map(drop);
    let ids = async || {
        let servers = openstack.servers(&infra_id).await?;
        anyhow::Ok(servers.iter().map(|server| server["id"].clone()).collect::<Vec<Value>>())
    };
    // They count as asleep while Nova takes them off their hypervisors.
    let offloaded = async || subject.are(&["SHELVED_OFFLOADED", "SHELVED_OFFLOADED"]).await;
    let (before, old) = (likeness(openstack, &infra_id).await?, ids().await?);

    mode("shelf").await?;
    cluster.sleep().await?;
    subject.says(&[OPENSTACK_MODE, "\"shelf\"", "snapshot or shelve"]).await?;
    ensure!(subject.statuses().await? == ["ACTIVE", "ACTIVE"]);

    // Nova would make its disk anew, and empty.
    let ephemeral = with_ephemeral_disk(&subject).await?;
    mode("shelve").await?;
    subject.says(&["-worker-9: EphemeralDisk: its flavor has an ephemeral disk"]).await?;
    let plan = subject.plan().await?;
    ensure!(plan.contains("CannotSleep") && plan.contains("EphemeralDisk"), "{plan}");
    ensure!(subject.statuses().await? == ["ACTIVE", "ACTIVE", "ACTIVE"], "nothing is touched");
    openstack.compute(Method::DELETE, &ephemeral, None).await?;
    subject.asleep().await?;
    offloaded().await?;
    ensure!(record(&subject.world, cluster).await?.is_none() && openstack.images(&infra_id).await?.is_empty());

    // No host takes a shelved server: that is named, and tried again.
    mode("snapshot").await?;
    let admin = subject.world.openstack("admin").await?;
    let services = admin.compute(Method::GET, "/os-services?binary=nova-compute", None).await?;
    let host = format!("/os-services/{}", services["services"][0]["id"].as_str().unwrap_or_default());
    admin.compute(Method::PUT, &host, Some(json!({"status": "disabled"}))).await?;
    cluster.wake().await?;
    subject.says(&["-master-0", "Nova has given up its last unshelve"]).await?;
    admin.compute(Method::PUT, &host, Some(json!({"status": "enabled"}))).await?;
    subject.awake().await?;
    let after = likeness(openstack, &infra_id).await?;
    ensure!(ids().await? == old, "the same servers");
    ensure!(before == after, "before:\n{:#}\nafter:\n{:#}", json!(before), json!(after));

    subject.asleep().await?;
    ensure!(openstack.images(&infra_id).await?.len() == 2, "by snapshot");
    mode("shelve").await?;
    subject.awake().await?;
    clean(&subject.world, cluster, openstack).await?;
    subject.asleep().await?;
    offloaded().await?;
    subject.awake().await
}
