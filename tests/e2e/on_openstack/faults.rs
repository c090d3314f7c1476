//! What can go wrong between a cluster and OpenStack's own services: each fault is named, costs no server, and ends with
//! its cause.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use http::Method;
use serde_json::{Value, json};
use testbed::openstack::{Knobs, OpenStack};
use testbed::proxy::faults::{Effect, Rule};
use testbed::world::handle::Cluster;
use testbed::{Options, World};

use crate::openstack::{SOON, cluster, observed, record};

/// An image that vanished is made again 90 s after it was asked for: the request could still be under way.
const TIMEOUT: Duration = Duration::from_mins(5);

const SERVICES: [&str; 4] = ["keystone", "nova", "neutron", "glance"];

pub(super) struct Subject {
    pub(super) world: World,
    pub(super) cluster: Cluster,
    pub(super) openstack: OpenStack,
}

impl Subject {
    pub(super) async fn new(name: &str) -> Result<Self> {
        Self::of_size(name, 2).await
    }

    pub(super) async fn of_size(name: &str, size: usize) -> Result<Self> {
        let world = World::up(Options { openstack: true, ..Options::shared() }).await?;
        let (cluster, openstack) = cluster(&world, name, size).await?;
        Ok(Self { world, cluster, openstack })
    }

    /// Waits until a condition of the cluster says so.
    pub(super) async fn says(&self, words: &[&str]) -> Result<()> {
        let what = format!("condition that says {words:?}");
        let says = |cluster: &shared::hive::api::ClusterDeployment| {
            let conditions = cluster.status.iter().flat_map(|status| &status.conditions);
            let mut messages = conditions.filter_map(|condition| condition.message.as_deref());
            messages.any(|message| words.iter().all(|word| message.contains(word)))
        };
        self.cluster.wait_for(&what, TIMEOUT, says).await.map(drop)
    }

    pub(super) async fn server(&self, role: &str) -> Result<Value> {
        let servers = self.openstack.servers(&self.cluster.info().infra_id).await?;
        let found = servers.into_iter().find(|server| server["name"].as_str().is_some_and(|name| name.contains(role)));
        found.with_context(|| format!("no {role}"))
    }

    pub(super) async fn act(&self, server: &Value, action: Value) -> Result<()> {
        let path = format!("/servers/{}/action", server["id"].as_str().unwrap_or_default());
        self.openstack.compute(Method::POST, &path, Some(action)).await.map(drop)
    }

    /// What `kubectl hibernate plan` prints.
    pub(super) async fn plan(&self) -> Result<String> {
        let plan = ["hibernate", "plan", self.cluster.name(), "-n", self.cluster.namespace(), "--fresh"];
        Ok(self.world.kubectl(&plan).await?.stdout)
    }

    pub(super) async fn statuses(&self) -> Result<Vec<String>> {
        let servers = self.openstack.servers(&self.cluster.info().infra_id).await?;
        Ok(servers.iter().map(|server| server["status"].as_str().unwrap_or_default().to_owned()).collect())
    }

    /// Waits until its servers have these statuses.
    pub(super) async fn are(&self, expected: &[&str]) -> Result<()> {
        observed(&format!("servers that are {expected:?}"), async || {
            let statuses = self.statuses().await?;
            ensure!(statuses == expected, "{statuses:?}");
            Ok(())
        })
        .await
    }

    pub(super) async fn asleep(&self) -> Result<()> {
        self.cluster.sleep().await?;
        self.cluster.wait_for_power_state("Hibernating", SOON).await.map(drop)
    }

    pub(super) async fn awake(&self) -> Result<()> {
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
    let plan = subject.plan().await?;
    ensure!(plan.contains("CannotSleep") && plan.contains("Locked: it is locked"), "{plan}");
    subject.cluster.sleep().await?;
    subject.says(&["-worker-0: Locked: it is locked"]).await?;
    ensure!(subject.statuses().await? == ["ACTIVE", "ACTIVE"], "nothing is touched");
    ensure!(record(&subject.world, &subject.cluster).await?.is_none());
    subject.act(&worker, json!({"unlock": null})).await?;

    // A snapshot that fails twice: all run again, no image is left, and the server is named.
    Knobs { snapshot_fails: true, ..Knobs::default() }.write(subject.world.dir())?;
    subject.says(&["ImageFailed", "2 times"]).await?;
    subject.are(&["ACTIVE", "ACTIVE"]).await?;
    observed("no image", async || {
        let images = subject.openstack.images(&subject.cluster.info().infra_id).await?;
        ensure!(images.is_empty(), "{images:?}");
        Ok(())
    })
    .await?;
    subject.awake().await
}

/// What changes in the middle of a sleep: the record cannot be written, and a server is locked while others are deleted.
/// Both are named, and the sleep goes on once they are mended.
#[tokio::test]
async fn what_comes_up_in_the_middle_of_a_sleep_is_named() -> Result<()> {
    let subject = Subject::new("midway").await?;
    let path = format!("/api/v1/namespaces/{}/secrets", subject.cluster.namespace());
    let denied = Effect::Status { code: 403, retry_after: None, message: Some("secrets is forbidden".to_owned()) };
    let denied = Rule::new(denied).user_agent("hibernate-controller/").path(&path).method("POST");
    let id = subject.world.inject("hub", &denied).await?.id;
    subject.cluster.sleep().await?;
    subject.says(&["forbidden", "manifests/components/openstack"]).await?;
    ensure!(subject.statuses().await? == ["ACTIVE", "ACTIVE"], "nothing is touched");
    // Two servers are paused and imaged before the first of them is deleted.
    let slow = Rule::new(Effect::Delay { millis: 5_000 }).user_agent("hibernate-controller/").method("POST");
    let slow = slow.path("*/action").skip(4);
    let slow = subject.world.inject("nova", &slow).await?.id;
    subject.world.heal("hub", Some(&id)).await?;

    // Workers go first: the other server is locked while the first delete is on its way.
    observed("a delete", async || {
        ensure!(subject.world.hits("nova", &slow).await? > 0);
        Ok(())
    })
    .await?;
    let master = subject.server("-master-").await?;
    subject.act(&master, json!({"lock": null})).await?;
    subject.says(&["-master-0", "locked"]).await?;
    subject.are(&["PAUSED"]).await.context("the other one is deleted")?;
    subject.act(&master, json!({"unlock": null})).await?;
    subject.cluster.wait_for_power_state("Hibernating", TIMEOUT).await?;
    subject.world.heal("nova", Some(&slow)).await?;
    subject.awake().await
}

/// While a cluster sleeps, its port is taken, its flavor and its quota go: the wake names each, and succeeds once all are
/// mended.
#[tokio::test]
async fn what_stands_in_the_way_of_a_wake_is_named() -> Result<()> {
    let subject = Subject::new("wake").await?;
    let (world, openstack) = (&subject.world, &subject.openstack);
    let admin = world.openstack("admin").await?;
    subject.asleep().await?;

    // A stranger's server has a port of the cluster.
    let ports = openstack.network(Method::GET, "/ports", None).await?;
    let is_its = |port: &&Value| port["name"].as_str().is_some_and(|name| name.contains("-worker-"));
    let port = ports["ports"].as_array().into_iter().flatten().find(is_its).context("a port of the worker")?;
    let image = openstack.call("image", Method::GET, "/v2/images?name=rhcos", None).await?["images"][0]["id"].clone();
    let flavor = openstack.compute(Method::GET, "/flavors/detail", None).await?["flavors"][0].clone();
    let stranger = json!({"server": {
        "name": "stranger", "imageRef": image, "flavorRef": flavor["id"], "networks": [{"port": port["id"]}],
    }});
    let stranger = openstack.compute(Method::POST, "/servers", Some(stranger)).await?["server"]["id"].clone();
    let stranger = format!("/servers/{}", stranger.as_str().unwrap_or_default());
    observed("a stranger that runs", async || {
        let server = openstack.compute(Method::GET, &stranger, None).await?;
        ensure!(server["server"]["status"] == "ACTIVE", "{server}");
        Ok(())
    })
    .await?;
    subject.cluster.wake().await?;
    let port = port["id"].as_str().unwrap_or_default();
    subject.says(&["-worker-0", port, "in use"]).await?;
    subject.are(&["ACTIVE"]).await.context("the other one runs")?;

    // Its flavor is deleted.
    let path = format!("/flavors/{}", flavor["id"].as_str().unwrap_or_default());
    admin.compute(Method::DELETE, &path, None).await?;
    subject.says(&["-worker-0", "Flavor", "could not be found"]).await?;

    // Its quota is used up.
    let project = admin.call("identity", Method::GET, "/projects?name=demo", None).await?;
    let quotas = format!("/os-quota-sets/{}", project["projects"][0]["id"].as_str().unwrap_or_default());
    let quota = |instances: i32| Some(json!({"quota_set": {"instances": instances, "force": true}}));
    openstack.compute(Method::DELETE, &stranger, None).await?;
    admin.compute(Method::PUT, &quotas, quota(1)).await?;
    let mut again = json!({});
    for key in ["id", "name", "ram", "vcpus", "disk"] {
        again[key] = flavor[key].clone();
    }
    admin.compute(Method::POST, "/flavors", Some(json!({"flavor": again}))).await?;
    subject.says(&["QuotaExceeded", "Quota exceeded for instances"]).await?;
    admin.compute(Method::PUT, &quotas, quota(-1)).await?;
    subject.cluster.wait_for_power_state("Running", TIMEOUT).await.map(drop)
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
