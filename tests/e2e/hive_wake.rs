//! Wakes that need more than patience, by the whole controller: kubelets that have lost their certificates, and spot
//! Machines whose instances went with the sleep.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt};
use rcgen::KeyPair;
use shared::spoke::kinds::MACHINE_NAMESPACE;
use testbed::cluster::certificates::{self, BOOTSTRAPPER, BOOTSTRAPPER_NAMESPACE};
use testbed::cluster::machine::Machine;
use testbed::cluster::machines;
use testbed::ec2::NewInstance;
use testbed::{ClusterOptions, Options, Timings, World, ensure_that, eventually, kubeconfig};

use crate::hive_common::events;

const SOON: Duration = Duration::from_mins(1);

#[tokio::test]
async fn kubelets_without_certificates_get_new_ones_and_the_cluster_wakes() -> Result<()> {
    let world = World::shared().await?;
    let options = ClusterOptions { certificates: true, ..ClusterOptions::of_size(4) };
    let cluster = world.cluster("rusty", options.asleep()).await?;
    cluster.wait_for_power_state("Hibernating", SOON).await?;
    let spoke = cluster.spoke().await?;
    let nodes: Vec<String> = cluster.instances().await?.into_iter().map(|instance| instance.private_dns).collect();

    cluster.wake().await?;
    // Running Nodes first get the time to show that they need no certificate.
    cluster.wait_for_power_state("Running", Duration::from_mins(4)).await?;
    // The requests for serving certificates come when a kubelet is up, so some of them after the wake.
    let requests: Api<CertificateSigningRequest> = Api::all(spoke);
    eventually(SOON, "two certificates for each kubelet", async || {
        let mut issued = requests.list(&ListParams::default()).await?.items;
        issued.retain(|request| request.status.as_ref().is_some_and(|status| status.certificate.is_some()));
        let serving = nodes.iter().filter(|node| {
            let user = format!("system:node:{node}");
            issued.iter().any(|request| request.spec.username.as_deref() == Some(&user))
        });
        let serving = serving.count();
        ensure!((serving, issued.len()) == (nodes.len(), 2 * nodes.len()), "{serving} of {}", issued.len());
        Ok(())
    })
    .await?;
    let noted = events(&world, &cluster).await?;
    ensure!(noted.contains_key("CertificatesApproved"), "{noted:?}");
    cluster.remove().await
}

/// Root on a worker has the bootstrap token, which is on its disk. It asks in the names of the masters as soon as their
/// API server answers, before their kubelets have renewed their Leases.
#[tokio::test]
async fn a_stolen_bootstrap_token_gets_no_masters_certificate_after_a_short_sleep() -> Result<()> {
    let timings = Timings { node_ready_delay: "5s".parse()?, ..Timings::fast() };
    let world = World::up(Options { clusters: 0, timings, ..Options::default() }).await?;
    let cluster = world.cluster("napping", ClusterOptions::of_size(4)).await?;
    let (spoke, info) = (cluster.spoke().await?, cluster.info().clone());
    let instances = cluster.instances().await?;
    machines::create(&spoke, &info.infra_id, &instances).await?;
    cluster.wait_for_power_state("Running", SOON).await?;
    cluster.sleep().await?;
    cluster.wait_for_power_state("Hibernating", SOON).await?;

    cluster.wake().await?;
    let user = format!("system:serviceaccount:{BOOTSTRAPPER_NAMESPACE}:{BOOTSTRAPPER}");
    let groups = ["system:serviceaccounts", &format!("system:serviceaccounts:{BOOTSTRAPPER_NAMESPACE}")];
    let thief = kubeconfig::client_as(&world.file().spokes[info.spoke].kubeconfig, &user, &groups).await?;
    let mut asked = Vec::new();
    for master in instances.iter().filter(|instance| instance.is_master()) {
        let (name, key) = (format!("system:node:{}", master.private_dns), KeyPair::generate()?);
        let request = certificates::request(&name, &["system:nodes"], Vec::new(), &key)?;
        let (signer, usages) = ("kubernetes.io/kube-apiserver-client-kubelet", ["digital signature", "client auth"]);
        asked.push(certificates::create(&thief, &info.infra_id, signer, &usages, &request).await?);
    }
    cluster.wait_for_power_state("Running", SOON).await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let requests: Api<CertificateSigningRequest> = Api::all(spoke.clone());
    for name in &asked {
        let status = requests.get(name).await?.status.unwrap_or_default();
        ensure!(status.conditions.is_none() && status.certificate.is_none(), "{name}: {status:?}");
    }
    let noted = events(&world, &cluster).await?;
    let detail = noted.get("CertificatesNotApproved").with_context(|| format!("{noted:?}"))?;
    ensure!(asked.iter().all(|name| detail.contains(name)), "{detail}");
    machines::remove(&spoke, &info.infra_id).await?;
    cluster.remove().await
}

#[tokio::test]
async fn a_spot_machine_whose_instance_is_gone_is_made_anew_and_no_other() -> Result<()> {
    let world = World::shared().await?;
    let options = ClusterOptions { control_plane: 1, workers: 2, spot_workers: 1, ..ClusterOptions::default() };
    let cluster = world.cluster("thrifty", options).await?;
    let spoke = cluster.spoke().await?;
    let infra_id = cluster.info().infra_id.clone();
    machines::create(&spoke, &infra_id, &cluster.instances().await?).await?;
    let machines: Api<Machine> = Api::namespaced(spoke.clone(), MACHINE_NAMESPACE);
    let list = async || -> Result<BTreeMap<String, String>> {
        let found = machines.list(&ListParams::default()).await?.items;
        let ours = found.into_iter().filter(|machine| machine.name_any().starts_with(&infra_id));
        Ok(ours.map(|machine| (machine.name_any(), machine.uid().unwrap_or_default())).collect())
    };
    let before = list().await?;
    let lost = format!("{infra_id}-worker-0");
    ensure!(before.len() == 3 && before.contains_key(&lost), "{before:?}");
    cluster.wait_for_power_state("Running", SOON).await?;
    let node = cluster.instances().await?.into_iter().find(|i| i.tags.get("Name") == Some(&lost)).context("spot")?;

    cluster.sleep().await?;
    cluster.wait_for_power_state("Hibernating", SOON).await?;
    cluster.wake().await?;
    eventually(SOON, "the Machine that lost its instance deleted", async || {
        ensure_that(list().await?, |left| !left.contains_key(&lost))
    })
    .await?;
    // What the cluster's own machine API does then.
    Api::<Node>::all(spoke.clone()).delete(&node.private_dns, &DeleteParams::default()).await?;
    let (account, region) = (&cluster.info().account, &cluster.info().region);
    let again = NewInstance {
        name: format!("{infra_id}-worker-again"),
        spot: Some("one-time".to_owned()),
        ..NewInstance::default()
    };
    let made = world.ec2().create(account, region, &infra_id, &[again]).await?;
    machines::create(&spoke, &infra_id, &made).await?;

    cluster.wait_for_power_state("Running", SOON).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let mut after = list().await?;
    let new = after.remove(&format!("{infra_id}-worker-again"));
    ensure!(new.is_some(), "the new one stays: {after:?}");
    let kept = before.into_iter().filter(|(name, _)| *name != lost).collect();
    assert_eq!(after, kept, "the others are the same as before");
    let noted = events(&world, &cluster).await?;
    let detail = noted.get("SpotMachinesReplaced").with_context(|| format!("{noted:?}"))?;
    ensure!(detail.contains(&lost), "{detail}");
    for state in ["Stopping", "Hibernating", "StartingMachines", "Running"] {
        ensure!(noted.contains_key(state), "an Event for each new power state: {noted:?}");
    }
    machines::remove(&spoke, &infra_id).await?;
    cluster.remove().await
}
