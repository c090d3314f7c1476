//! The kubelets of a cluster, as seen from its API server: a Node and a Lease per instance, renewed while it runs.
//!
//! A kubelet that is off says nothing: its Node stays as it was (Ready, with an old heartbeat) until the spoke's real
//! controller manager calls it Unknown. After a start it takes boot and ready delay until its Lease and its heartbeat
//! move, and it can only speak while its cluster's API server answers.
//!
//! It speaks as the spoke's administrator, or as itself where kubelets have certificates: then it is silent after each
//! start until its request for one has been approved.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use shared::annotation::format;
use tokio::sync::watch;

use super::LABEL;
use super::certificates::{Issuance, Wallet};
use super::objects::days_ago;
use super::operators::micros;
use crate::apply::{self, MANAGER};
use crate::ec2::Instance;
use crate::ec2::client::Snapshot;
use crate::supervisor::clock::Clock;
use crate::world::helpers::eventually;

/// Plays the kubelets of one cluster. Runs until it is aborted.
///
/// `client` writes as the spoke's administrator. With an `issuance`, that is only for kubelets which have been up from
/// the beginning: a kubelet that starts later needs its own certificate.
pub async fn play(
    client: Client,
    infra_id: String,
    issuance: Option<Issuance>,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    api_up: watch::Receiver<bool>,
    clock: Clock,
) {
    let began = Clock::now();
    let mut kubelets: HashMap<String, Kubelet> = HashMap::new();
    loop {
        let snapshot = snapshots.borrow().clone();
        let instances = snapshot.of(&infra_id);
        for instance in &instances {
            kubelets.entry(instance.id.clone()).or_insert_with(|| {
                let wallet = |issuance| Wallet::new(issuance, &infra_id, &instance.private_dns, &instance.private_ip);
                Kubelet {
                    wallet: issuance.clone().map(wallet),
                    began,
                    ..Kubelet::new(client.clone(), &infra_id, instance)
                }
            });
        }
        let up = *api_up.borrow();
        let turns = kubelets.values_mut().filter_map(|kubelet| {
            let instance = instances.iter().find(|instance| instance.id == kubelet.id)?;
            Some(kubelet.turn(instance, up, &clock))
        });
        for result in join_all(turns).await {
            if let Err(error) = result {
                tracing::warn!(cluster = infra_id, "{error:#}");
            }
        }
        clock.tick().await;
    }
}

/// One kubelet.
struct Kubelet {
    client: Client,
    id: String,
    infra_id: String,
    name: String,
    /// Where kubelets have certificates: its own.
    wallet: Option<Wallet>,
    /// Since when the cluster is played, seconds since 1970. Who is up since before that has a certificate from better
    /// days.
    began: f64,
    /// The boot that it last spoke in, by the moment its instance began to run.
    boot: Option<f64>,
    /// Since when its Node is Ready, as it last wrote.
    ready_since: String,
    leased: Instant,
    reported: Instant,
}

impl Kubelet {
    fn new(client: Client, infra_id: &str, instance: &Instance) -> Self {
        Self {
            client,
            id: instance.id.clone(),
            infra_id: infra_id.to_owned(),
            name: instance.private_dns.clone(),
            wallet: None,
            began: 0.0,
            boot: None,
            ready_since: String::new(),
            leased: Instant::now(),
            reported: Instant::now(),
        }
    }

    /// Does what is due.
    async fn turn(&mut self, instance: &Instance, api_up: bool, clock: &Clock) -> Result<()> {
        let timings = clock.timings();
        let needed = timings.boot_delay.as_secs_f64() + timings.node_ready_delay.as_secs_f64();
        let ready = instance.running_for(Clock::now()).is_some_and(|seconds| seconds >= needed);
        if !ready || !api_up {
            return Ok(());
        }
        if self.boot != Some(instance.since) {
            let wallet = self.wallet.as_mut().filter(|_| instance.since > self.began);
            let boots_bare = wallet.is_some();
            if let Some(wallet) = wallet {
                match wallet.client(instance.since).await? {
                    Some(client) => self.client = client,
                    None => return Ok(()),
                }
            }
            self.ready_since = self.register(instance).await?;
            self.report(&Clock::text()).await?;
            self.lease().await?;
            self.boot = Some(instance.since);
            if let Some(wallet) = self.wallet.as_ref().filter(|_| boots_bare) {
                wallet.ask_for_serving(&self.client).await?;
            }
            return Ok(());
        }
        if self.leased.elapsed() >= timings.lease_period.0 {
            self.renew().await?;
        }
        if self.reported.elapsed() >= timings.status_period.0 {
            self.report(&Clock::text()).await?;
        }
        Ok(())
    }

    /// Makes sure that the Node exists, and answers since when it will be Ready: as before, if it never was anything
    /// else.
    async fn register(&self, instance: &Instance) -> Result<String> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let found = nodes.get_opt(&self.name).await.with_context(|| format!("read Node {}", self.name))?;
        let Some(node) = found else {
            apply::all(&self.client, &[self.node(instance)]).await?;
            return Ok(Clock::text());
        };
        let ready = node
            .status
            .and_then(|status| status.conditions)
            .unwrap_or_default()
            .into_iter()
            .find(|c| c.type_ == "Ready");
        let kept =
            ready.filter(|condition| condition.status == "True").and_then(|condition| condition.last_transition_time);
        Ok(kept.map_or_else(Clock::text, |time| format::seconds(time.0)))
    }

    /// A status heartbeat.
    async fn report(&mut self, now: &str) -> Result<()> {
        let condition = |type_: &str, status: &str, reason: &str, message: &str| {
            json!({
                "type": type_, "status": status, "reason": reason, "message": message,
                "lastHeartbeatTime": now, "lastTransitionTime": self.ready_since,
            })
        };
        let status = json!({"status": {"conditions": [
            condition("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
            condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
            condition("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
            condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
        ]}});
        let nodes: Api<Node> = Api::all(self.client.clone());
        let written = nodes.patch_status(&self.name, &PatchParams::default(), &Patch::Strategic(&status)).await;
        written.with_context(|| format!("report the status of Node {}", self.name))?;
        self.reported = Instant::now();
        Ok(())
    }

    /// Takes the Lease, which there may not be yet.
    async fn lease(&mut self) -> Result<()> {
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self.name, "namespace": "kube-node-lease", "labels": {LABEL: self.infra_id}},
            "spec": {
                "holderIdentity": self.name,
                "leaseDurationSeconds": 40,
                "renewTime": micros(Timestamp::now()),
            },
        });
        self.write_lease(&PatchParams::apply(MANAGER).force(), &Patch::Apply(&lease)).await
    }

    /// Renews the Lease: less work for the API server than taking it.
    async fn renew(&mut self) -> Result<()> {
        self.write_lease(
            &PatchParams::default(),
            &Patch::Merge(&json!({"spec": {"renewTime": micros(Timestamp::now())}})),
        )
        .await
    }

    async fn write_lease(&mut self, params: &PatchParams, patch: &Patch<&Value>) -> Result<()> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), "kube-node-lease");
        let written = leases.patch(&self.name, params, patch).await;
        written.with_context(|| format!("renew the Lease of Node {}", self.name))?;
        self.leased = Instant::now();
        Ok(())
    }

    fn node(&self, instance: &Instance) -> Value {
        let role = if instance.is_master() { "master" } else { "worker" };
        let mut labels = json!({
            LABEL: self.infra_id,
            format!("node-role.kubernetes.io/{role}"): "",
            "kubernetes.io/hostname": self.name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            "node.kubernetes.io/instance-type": "m6i.xlarge",
            "topology.kubernetes.io/region": instance.region,
            "topology.kubernetes.io/zone": instance.zone,
        });
        if instance.is_master() {
            labels["node-role.kubernetes.io/control-plane"] = json!("");
        }
        json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name, "labels": labels},
            "spec": {"providerID": instance.provider_id()},
        })
    }
}

/// Makes the Nodes of a cluster that has been asleep for a day: Ready, as far as anybody has heard.
///
/// # Errors
/// When the spoke refuses them.
pub async fn asleep(client: &Client, infra_id: &str, instances: &[Instance]) -> Result<()> {
    for instance in instances {
        let mut kubelet = Kubelet::new(client.clone(), infra_id, instance);
        kubelet.register(instance).await?;
        kubelet.ready_since = days_ago(3);
        kubelet.report(&days_ago(1)).await?;
    }
    Ok(())
}

/// Waits until every running instance of a cluster has a Node.
///
/// # Errors
/// When they do not come within 30 seconds.
pub async fn all_there(client: &Client, infra_id: &str, expected: usize) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let ours = kube::api::ListParams::default().labels(&format!("{LABEL}={infra_id}"));
    eventually(Duration::from_secs(30), "Ready Nodes", async || {
        let ready = nodes.list(&ours).await.context("list Nodes")?.items.iter().filter(|node| is_ready(node)).count();
        ensure!(ready >= expected, "{infra_id} has {ready} of {expected}");
        Ok(())
    })
    .await
}

/// Whether a Node is Ready.
pub fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
