//! `Unreachable` and `ActiveAPIURLOverride` in our hands: a sleeping cluster is marked once and left alone, and Hive's
//! syncing may go on seconds after it woke. In a world whose controller writes these conditions, which it does not by
//! default.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use shared::hive::api::ClusterDeployment;
use shared::hive::conditions::{ACTIVE_OVERRIDE, UNREACHABLE};
use testbed::proxy::faults::{Effect, Rule};
use testbed::supervisor::programs::Start;
use testbed::world::handle::Cluster;
use testbed::{ClusterOptions, Options, Program, World};

const SOON: Duration = Duration::from_mins(1);
const REACHABLE: &str = "False/ClusterReachable/cluster is reachable";
const ASLEEP: &str = "True/Hibernating/cluster is hibernating and is not probed until it wakes";
/// An address that has not proven to be the cluster's: the cause stays hidden.
const REFUSED: &str = "True/ErrorConnectingToCluster/the cluster's API server cannot be reached: no connection with this \
                       kubeconfig has succeeded yet";

/// A world whose controller owns the conditions and talks to the hub through the proxy, which counts.
async fn world() -> Result<World> {
    let options = Options { without: vec![Program::Controller, Program::Webhook], ..Options::shared() };
    let start = Start { args: vec!["--own-unreachable".into()], ..Start::new(Program::Controller) };
    World::shared_with_program(options, &start).await
}

fn says(cluster: &ClusterDeployment, type_: &str) -> String {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let word = cluster.condition(type_);
    word.map_or_else(String::new, |c| format!("{}/{}/{}", c.status, text(&c.reason), text(&c.message)))
}

async fn wait(cluster: &Cluster, type_: &str, word: &str) -> Result<ClusterDeployment> {
    cluster.wait_for(&format!("{type_} {word}"), SOON, |found| says(found, type_) == word).await
}

/// Counts what the controller asks of the hub about one cluster.
struct Counter<'a> {
    world: &'a World,
    id: String,
}

impl<'a> Counter<'a> {
    async fn of(world: &'a World, method: &str, path: &str) -> Result<Self> {
        let rule = Rule::new(Effect::Delay { millis: 0 }).method(method).path(path);
        Ok(Self { world, id: world.inject("hub", &rule).await?.id })
    }

    /// Every question to a spoke begins with a read of its kubeconfig.
    async fn questions(world: &'a World, cluster: &Cluster) -> Result<Self> {
        let metadata = cluster.get().await?.spec.cluster_metadata.context("clusterMetadata")?;
        let secret = metadata.admin_kubeconfig_secret_ref.name;
        Self::of(world, "GET", &format!("/api/v1/namespaces/{}/secrets/{secret}", cluster.namespace())).await
    }

    async fn status_writes(world: &'a World, cluster: &Cluster) -> Result<Self> {
        let (namespace, name) = (cluster.namespace(), cluster.name());
        let path = format!("/apis/hive.openshift.io/v1/namespaces/{namespace}/clusterdeployments/{name}/status");
        Self::of(world, "PATCH", &path).await
    }

    async fn count(&self) -> Result<u32> {
        let rule = self.world.faults("hub").await?.into_iter().find(|rule| rule.id == self.id);
        Ok(rule.context("the counting rule")?.hits)
    }
}

#[tokio::test]
async fn a_sleeping_cluster_is_marked_once_and_reachable_seconds_after_it_woke() -> Result<()> {
    let world = world().await?;
    let cluster = world.cluster("sleeper", ClusterOptions::of_size(3)).await?;
    wait(&cluster, UNREACHABLE, REACHABLE).await?;
    cluster.wait_for_power_state("Running", SOON).await?;
    for _ in 0..2 {
        cluster.sleep().await?;
        cluster.wait_for_power_state("Hibernating", SOON).await?;
        let marked = wait(&cluster, UNREACHABLE, ASLEEP).await?;
        let (questions, writes) =
            (Counter::questions(&world, &cluster).await?, Counter::status_writes(&world, &cluster).await?);
        // What Hive's controller would ask in this time: at 1, 2, 4 and 8 s.
        tokio::time::sleep(Duration::from_secs(10)).await;
        cluster.patch(&json!({"metadata": {"annotations": {"example.org/look": "now"}}})).await?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        let found = cluster.get().await?;
        assert_eq!(found.condition(UNREACHABLE), marked.condition(UNREACHABLE), "marked once");
        assert_eq!((questions.count().await?, writes.count().await?), (0, 0), "left alone");

        cluster.wake().await?;
        cluster.wait_for_power_state("Running", SOON).await?;
        wait(&cluster, UNREACHABLE, REACHABLE).await?;
        assert!(questions.count().await? >= 1, "what is counted is what asks");
    }
    Ok(())
}

#[tokio::test]
async fn a_lost_api_server_is_told_in_stable_words_and_found_again() -> Result<()> {
    let world = world().await?;
    let cluster = world.cluster("lost", ClusterOptions::of_size(1)).await?;
    wait(&cluster, UNREACHABLE, REACHABLE).await?;
    cluster.wait_for_power_state("Running", SOON).await?;

    // An address without a listener. The kubeconfig's own address is probed only every 2 hours while it answers.
    let nobody = json!({"spec": {"controlPlaneConfig": {"apiServerIPOverride": "127.0.0.2"}}});
    let probed = |found: &ClusterDeployment| found.condition(UNREACHABLE).and_then(|c| c.last_probe_time.clone());
    let before = probed(&cluster.get().await?);
    cluster.patch(&nobody).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(probed(&cluster.get().await?), before, "recently reachable");

    // Forgotten, as after Hive's controller or a backup, it is asked at once.
    forget(&cluster, &world).await?;
    let lost = wait(&cluster, UNREACHABLE, REFUSED).await?;
    let questions = Counter::questions(&world, &cluster).await?;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let asked = questions.count().await?;
    assert!((2..=4).contains(&asked), "asked {asked} times in 10 s: at 1, 3 and 7 s");
    assert_eq!(cluster.get().await?.condition(UNREACHABLE), lost.condition(UNREACHABLE), "not written again");

    cluster.patch(&json!({"spec": {"controlPlaneConfig": {"apiServerIPOverride": null}}})).await?;
    wait(&cluster, UNREACHABLE, REACHABLE).await?;
    Ok(())
}

#[tokio::test]
async fn an_override_is_used_while_it_answers() -> Result<()> {
    let world = world().await?;
    let url = |url: &str| json!({"spec": {"controlPlaneConfig": {"apiURLOverride": url}}});
    let options = ClusterOptions { patch: url("https://localhost:1"), ..ClusterOptions::of_size(1) };
    let cluster = world.cluster("vanity", options).await?;
    let refused = REFUSED.replacen("True", "False", 1);
    wait(&cluster, ACTIVE_OVERRIDE, &refused).await?;
    wait(&cluster, UNREACHABLE, REACHABLE).await?; // by the kubeconfig's own URL, once the spoke listens there

    let gate = cluster.info().gate.replace("127.0.0.1", "localhost");
    cluster.patch(&url(&gate)).await?;
    wait(&cluster, ACTIVE_OVERRIDE, "True/ClusterReachable/cluster is reachable").await?;

    cluster.patch(&url("http://localhost:1")).await?;
    forget(&cluster, &world).await?;
    let refused = "False/ErrorConnectingToCluster/spec.controlPlaneConfig.apiURLOverride is refused: it is not https";
    wait(&cluster, ACTIVE_OVERRIDE, refused).await?;
    Ok(())
}

#[tokio::test]
async fn without_the_flag_both_are_somebody_elses() -> Result<()> {
    let world = World::shared().await?;
    let cluster = world.cluster("plain", ClusterOptions::of_size(1)).await?;
    let before = cluster.wait_for_power_state("Running", SOON).await?;
    cluster.sleep().await?;
    let after = cluster.wait_for_power_state("Hibernating", SOON).await?;
    assert_eq!(says(&after, UNREACHABLE), REACHABLE, "as Hive left it");
    for type_ in [UNREACHABLE, ACTIVE_OVERRIDE] {
        assert_eq!(after.condition(type_), before.condition(type_));
    }
    cluster.remove().await
}

/// Takes both conditions away.
async fn forget(cluster: &Cluster, world: &World) -> Result<()> {
    let found = cluster.raw().await?;
    let conditions = found.data["status"]["conditions"].as_array().context("conditions")?;
    let ours = |type_: &serde_json::Value| type_ == UNREACHABLE || type_ == ACTIVE_OVERRIDE;
    let kept: Vec<_> = conditions.iter().filter(|condition| !ours(&condition["type"])).collect();
    ensure!(kept.len() + 2 == conditions.len(), "both conditions");
    let patch = json!({"status": {"conditions": kept}}).to_string();
    let name = format!("clusterdeployment/{}", cluster.name());
    let args = ["patch", &name, "-n", cluster.namespace(), "--subresource=status", "--type=merge", "-p", &patch];
    world.kubectl(&args).await?.ok()?;
    Ok(())
}
