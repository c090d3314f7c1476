//! What can go wrong between a cluster and OpenStack's own services: each fault is named, costs no server, and ends with
//! its cause.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use http::Method;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use testbed::openstack::{Knobs, OpenStack};
use testbed::proxy::faults::{Effect, Rule};
use testbed::world::handle::Cluster;
use testbed::{Options, World};

use crate::openstack::{SOON, cluster, record};

/// An image that vanished is made again 90 s after it was asked for: the request could still be under way.
const LONG: Duration = Duration::from_mins(5);

const SERVICES: [&str; 4] = ["keystone", "nova", "neutron", "glance"];

struct Subject {
    world: World,
    cluster: Cluster,
    openstack: OpenStack,
}

impl Subject {
    async fn new(name: &str) -> Result<Self> {
        let world = World::up(Options { openstack: true, ..Options::shared() }).await?;
        let (cluster, openstack) = cluster(&world, name, 2).await?;
        Ok(Self { world, cluster, openstack })
    }

    /// Waits until a condition of the cluster says so.
    async fn says(&self, words: &[&str]) -> Result<()> {
        let what = format!("condition that says {words:?}");
        let says = |cluster: &shared::hive::api::ClusterDeployment| {
            let conditions = cluster.status.iter().flat_map(|status| &status.conditions);
            let mut messages = conditions.filter_map(|condition| condition.message.as_deref());
            messages.any(|message| words.iter().all(|word| message.contains(word)))
        };
        self.cluster.wait_for(&what, LONG, says).await.map(drop)
    }

    async fn server(&self, role: &str) -> Result<Value> {
        let servers = self.openstack.servers(&self.cluster.info().infra_id).await?;
        let found = servers.into_iter().find(|server| server["name"].as_str().is_some_and(|name| name.contains(role)));
        found.with_context(|| format!("no {role}"))
    }

    async fn act(&self, server: &Value, action: Value) -> Result<()> {
        let path = format!("/servers/{}/action", server["id"].as_str().unwrap_or_default());
        self.openstack.compute(Method::POST, &path, Some(action)).await.map(drop)
    }

    async fn statuses(&self) -> Result<Vec<String>> {
        let servers = self.openstack.servers(&self.cluster.info().infra_id).await?;
        Ok(servers.iter().map(|server| server["status"].as_str().unwrap_or_default().to_owned()).collect())
    }

    async fn asleep(&self) -> Result<()> {
        self.cluster.sleep().await?;
        self.cluster.wait_for_power_state("Hibernating", SOON).await.map(drop)
    }

    async fn awake(&self) -> Result<()> {
        self.cluster.wake().await?;
        self.cluster.wait_for_power_state("Running", SOON).await.map(drop)
    }
}

/// A server that cannot be made again is named before anything is touched; once that is mended, the sleep goes on.
#[tokio::test]
async fn what_stands_in_the_way_of_a_sleep_is_named() -> Result<()> {
    let subject = Subject::new("refuse").await?;
    let worker = subject.server("-worker-").await?;
    subject.act(&worker, json!({"lock": null})).await?;
    subject.cluster.sleep().await?;
    subject.says(&["-worker-0: Locked: it is locked"]).await?;
    ensure!(subject.statuses().await? == ["ACTIVE", "ACTIVE"], "nothing is touched");
    ensure!(record(&subject.world, &subject.cluster).await?.is_none());
    subject.act(&worker, json!({"unlock": null})).await?;

    // A snapshot that fails twice: all run again, no image is left, and the server is named.
    Knobs { snapshot_fails: true, ..Knobs::default() }.write(subject.world.dir())?;
    subject.says(&["ImageFailed", "2 times"]).await?;
    testbed::eventually(SOON, "servers that run", async || {
        let statuses = subject.statuses().await?;
        ensure!(statuses == ["ACTIVE", "ACTIVE"], "{statuses:?}");
        let images = subject.openstack.images(&subject.cluster.info().infra_id).await?;
        ensure!(images.is_empty(), "{images:?}");
        Ok(())
    })
    .await?;
    subject.awake().await
}

/// While a cluster sleeps, its port is taken, its quota goes, its record is edited: the wake names each, and succeeds
/// once that is mended.
#[tokio::test]
async fn what_stands_in_the_way_of_a_wake_is_named() -> Result<()> {
    let subject = Subject::new("wake").await?;
    let (world, openstack) = (&subject.world, &subject.openstack);
    let admin = world.openstack("admin").await?;
    let infra_id = subject.cluster.info().infra_id.clone();
    subject.asleep().await?;

    let secrets: Api<Secret> = Api::namespaced(world.hub().await?, subject.cluster.namespace());
    let name = format!("{}-hibernation-config", subject.cluster.name());
    let kept = record(world, &subject.cluster).await?.context("a record")?.data.unwrap_or_default();
    let put = async |text: &[u8]| {
        let data = json!({"data": {"hibernation": ByteString(text.to_vec())}});
        secrets.patch(&name, &PatchParams::default(), &Patch::Merge(&data)).await.map(drop)
    };
    let text = &kept.get("hibernation").context("key hibernation")?.0;
    let foreign = String::from_utf8_lossy(text).replace(&infra_id, "other-x7k2p");
    for (edited, says) in [(&b"{}"[..], "malformed"), (foreign.as_bytes(), "another cluster")] {
        put(edited).await?;
        subject.cluster.wake().await?;
        subject.says(&["the record of the cluster's machines is refused", says]).await?;
        ensure!(openstack.images(&infra_id).await?.len() == 2, "images are kept");
    }
    put(text).await?;
    subject.awake().await?;
    subject.asleep().await?;

    let project = admin.call("identity", Method::GET, "/projects?name=demo", None).await?;
    let quotas = format!("/os-quota-sets/{}", project["projects"][0]["id"].as_str().unwrap_or_default());
    let quota = |instances: i32| Some(json!({"quota_set": {"instances": instances, "force": true}}));
    admin.compute(Method::PUT, &quotas, quota(1)).await?;
    subject.cluster.wake().await?;
    subject.says(&["QuotaExceeded", "Quota exceeded for instances"]).await?;
    ensure!(subject.statuses().await?.len() == 1, "the other one runs");
    admin.compute(Method::PUT, &quotas, quota(-1)).await?;
    subject.cluster.wait_for_power_state("Running", LONG).await?;
    Ok(())
}

/// Each service fails for 20 s, and a token is refused: that is named, and over soon after.
#[tokio::test]
async fn a_service_that_fails_for_a_while_is_named_and_waited_for() -> Result<()> {
    let subject = Subject::new("outage").await?;
    let agent = "hibernate-controller/";
    let refused = Rule::new(Effect::Status { code: 401, retry_after: None, message: None }).user_agent(agent).count(1);
    let id = subject.world.inject("nova", &refused).await?.id;
    subject.asleep().await?;
    ensure!(subject.world.hits("nova", &id).await? == 1, "the token was renewed");
    for service in SERVICES {
        let down = Rule::new(Effect::Status { code: 503, retry_after: None, message: None }).user_agent(agent);
        let id = subject.world.inject(service, &down).await?.id;
        let wakes = subject.cluster.power_state().await? == "Hibernating";
        if wakes {
            subject.cluster.wake().await?
        } else {
            subject.cluster.sleep().await?
        };
        if service != "keystone" {
            subject.says(&["503"]).await.with_context(|| service.to_owned())?;
        }
        tokio::time::sleep(Duration::from_secs(20)).await;
        subject.world.heal(service, Some(&id)).await?;
        let begun = Instant::now();
        let state = if wakes { "Running" } else { "Hibernating" };
        subject.cluster.wait_for_power_state(state, SOON).await.with_context(|| service.to_owned())?;
        eprintln!("{service}: {state} {:?} after it is back", begun.elapsed());
    }
    Ok(())
}
