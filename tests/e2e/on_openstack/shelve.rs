//! Sleep by shelving: the servers keep their IDs. A changed mode counts from the next sleep.

use anyhow::{Result, ensure};
use http::Method;
use serde_json::{Value, json};
use shared::annotation::keys::OPENSTACK_MODE;

use super::faults::Subject;
use crate::openstack::{clean, likeness, record};

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
    mode("shelve").await?;
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
