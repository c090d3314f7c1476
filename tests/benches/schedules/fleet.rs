//! Fake clusters in one namespace, schedules over them, and when their power state was written.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use jiff::{Timestamp, ToSpan as _, Unit};
use kube::api::{ListParams, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, ResourceExt as _};
use parking_lot::Mutex;
use serde_json::{Value, json};
use shared::hive::api::ClusterDeployment;
use shared::rollout::api::PowerRollout;
use shared::schedule::api::PowerSchedule;
use testbed::{ClusterOptions, Options, Timings, World, ensure_that, eventually};

/// Fake clusters have no `ClusterSync`: the first transition of each waits a minute for it.
const SETTLES: Duration = Duration::from_secs(75);
/// How soon an edge may be, so that every schedule is read before it.
const SOONEST: i64 = 15;
const LONG: Duration = Duration::from_mins(5);

/// A hub with so many fake clusters, named `fake-0` and so on.
pub struct FakeFleet {
    pub world: World,
    pub namespace: String,
}

impl FakeFleet {
    pub async fn new(clusters: usize) -> Result<Self> {
        let world =
            World::up(Options { clusters: 0, audit: true, timings: Timings::fast(), ..Options::default() }).await?;
        let model = world.cluster("model", ClusterOptions::of_size(1)).await?;
        model.wait_for_power_state("Running", LONG).await?;
        model.copies("fake", clusters, &json!({ "hive.openshift.io/fake-cluster": "true" }), None).await?;
        tokio::time::sleep(SETTLES).await;
        Ok(Self { namespace: model.namespace().to_owned(), world })
    }

    /// Creates schedules in its namespace, with these targets and times. Returns once the controller has read them.
    pub async fn schedules(&self, specs: impl IntoIterator<Item = (String, Value, Value)>) -> Result<()> {
        let api: Api<PowerSchedule> = Api::namespaced(self.world.hub().await?, &self.namespace);
        let create = |(name, targets, times): (String, Value, Value)| {
            let api = api.clone();
            async move {
                let mut object =
                    json!({ "metadata": { "name": name }, "spec": { "timeZone": "UTC", "targets": targets } });
                json_patch::merge(&mut object["spec"], &times);
                api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
                anyhow::Ok(())
            }
        };
        stream::iter(specs).map(create).buffer_unordered(8).try_collect::<()>().await?;
        eventually(LONG, "every schedule is read", async || {
            let all = api.list(&ListParams::default()).await?.items;
            let unread =
                all.iter().filter(|one| one.status.as_ref().is_none_or(|status| status.next.is_empty())).count();
            ensure!(unread == 0, "{unread} of {} are not read", all.len());
            Ok(())
        })
        .await
    }

    /// Rollouts that schedules have created.
    pub async fn rollouts(&self) -> Result<Vec<PowerRollout>> {
        let all: Api<PowerRollout> = Api::all(self.world.hub().await?);
        let mut found = all.list(&ListParams::default()).await?.items;
        found.retain(|rollout| rollout.spec.scheduled_by.is_some());
        Ok(found)
    }

    /// The controller's requests so far, by verb and resource, without its Lease and its watches.
    pub async fn requests(&self) -> Result<BTreeMap<String, usize>> {
        let mut found = BTreeMap::new();
        for event in self.world.audited("hub").await? {
            let word = |path: &str| event.pointer(path).and_then(Value::as_str).unwrap_or_default();
            let (verb, resource) = (word("/verb"), word("/objectRef/resource"));
            if word("/stage") == "ResponseComplete" && verb != "watch" && resource != "leases" {
                *found.entry(format!("{verb} {resource}")).or_default() += 1;
            }
        }
        Ok(found)
    }
}

/// Writes of `ClusterDeployment`s among these requests, by status or not.
pub fn writes(requests: &BTreeMap<String, usize>) -> usize {
    ["patch clusterdeployments", "update clusterdeployments"].iter().filter_map(|word| requests.get(*word)).sum()
}

/// A sleep at a full minute, soon but not too soon, as an event.
pub fn sleep_soon() -> Result<(Timestamp, Value)> {
    let at = Timestamp::now().checked_add((60 + SOONEST).seconds())?.round(Unit::Minute)?;
    let at = if at < Timestamp::now().checked_add(SOONEST.seconds())? { at.checked_add(1.minute())? } else { at };
    Ok((at, json!({ "events": [{ "cron": at.strftime("%M %H * * *").to_string(), "power": "Sleep" }] })))
}

/// When each cluster was first seen with a power state.
pub struct Written(Arc<Mutex<BTreeMap<String, Timestamp>>>);

impl Written {
    /// Follows all clusters from now on.
    pub async fn follow(world: &World, power_state: &'static str) -> Result<Self> {
        let seen = Arc::<Mutex<BTreeMap<String, Timestamp>>>::default();
        let (api, log): (Api<ClusterDeployment>, _) = (Api::all(world.hub().await?), seen.clone());
        tokio::spawn(async move {
            let events = watcher(api, watcher::Config::default()).default_backoff().applied_objects();
            let note = async |cluster: ClusterDeployment| {
                if cluster.spec.power_state.as_deref() == Some(power_state) {
                    log.lock().entry(cluster.name_any()).or_insert_with(Timestamp::now);
                }
                Ok(())
            };
            events.try_for_each(note).await
        });
        Ok(Self(seen))
    }

    /// Waits until so many have it. Seconds from `since` to the first and to the last one.
    pub async fn until(&self, count: usize, since: Timestamp) -> Result<(f64, f64)> {
        eventually(LONG, "power states", async || ensure_that(self.0.lock().len(), |seen| *seen >= count)).await?;
        let seen = self.0.lock();
        let seconds = |at: Option<&Timestamp>| at.map_or(0.0, |at| at.duration_since(since).as_secs_f64());
        Ok((seconds(seen.values().min()), seconds(seen.values().max())))
    }

    /// Seconds from `since` to when this one was seen with it.
    pub async fn until_one(&self, name: &str, since: Timestamp) -> Result<f64> {
        let at =
            eventually(LONG, name, async || self.0.lock().get(name).copied().ok_or_else(|| anyhow::anyhow!("not yet")))
                .await?;
        Ok(at.duration_since(since).as_secs_f64())
    }
}
