//! What speaks for a cluster follows its instances: whoever is off is silent, and comes back with fresh signs of life.
#![allow(clippy::unwrap_used, clippy::panic)] // a helper of a test is part of the test

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use testbed::cluster::operators;
use testbed::ec2::Instance;
use testbed::{Cluster, ClusterOptions, Options, Timings, World, eventually};

const SOON: Duration = Duration::from_mins(1);

/// A world with a cluster of three control plane machines and a worker, and what its API server says of them.
struct Subject {
    world: World,
    cluster: Cluster,
    client: Client,
}

impl Subject {
    async fn new(name: &str) -> Self {
        let options = Options { clusters: 0, timings: Timings::fast(), ..Options::without_programs() };
        let world = World::shared_with(options).await.unwrap();
        let cluster = world.cluster(name, ClusterOptions::of_size(4)).await.unwrap();
        let client = cluster.spoke().await.unwrap();
        Self { world, cluster, client }
    }

    async fn instances(&self, masters: bool) -> Vec<Instance> {
        let all = self.cluster.instances().await.unwrap().into_iter();
        all.filter(|instance| instance.is_master() == masters).collect()
    }

    async fn turn(&self, instances: &[Instance], state: &str) {
        for instance in instances {
            self.world.ec2().set_state(&instance.id, state).await.unwrap();
        }
    }

    async fn answers(&self, wanted: bool) {
        eventually(SOON, "change of the gate", async || {
            ensure!(self.client.apiserver_version().await.is_ok() == wanted);
            Ok(())
        })
        .await
        .unwrap();
    }

    /// When each Lease of a namespace was renewed, past the gate.
    async fn renewals(&self, namespace: &str) -> Result<BTreeMap<String, Timestamp>> {
        let ours =
            ListParams::default().labels(&format!("{}={}", testbed::cluster::LABEL, self.cluster.info().infra_id));
        let leases: Api<Lease> = Api::namespaced(self.world.spoke(0).await?, namespace);
        let renewed = |lease: Lease| Some((lease.name_any(), lease.spec?.renew_time?.0));
        Ok(leases.list(&ours).await?.items.into_iter().filter_map(renewed).collect())
    }

    /// Waits until each of so many Leases has been renewed once more.
    async fn renewed(&self, namespace: &str, count: usize) {
        let before = self.renewals(namespace).await.unwrap();
        eventually(SOON, "renewal of every Lease", async || {
            let now = self.renewals(namespace).await?;
            let is_new = |(name, at): (&String, &Timestamp)| before.get(name).is_none_or(|before| at > before);
            ensure!(now.len() == count && now.iter().all(is_new), "{before:?} {now:?}");
            Ok(())
        })
        .await
        .unwrap();
    }
}

const NODES: &str = "kube-node-lease";

#[tokio::test(flavor = "multi_thread")]
async fn nodes_go_silent_and_come_back_fresh() {
    let subject = Subject::new("silent").await;
    subject.renewed(NODES, 4).await;
    let workers = subject.instances(false).await;
    subject.turn(&workers, "stopped").await;
    tokio::time::sleep(Duration::from_secs(1)).await; // what was already on its way
    let silent = subject.renewals(NODES).await.unwrap();
    eventually(SOON, "renewal of every other Lease", async || {
        let now = subject.renewals(NODES).await?;
        let mut others = now.iter().filter(|(name, _)| **name != workers[0].private_dns);
        ensure!(others.all(|(name, renewed)| *renewed > silent[name]), "{silent:?} {now:?}");
        Ok(())
    })
    .await
    .unwrap();
    let now = subject.renewals(NODES).await.unwrap();
    assert_eq!(now[&workers[0].private_dns], silent[&workers[0].private_dns]);
    let node = Api::<Node>::all(subject.client.clone()).get(&workers[0].private_dns).await.unwrap();
    let conditions = node.status.unwrap().conditions.unwrap();
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready").unwrap();
    assert_eq!(ready.status, "True", "it stays as it was until the controller manager notices");
    subject.turn(&workers, "running").await;
    subject.renewed(NODES, 4).await;
    subject.cluster.remove().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_majority_of_the_control_plane_nothing_answers_and_no_operator_renews_its_lease() {
    let subject = Subject::new("majority").await;
    subject.answers(true).await;
    let namespace = operators::namespace("dns");
    subject.renewed(&namespace, 1).await;
    let masters = subject.instances(true).await;
    subject.turn(&masters[..1], "stopped").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    subject.answers(true).await;
    subject.turn(&masters[1..2], "stopped").await;
    subject.answers(false).await;
    let address = subject.cluster.info().gate.trim_start_matches("https://").to_owned();
    let refused = tokio::net::TcpStream::connect(address).await.unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    tokio::time::sleep(Duration::from_secs(1)).await; // what was already on its way
    let asleep = subject.renewals(&namespace).await.unwrap();
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(subject.renewals(&namespace).await.unwrap(), asleep, "an operator that is off renewed its Lease");
    subject.turn(&masters[1..2], "running").await;
    subject.answers(true).await;
    subject.renewed(&namespace, 1).await;
    subject.cluster.remove().await.unwrap();
}
