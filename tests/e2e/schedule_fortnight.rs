//! A fortnight of schedules in minutes: a cluster of Hive and a namespace of workloads, with a holiday and an evening that is
//! skipped. And a Cluster of KKP.

use anyhow::{Context as _, Result, ensure};
use jiff::civil::time;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use shared::annotation::keys;
use shared::schedule::api::ClusterPowerSchedule;
use testbed::supervisor::programs::Start;
use testbed::{KkpOptions, Program, World, apply};

use crate::kkp_common::{SOON, up};
use crate::plugin_common::{pods, template};
use crate::rollout_common::Fleet;
use crate::schedule_common::{BERLIN, Days, QUIET, ended, is_read, office, status};
use crate::schedule_workloads::asks_for;

const HOLIDAYS: &str = "holidays";

/// A namespace of workloads, and the calendar of the cluster-wide schedules with the right to read it.
fn objects(shop: &str) -> Vec<Value> {
    let mut job = template();
    job["spec"]["restartPolicy"] = json!("Never");
    let yearly = json!({ "schedule": "0 0 1 1 *", "jobTemplate": { "spec": { "template": job } } });
    let own =
        |kind: &str, name: &str| json!({ "kind": kind, "metadata": { "name": name, "namespace": keys::NAMESPACE } });
    let mut calendar = own("ConfigMap", HOLIDAYS);
    json_patch::merge(&mut calendar, &json!({ "apiVersion": "v1", "data": { "days": "" } }));
    let mut binding = own("RoleBinding", "calendars");
    let group = "rbac.authorization.k8s.io";
    let role = json!({ "apiGroup": group, "kind": "ClusterRole", "name": "hibernate-controller-calendars" });
    let account = json!([{ "kind": "ServiceAccount", "name": keys::CONTROLLER, "namespace": keys::NAMESPACE }]);
    json_patch::merge(
        &mut binding,
        &json!({ "apiVersion": format!("{group}/v1"), "roleRef": role, "subjects": account }),
    );
    let workload = |api: &str, kind: &str, name: &str, spec: &Value| json!({ "apiVersion": api, "kind": kind, "metadata": { "name": name, "namespace": shop }, "spec": spec });
    vec![
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": shop } }),
        workload("apps/v1", "Deployment", "web", &pods(3)),
        workload("batch/v1", "CronJob", "report", &yearly),
        calendar,
        binding,
    ]
}

/// Replicas of the Deployment, and whether the `CronJob` is suspended.
async fn shop(world: &World, namespace: &str) -> Result<String> {
    let path = "jsonpath={.items[*].spec.replicas} {.items[*].spec.suspend}";
    world.kubectl(&["get", "deploy,cj", "-n", namespace, "-o", path]).await?.ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fortnight_with_a_holiday_a_skip_and_a_namespace_of_workloads() -> Result<()> {
    let days = Days::new().await?;
    let hub = days.world.hub().await?;
    apply::all(&hub, &manifests::workload_schedules()).await?;
    apply::all(&hub, &objects("fortnight")).await?;
    days.start_controller().await?;
    let fleet = Fleet::of(&days.world, "fortnight", &["hive"]).await?;
    let hive = fleet.get("hive");

    let all: Api<ClusterPowerSchedule> = Api::all(hub.clone());
    let schedules = [
        ("clusters", json!({ "selector": { "matchLabels": { "role": "hive" } } })),
        ("shops", json!({ "kind": "Workloads", "names": [{ "name": "fortnight" }] })),
    ];
    for (name, targets) in schedules {
        let mut object = json!({
            "metadata": { "name": name },
            "spec": { "timeZone": BERLIN, "awake": office("07:30", "18:00"), "targets": targets },
        });
        if name == "clusters" {
            let calendar = json!({ "configMap": HOLIDAYS, "key": "days", "power": "Sleep" });
            object["spec"]["calendars"] = json!([calendar]);
        }
        all.create(&PostParams::default(), &serde_json::from_value(object)?).await.context(name)?;
        is_read(&all, name).await?;
    }
    let uid = all.get("clusters").await?.uid().context("a UID")?;
    let (evening, morning) = (time(18, 0, 0, 0), time(7, 30, 0, 0));
    let (before_evening, before_morning) = (time(17, 59, 58, 0), time(7, 29, 58, 0));

    // The weekend.
    for (day, at, before, asleep) in [(0, evening, before_evening, true), (3, morning, before_morning, false)] {
        days.go(day, before)?;
        hive.wait_for_power_state(if asleep { "Hibernating" } else { "Running" }, SOON).await?;
        ended(&all, "shops", days.at(day, at)?, "2 of 2 done").await?;
        let expected = if asleep { "0 true" } else { "3 false" };
        assert_eq!(shop(&days.world, "fortnight").await?, expected);
    }

    // Tuesday evening is skipped by one of them.
    days.go(4, time(12, 0, 0, 0))?;
    days.plugin(&["schedule", "skip", "cpsch/clusters"]).await?.ok()?;
    days.go(4, before_evening)?;
    tokio::time::sleep(QUIET).await;
    assert_eq!(hive.power_state().await?, "Running");
    assert_eq!(days.rollouts_of_edge(&uid, days.at(4, evening)?).await?, 0);

    // A holiday is added on the day before, and read at the next edge.
    days.go(5, time(12, 0, 0, 0))?;
    let maps: Api<ConfigMap> = Api::namespaced(hub, keys::NAMESPACE);
    let holiday = json!({ "data": { "days": format!("{} Reformation Day", days.day(6)?) } });
    maps.patch(HOLIDAYS, &PatchParams::default(), &Patch::Merge(holiday)).await?;
    days.go(5, before_evening)?;
    hive.wait_for_power_state("Hibernating", SOON).await?;
    let next = status(&all, "clusters").await?.next;
    assert_eq!(next.first().map(|edge| edge.at.0), Some(days.at(7, morning)?), "{next:?}");
    days.go(6, before_morning)?;
    tokio::time::sleep(QUIET).await;
    assert_eq!(hive.power_state().await?, "Hibernating");
    days.go(7, before_morning)?;
    hive.wait_for_power_state("Running", SOON).await?;
    let by = ended(&all, "clusters", days.at(7, morning)?, "Succeeded").await?.last_edge.context("an edge")?;
    ensure!(by.source.starts_with("awake Mon-Fri"), "{by:?}");
    Ok(())
}

/// By the clock of the doubles of KKP.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_of_kkp_sleeps_and_wakes_by_a_schedule() -> Result<()> {
    let kkp = up("c0", KkpOptions::small()).await?;
    kkp.world().start(&Start::new(Program::Webhook)).await?;
    let all: Api<ClusterPowerSchedule> = Api::all(kkp.world().hub().await?);
    let mut spec = json!({
        "timeZone": "UTC", "targets": { "kind": "Cluster", "all": true }, "awake": office("07:30", "18:00"),
    });
    json_patch::merge(&mut spec, &asks_for("Sleep")?);
    let object = serde_json::from_value(json!({ "metadata": { "name": "seed" }, "spec": spec }))?;
    all.create(&PostParams::default(), &object).await?;
    kkp.wait_for_phase(Some("Dehydrated"), SOON).await?;
    let woken = Patch::Merge(json!({ "spec": asks_for("Awake")? }));
    all.patch("seed", &PatchParams::default(), &woken).await?;
    kkp.wait_for_phase(None, SOON).await?;
    let by = kkp.get().await?.annotations().get(keys::REQUESTED_BY).cloned();
    assert_eq!(by.as_deref(), Some("admin"), "who wrote the schedule");
    Ok(())
}
