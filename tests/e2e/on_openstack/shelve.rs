//! Sleep by shelving: the servers keep their IDs. A changed mode counts from the next sleep.

use anyhow::{Result, ensure};
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
    let (before, old) = (likeness(openstack, &infra_id).await?, ids().await?);

    mode("shelf").await?;
    cluster.sleep().await?;
    subject.says(&[OPENSTACK_MODE, "\"shelf\"", "snapshot or shelve"]).await?;
    ensure!(subject.statuses().await? == ["ACTIVE", "ACTIVE"]);
    mode("shelve").await?;
    subject.asleep().await?;
    ensure!(subject.statuses().await? == ["SHELVED_OFFLOADED", "SHELVED_OFFLOADED"]);
    ensure!(record(&subject.world, cluster).await?.is_none() && openstack.images(&infra_id).await?.is_empty());
    mode("snapshot").await?;
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
    ensure!(subject.statuses().await? == ["SHELVED_OFFLOADED", "SHELVED_OFFLOADED"]);
    subject.awake().await
}
